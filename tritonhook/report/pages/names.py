"""Pages of one kernel under several names: that of the diff of two of them, with the builds beside it."""

from __future__ import annotations

from dataclasses import replace

from tritonhook.report.pages.diff import diff_page
from tritonhook.report.results.names import Names
from tritonhook.report.results.table import Demo
from tritonhook.report.summary import Page


def names_page(names: Names) -> Page:
    """The diff of the two names of equal length, with the three builds beside it."""
    if names.diff is None:
        return Page(names.summary())
    inner = diff_page(names.diff)
    return replace(inner, summary=names.summary(), parts={**inner.parts, "extra": (names.builds_table(),)})


def demo_page(demo: Demo) -> Page:
    """The first kernel's page, with the published table above it."""
    inner = names_page(demo.first[1])
    tables = demo.table.summary().tables if demo.table else ()
    parts = {**inner.parts, "extra": (*tables, *inner.parts.get("extra", ()))}
    return replace(inner, summary=demo.summary(), parts=parts)
