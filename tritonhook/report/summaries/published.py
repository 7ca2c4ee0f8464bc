"""The Summary of the published table of the name effect, beside what was assembled here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.report.format import count, number
from tritonhook.report.summary import Summary, Table, Tone

_CODE = {True: "changed", False: "same", None: "not known"}


def published_summary(document: Mapping[str, Any]) -> Summary:
    """Raises KeyError, TypeError or ValueError if the document is damaged."""
    rows = document["rows"]
    ptxas = f"ptxas {document['ptxas']}"
    subject = ", ".join([ptxas, *map(str, document.get("targets") or ())])
    changed = sum(bool(row["code_changed"]) for row in rows)
    columns = (
        *("condition", "size, published", "size", "size, equal name length"),
        *("capmerc, published", "capmerc", "capmerc, bytes", "code"),
    )
    title = f"With cutlass in the name, divided by without; {ptxas}"
    table = Table(title, columns, tuple(map(_row, rows)), tones=tuple(map(_tone, rows)), words=(7,))
    return Summary(
        "Published table",
        subject,
        f"the name changes the code in {changed} of {count(len(rows), 'condition')}",
        Tone.CHANGED if changed else Tone.GOOD,
        tuple(f"{row['condition']}: {row['failure']}" for row in rows if row["failure"]),
        (table,),
        tuple(f"{row['condition']}: {row['note']}" for row in rows if row["note"]),
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    published = row["published"] or {}
    ratios = (
        published.get("size"),
        row["size_ratio"],
        row["size_ratio_equal_length"],
        published.get("capmerc"),
        row["capmerc_ratio"],
    )
    a, b = row["capmerc_bytes"]
    return (
        str(row["condition"]),
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
        "-" if b is None else f"{number(a)} → {number(b)}",
        "ptxas crash" if row["failure"] else _CODE[row["code_changed"]],
    )


def _tone(row: Mapping[str, Any]) -> Tone:
    return Tone.BAD if row["failure"] else Tone.CHANGED if row["code_changed"] else Tone.NEUTRAL
