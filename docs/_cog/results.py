"""Read the committed results of the benchmarks, and write Markdown tables of them.

The modules beside this one have a function for each table. It reads a file of `benchmarks/results/` for a cog block:

    <!-- [[[cog import cost_tables; cog.out(cost_tables.overhead()) ]]] -->

Only the standard library is used, so that any Python can check the docs. `make cog` writes all tables again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

Document = dict[str, Any]
Columns = Mapping[str, str | Callable[[Any], str]]  # by title: a format string for a row, or a function of the row


@cache
def result(name: str) -> Document:
    """Read the committed result of the benchmark `name`."""
    document: Document = json.loads((RESULTS / f"{name}.json").read_text())
    return document


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table between blank lines, because not all Markdown readers accept a table right after a comment."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def table(rows: Iterable[Any], columns: Columns) -> str:
    """Write a table with a row for each of `rows`."""
    cells = [[one.format_map(row) if isinstance(one, str) else one(row) for one in columns.values()] for row in rows]
    return markdown(list(columns), cells)


def percent(ratio: float, digits: int = 1) -> str:
    """Format a ratio as a change: 1.079 as "+7.9%", and a change that rounds to zero without a sign."""
    text = f"{(ratio - 1) * 100:+.{digits}f}%"
    return text[1:] if not text.strip("+-0.%") else text
