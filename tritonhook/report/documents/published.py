"""The document of the published table of the name effect, beside what was assembled here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.lab.published_table import Row
from tritonhook.ptxas.tool import Tool
from tritonhook.report.documents import FORMAT


def table_document(rows: Sequence[Row], ptxas: Tool, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Each condition with its published and its assembled ratios. targets: what the rows were assembled for. notes: why
    it is not the published ptxas."""
    return {
        "format": FORMAT,
        "kind": "table",
        "ptxas": ptxas.version,
        "notes": list(notes),
        "targets": list(dict.fromkeys(row.comparison.original.ptx.target for row in rows)),
        "rows": [
            {
                "condition": row.title,
                "published": None if row.published is None else {"size": row.published[0], "capmerc": row.published[1]},
                "size_ratio": row.size_ratio,
                "size_ratio_equal_length": row.fair_size_ratio,
                "capmerc_ratio": row.capmerc_ratio,
                "capmerc_bytes": list(row.capmerc_bytes),
                "scheduler_records": row.records,
                "code_changed": row.code_changed,
                "failure": row.failure,
                "note": row.note,
            }
            for row in rows
        ],
    }
