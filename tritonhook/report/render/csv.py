"""Tables as CSV."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

from tritonhook.errors import UsageError

if TYPE_CHECKING:
    from tritonhook.report.result import Table


_GROUPS = re.compile(r"(?<=\d),(?=\d{3})")  # thousands separators


def render_csv(table: Table | None) -> str:
    """Write a table as CSV, its numbers without thousands separators. Raises UsageError if `table` is None."""
    if table is None:
        raise UsageError("--csv: this result has no table; --json prints the whole result")
    out = io.StringIO()
    rows = ([_GROUPS.sub("", cell) if table.is_figure(n) else cell for n, cell in enumerate(row)] for row in table.rows)
    csv.writer(out, lineterminator="\n").writerows([table.columns, *rows])
    return out.getvalue()
