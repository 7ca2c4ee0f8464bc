"""The Summary of the demo: the attention kernel under two names, with the published table first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritonhook.report.summaries.names import names_summary
from tritonhook.report.summaries.published import published_summary
from tritonhook.report.summary import Summary


def demo_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    title, first = next(iter(document["comparisons"].items()))
    names, table = names_summary(first), published_summary(document["table"])
    return replace(
        names,
        what="Demo",
        subject=f"{names.subject}, {title}",
        tables=(*table.tables, *names.tables),
        notes=(*names.notes, "assembled, not executed or timed", *table.notes),
    )
