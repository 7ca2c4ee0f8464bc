"""HTML pages of results. Each page shows the Summary; pages of some kinds also show charts and code listings."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tritonhook.report.result import Page, Result, tag_of

_PAGES = {  # kind of result -> (module, function) that makes its page; imported when needed
    "ab": ("timing", "timing_page"),
    "capture": ("code", "capture_page"),
    "captures": ("captures", "captures_page"),
    "demo": ("code", "demo_page"),
    "diff": ("code", "diff_page"),
    "file": ("code", "file_page"),
    "memory": ("memory", "memory_page"),
    "names": ("code", "names_page"),
}


def page_of(result: Result) -> Page:
    """Make the HTML page of a result. A kind that is not in _PAGES shows only its Summary."""
    if (place := _PAGES.get(tag_of(type(result)))) is None:
        return Page(result.summary())
    module, function = place
    draw: Callable[[Result], Page] = getattr(import_module(f"{__name__}.{module}"), function)
    return draw(result)
