"""Pages of captures: a folder's kernels with the size of their code, one kernel with its stages, one file with GPU
code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tritonhook.report.pages.charts import Scale
from tritonhook.report.pages.listing import single_listing, text_listing
from tritonhook.report.result import Page, Table, flat, number, short
from tritonhook.report.results.capture import CapturedOne, source_summary
from tritonhook.report.results.captures import Captures
from tritonhook.report.results.file import File

_WHY_NO_CODE = "This document holds no code. `tritonhook show CAPTURE --html FILE` reads it from the capture's folder."
_MOST_BARS, _LEFT, _RIGHT = 20, 300, 900


def captures_page(captures: Captures) -> Page:
    shown = captures.titles()
    sizes = [(shown[k.record], k.resources.code_bytes) for k in captures.kernels if k.resources][:_MOST_BARS]
    x = Scale(0, max((size for _, size in sizes), default=0), _LEFT, _RIGHT)
    bars = [{"name": name, "y": 26 * n, "end": x(size), "text": number(size)} for n, (name, size) in enumerate(sizes)]
    return Page(captures.summary(), "captures", {"bars": bars, "left": _LEFT})


# --- one capture ---------------------------------------------------------------------------------


def capture_page(capture: CapturedOne) -> Page:
    """Make the page of one capture. Its machine code and its stages become listings if the result has their text."""
    summary, listings = capture.summary(), list(_listings(capture))
    known = {name: value for name, value in capture.metadata.items() if name != "target"}  # the page has it as sm_90a
    metadata = tuple((name, short(text, 300)) for name, text in flat(known))
    parts = {
        "options": capture.options_table(),
        "metadata": Table("Metadata", ("", ""), metadata, 2),
        "resources": summary.tables[0],
        "became": source_summary(capture.code) if capture.code else None,
        "why_no_code": None if listings else _WHY_NO_CODE,
    }
    return Page(summary, "capture", parts, {"listings": listings} if listings else None)


def _listings(capture: CapturedOne) -> Iterator[dict[str, Any]]:
    if capture.code:
        yield {"id": "sass", "title": "SASS", "kind": "sass", **single_listing(capture.code)}
    for stage, text in (capture.artifacts or {}).items():
        yield {"id": stage, "title": "PTX" if stage == "ptx" else stage, "kind": "text", **text_listing(text)}


# --- one file with GPU code -----------------------------------------------------------------------


_MOST = 20  # listings; the page holds the code of each


def file_page(file: File) -> Page:
    names = file.names()
    coded = [(f"{names[k.kernel]}, {k.arch}", number, k.code) for number, k in enumerate(file.kernels) if k.code]
    listings = [
        {"id": f"sass-{number}", "title": title, "kind": "sass", **single_listing(code)}
        for title, number, code in coded[:_MOST]
    ]
    why = None if listings else "This document holds no code."
    parts = {"why_no_code": why, "left_out": len(coded) - len(listings)}
    return Page(file.summary(), "file", parts, {"listings": listings} if listings else None)
