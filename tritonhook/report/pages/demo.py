"""The page of `tritonhook demo`: the attention kernel's diff, with the published table above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tritonhook.report.pages.common import Page, Summary
from tritonhook.report.pages.diff import names_page, names_summary
from tritonhook.report.pages.tables import published_summary


def demo_summary(document: Mapping[str, Any]) -> Summary:
    title, first = next(iter(document["comparisons"].items()))
    names, table = names_summary(first), published_summary(document["table"])
    return replace(
        names,
        what="Demo",
        subject=f"{names.subject}, {title}",
        tables=(*table.tables, *names.tables),
        notes=(*names.notes, "assembled, not executed or timed", *table.notes),
    )


def demo_page(document: Mapping[str, Any]) -> Page:
    inner = names_page(next(iter(document["comparisons"].values())))
    tables = published_summary(document["table"]).tables
    return replace(
        inner, summary=demo_summary(document), parts={**inner.parts, "extra": (*tables, *inner.parts.get("extra", ()))}
    )
