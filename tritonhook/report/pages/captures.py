"""HTML page of a capture folder: the Summary, and a bar chart of the kernels' code sizes."""

from __future__ import annotations

from tritonhook.report.pages.charts import Scale
from tritonhook.report.result import Page, number
from tritonhook.report.results.captures import Captures

_MOST_BARS, _LEFT, _RIGHT = 20, 300, 900


def captures_page(captures: Captures) -> Page:
    shown = captures.titles()
    sizes = [(shown[k.record], k.resources.code_bytes) for k in captures.kernels if k.resources][:_MOST_BARS]
    x = Scale(0, max((size for _, size in sizes), default=0), _LEFT, _RIGHT)
    bars = [{"name": name, "y": 26 * n, "end": x(size), "text": number(size)} for n, (name, size) in enumerate(sizes)]
    return Page(captures.summary(), "captures", {"bars": bars, "left": _LEFT})
