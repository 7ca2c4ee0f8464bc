"""The Summary of the published table of the name effect, beside what was assembled here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonhook.report.format import count, number
from tritonhook.report.summary import Summary, Table, Tone

_CODE = {True: "changed", False: "same", None: "not known"}


def published_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    rows = document["rows"]
    ptxas = f"ptxas {document['ptxas']}"
    subject = ", ".join([ptxas, *map(str, document.get("targets") or ())])
    changed = sum(bool(row["code_changed"]) for row in rows)
    columns = (
        *("condition", "size (published)", "at equal name length"),
        *("capmerc (published)", "capmerc, bytes", "code"),
    )
    title = f"With cutlass in the name, divided by without; {ptxas}"
    table = Table(title, columns, tuple(map(_row, rows)), tones=tuple(map(_tone, rows)), words=(5,))
    return Summary(
        "Published table",
        subject,
        f"the name changes the code in {changed} of {count(len(rows), 'condition')}",
        Tone.CHANGED if changed else Tone.GOOD,
        tuple(f"{row['condition']}: {row['failure']}" for row in rows if row["failure"]),
        (table,),
        (*map(str, document["notes"]), *(f"{row['condition']}: {row['note']}" for row in rows if row["note"])),
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    published = row["published"] or {}
    a, b = row["capmerc_bytes"]
    return (
        str(row["condition"]),
        _ratio(row["size_ratio"], published.get("size")),
        _ratio(row["size_ratio_equal_length"]),
        _ratio(row["capmerc_ratio"], published.get("capmerc")),
        "-" if b is None else f"{number(a)} → {number(b)}",
        "ptxas crash" if row["failure"] else _CODE[row["code_changed"]],
    )


def _ratio(here: float | None, published: float | None = None) -> str:
    """ "1.55 (1.56)": the ratio here, and the published one if there is one."""
    beside = "" if published is None else f" ({published:.2f})"
    return ("-" if here is None else f"{here:.2f}") + beside


def _tone(row: Mapping[str, Any]) -> Tone:
    return Tone.BAD if row["failure"] else Tone.CHANGED if row["code_changed"] else Tone.NEUTRAL
