"""What only the HTML page draws: charts, code listings, tables that filter. Results in, a Page out."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tritonhook.report.result import Page, Result, tag_of

_PAGES = {  # by kind of result: the module and its function, loaded when such a page is made
    "ab": ("timing", "timing_page"),
    "capture": ("captures", "capture_page"),
    "captures": ("captures", "captures_page"),
    "demo": ("diff", "demo_page"),
    "diff": ("diff", "diff_page"),
    "file": ("captures", "file_page"),
    "memory": ("memory", "memory_page"),
    "names": ("diff", "names_page"),
}


def page_of(result: Result) -> Page:
    """The result as an HTML page: the summary's tables, where a kind has no page of its own."""
    if (place := _PAGES.get(tag_of(type(result)))) is None:
        return Page(result.summary())
    module, function = place
    draw: Callable[[Result], Page] = getattr(import_module(f"{__name__}.{module}"), function)
    return draw(result)
