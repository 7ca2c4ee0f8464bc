"""HTML page of a timed comparison: the Summary, and a plot of each side's effect with its 95% interval."""

from __future__ import annotations

from typing import Any

from tritonhook.report.pages.charts import Scale
from tritonhook.report.result import Page
from tritonhook.report.results.ab import FLOOR, Effects, TimedComparison, effects_of, span, summarise
from tritonhook.timing.statistics import CANDIDATE, CONTROL, Comparison, percent

_WIDTH, _LEFT, _RIGHT = 1000, 130, 20


def timing_page(timed: TimedComparison) -> Page:
    comparison, effects = timed.comparison, effects_of(timed.comparison)
    summary = summarise(timed, effects)
    if not comparison.usable:
        return Page(summary)
    return Page(summary, "timing", {"forest": _forest(comparison, effects)})


def _forest(comparison: Comparison, effects: Effects) -> dict[str, Any]:
    """Make the plot: a line for each side's effect with its interval, and behind them the band of differences that
    count as equal."""
    control = effects[FLOOR]
    lanes = [(side, effect) for side, effect in effects.items() if effect is not None and side not in (CONTROL, FLOOR)]
    if control is not None:
        lanes.append((f"control / {comparison.control_of}", control))
    ends = [value for _, e in lanes for value in (e.low, e.high)] + [1 - comparison.band, 1 + comparison.band, 1.0]
    margin = (max(ends) - min(ends)) * 0.08
    x = Scale((min(ends) - margin - 1) * 100, (max(ends) + margin - 1) * 100, _LEFT, _WIDTH - _RIGHT)
    height = 24 + 34 * len(lanes)
    return {
        "height": height + 26,
        "bottom": height,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "band": (x(-comparison.band * 100), x(comparison.band * 100)),
        "zero": x(0),
        "ticks": x.ticks(8, percent=True),
        "lanes": [
            {
                "label": name,
                "y": 28 + 34 * index,
                "low": x((e.low - 1) * 100),
                "high": x((e.high - 1) * 100),
                "mid": x((e.ratio - 1) * 100),
                "text": f"{percent(e.ratio)} ({span(e)})",
                "side": _side_of(name),
            }
            for index, (name, e) in enumerate(lanes)
        ],
    }


def _side_of(label: str) -> str:
    """Return the side that gives a line its colour: the candidate, the control, or "baseline"."""
    return next((side for side in (CANDIDATE, CONTROL) if label.startswith(side)), "baseline")
