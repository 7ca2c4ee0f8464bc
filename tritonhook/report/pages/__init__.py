"""Pages of saved results: each kind of JSON document has one function for its page and one for its summary.

A document says its kind; of those written before they did, the fields tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tritonhook.errors import UsageError
from tritonhook.report.pages import captures, demo, diff, memory, sweep, tables, timing
from tritonhook.report.pages.common import Page, Summary, short

T = TypeVar("T")
NEWEST = 1  # the newest `format` of any document that this version reads


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of document. fields: what one without `kind` is known by. page: None: the summary's tables are all."""

    fields: tuple[str, ...]
    summary: Callable[[Mapping[str, Any]], Summary]
    page: Callable[[Mapping[str, Any]], Page] | None = None


# Of documents without a kind the first whose fields are all there counts.
KINDS = {
    "ab": Kind(("blocks", "kernels", "comparison"), timing.timing_summary, timing.timing_page),
    "demo": Kind(("comparisons", "table"), demo.demo_summary, demo.demo_page),
    "names": Kind(("original", "renamed", "control"), diff.names_summary, diff.names_page),
    "diff": Kind(("verdict", "sass", "sections"), diff.diff_summary, diff.diff_page),
    "triggers": Kind(("triggers", "without_answer"), tables.triggers_summary),
    "probe": Kind(("summary", "cells"), sweep.sweep_summary, sweep.sweep_page),
    "name trigger": Kind(("samples", "names", "by_level"), sweep.matrix_summary, sweep.matrix_page),
    "memory variants": Kind(("variants",), memory.variants_summary),
    "memory": Kind(("timelines", "notes"), memory.memory_summary, memory.memory_page),
    "memory timeline": Kind(("samples", "marks", "start", "end"), memory.memory_summary, memory.memory_page),
    "memory prediction": Kind(("gpu", "growth_bytes", "basis"), memory.prediction_summary),
    "memory fix": Kind(("loads", "rewritten"), memory.fix_summary),
    "captures": Kind(("processes", "kernels", "crashes"), captures.captures_summary, captures.captures_page),
    "capture": Kind(("kernel", "stages", "options"), captures.capture_summary, captures.capture_page),
    "table": Kind(("ptxas", "rows"), tables.published_summary),
    "capabilities": Kind(("outcomes", "ptxas", "evidence"), tables.capabilities_summary, tables.capabilities_page),
}


def kind_of(document: Mapping[str, Any]) -> Kind:
    """Raises UsageError if it is no document that has a page."""
    said = document.get("kind")
    if isinstance(said, str):
        if said not in KINDS:
            raise UsageError(
                f"a document of kind {short(said, 40)!r}, which this version has no report of; update tritonhook if a "
                "newer one wrote it"
            )
        return KINDS[said]
    for kind in KINDS.values():
        if all(name in document for name in kind.fields):
            return kind
    raise UsageError("no result that has a report; give a capture folder, or what a verb wrote with --save or --json")


def page_of(document: Mapping[str, Any]) -> Page:
    """The page of any document. Raises UsageError."""
    kind = kind_of(document)
    make = kind.page
    return _made(document, make if make is not None else lambda it: Page(kind.summary(it)))


def summary_of(document: Mapping[str, Any]) -> Summary:
    """The result in brief. Raises UsageError."""
    return _made(document, kind_of(document).summary)


def _made(document: Mapping[str, Any], make: Callable[[Mapping[str, Any]], T]) -> T:
    version = document.get("format")
    if isinstance(version, int) and version > NEWEST:
        raise UsageError(f"its format is {version}, this version reads up to {NEWEST}; update tritonhook")
    try:
        return make(document)
    except KeyError as error:
        raise UsageError(f"damaged, or of another version: the field {short(str(error), 80)} is missing") from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(f"damaged, or of another version: {short(str(error), 200)}") from None
