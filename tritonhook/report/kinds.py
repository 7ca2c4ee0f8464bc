"""Kinds of JSON documents: which function makes the Summary of each, and which its page.

A document names its kind in the field `kind`. What a verb prints with --json and saves with --save has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tritonhook.errors import UsageError
from tritonhook.report.pages import captures as capture_pages
from tritonhook.report.pages import diff as diff_pages
from tritonhook.report.pages import file as file_pages
from tritonhook.report.result import FORMAT, fitting, read_result
from tritonhook.report.summaries import (
    bisect,
    captures,
    demo,
    diff,
    file,
    known,
    modules,
    names,
    published,
    snapshot,
    tools,
)
from tritonhook.report.summary import Page, Summary


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """One kind of document. page: None where the page shows the summary's tables and nothing else."""

    summary: Callable[[Mapping[str, Any]], Summary]
    page: Callable[[Mapping[str, Any]], Page] | None = None


KINDS = {
    "bisect": DocumentKind(bisect.bisect_summary),
    "capture": DocumentKind(captures.capture_summary, capture_pages.capture_page),
    "captures": DocumentKind(captures.captures_summary, capture_pages.captures_page),
    "demo": DocumentKind(demo.demo_summary, diff_pages.demo_page),
    "diff": DocumentKind(diff.diff_summary, diff_pages.diff_page),
    "file": DocumentKind(file.file_summary, file_pages.file_page),
    "installed": DocumentKind(tools.installed_summary),
    "kernel changes": DocumentKind(snapshot.changes_summary),
    "known miscompilations": DocumentKind(known.known_summary),
    "lock": DocumentKind(snapshot.lock_summary),
    "module diff": DocumentKind(modules.modules_summary),
    "names": DocumentKind(names.names_summary, diff_pages.names_page),
    "ptxas list": DocumentKind(tools.ptxas_list_summary),
    "ptxas tool": DocumentKind(tools.ptxas_tool_summary),
    "rename": DocumentKind(tools.rename_summary),
    "status": DocumentKind(tools.status_summary),
    "table": DocumentKind(published.published_summary),
}


def is_known(document: Mapping[str, Any]) -> bool:
    kind = document.get("kind")
    return isinstance(kind, str) and kind in KINDS


def checked(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, if it fits the schema of its kind. Raises UsageError. For documents that were read."""
    from tritonhook._util.schema import as_schema
    from tritonhook.report.schema.kinds import SCHEMAS

    if not is_known(document):
        read_result(document)
        return document
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UsageError(f"its format is {version}, this version reads up to {FORMAT}; update tritonhook")
    try:
        as_schema(document, SCHEMAS[document["kind"]])
    except ValueError as error:
        raise UsageError(f"damaged, or of another version: {error}") from None
    return document


def page_of(document: Mapping[str, Any]) -> Page:
    """The HTML page of a document of any kind. Raises UsageError if its parts do not fit together."""
    if not is_known(document):
        return fitting(read_result(document).page)
    kind = KINDS[document["kind"]]
    make = kind.page
    return fitting(lambda: Page(kind.summary(document)) if make is None else make(document))


def summary_of(document: Mapping[str, Any]) -> Summary:
    """The Summary of a document of any kind. Raises UsageError if its parts do not fit together."""
    if not is_known(document):
        return fitting(read_result(document).summary)
    return fitting(lambda: KINDS[document["kind"]].summary(document))
