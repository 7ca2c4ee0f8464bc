"""HTML pages with more than a Summary: charts, code listings, tables that filter. In: a result; out: a Page."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tritonhook.report.result import Page, Result, tag_of

_PAGES = {  # by kind of result: the module and its function, loaded when such a page is made
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
    """Make the HTML page of a result; a kind without a page of its own shows only its Summary."""
    if (place := _PAGES.get(tag_of(type(result)))) is None:
        return Page(result.summary())
    module, function = place
    draw: Callable[[Result], Page] = getattr(import_module(f"{__name__}.{module}"), function)
    return draw(result)
