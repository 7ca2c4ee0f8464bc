"""The page of a timed comparison: effects with intervals, every sample, every block, and the state of the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tritonhook.report.pages.charts import Scale, histogram, line, quantile
from tritonhook.report.result import UNKNOWN, Figure, Page, count, number
from tritonhook.report.results.ab import (
    FLOOR,
    Effects,
    TimedComparison,
    effects_of,
    environment_table,
    kernels_table,
    ptxas_of,
    side_name,
    span,
    summarise,
    value_range,
)
from tritonhook.timing.plan import Timed
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, percent

_WIDTH, _LEFT, _RIGHT = 1000, 130, 20
_BINS = 60
_LANE = 58
_MOST_DOTS = 80
_MOST_BORDERS = 12  # between processes; of processes that take turns there would be too many to draw
_MEASURED = {"SM clock, MHz": "sm_clock_mhz", "temperature, °C": "temperature_c", "power, W": "power_w"}


def timing_page(timed: TimedComparison) -> Page:
    comparison, effects = timed.comparison, effects_of(timed.comparison)
    summary = summarise(timed, effects)
    if not comparison.usable:
        return Page(summary)
    parts = {
        "sides": _sides(timed),
        "forest": _forest(comparison, effects),
        "distributions": _distributions(comparison),
        "ratios": _ratios(comparison, effects),
        "conditions": _conditions(comparison),
        "figures": _figures(timed, effects),
        "kernels": kernels_table(timed),
        "environment": environment_table(timed),
    }
    return Page(summary, "timing", parts)


def _sides(timed: Timed) -> list[dict[str, str]]:
    """What the sides are: one line each, whose colour is theirs in every chart."""
    notes = dict.fromkeys((REFERENCE, CANDIDATE), "")
    if CONTROL in timed.comparison.sides:
        of = timed.comparison.control_of
        code = f"with the code of the {of}" if of else "with the code of neither side"
        notes[CONTROL] = f"the reference under a name without effect, {code}: it shows the noise"
    return [
        {"side": side, "name": side_name(timed, side), "ptxas": ptxas_of(timed, side), "note": note}
        for side, note in notes.items()
    ]


def _figures(timed: Timed, effects: Effects) -> list[Figure]:
    comparison = timed.comparison
    change, control = effects.get(CANDIDATE), effects[FLOOR]
    clocks = [b.conditions.sm_clock_mhz for b in comparison.usable if b.conditions.sm_clock_mhz]
    processes, dropped = count(comparison.processes, "process", "processes"), len(comparison.dropped)
    floor = (UNKNOWN, "no control has a side's code") if control is None else (percent(control.ratio), span(control))
    clock = (value_range(clocks, "MHz"), "") if clocks else (UNKNOWN, "NVML did not answer")
    effect = (
        [] if change is None else [Figure("time, candidate against reference", percent(change.ratio), span(change))]
    )
    return [
        *effect,
        Figure("control: the noise floor", *floor),
        Figure("band of the same", f"±{comparison.band:.1%}", "what counts as no difference"),
        Figure("blocks", number(len(comparison.usable)), f"in {processes}, {dropped} dropped"),
        Figure("SM clock", *clock),
    ]


def _forest(comparison: Comparison, effects: Effects) -> dict[str, Any]:
    """Each side's effect with its interval, over the band."""
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
    """The side whose colour a lane has; a baseline has none."""
    return next((side for side in (CANDIDATE, CONTROL) if label.startswith(side)), "baseline")


def _distributions(comparison: Comparison) -> dict[str, Any]:
    """A histogram of all samples of each side, on one scale. Far outliers are counted and not drawn."""
    samples = {side: [t for b in comparison.usable for t in b.times_us[side]] for side in comparison.sides}
    everything = [t for values in samples.values() for t in values]
    low, high = quantile(everything, 0.002), quantile(everything, 0.99)
    margin = max((high - low) * 0.06, high * 1e-4)
    x = Scale(low - margin, high + margin, _LEFT, _WIDTH - _RIGHT)
    counts = {side: histogram(values, x.low, x.high, _BINS) for side, values in samples.items()}
    tallest = max(max(c) for c in counts.values()) or 1
    lanes = [
        {
            "side": side,
            "base": (index + 1) * (_LANE + 14),
            "bars": _bars(counts[side], tallest, x),
            "median": x(_middle(comparison, side)),
            "median_text": f"{_middle(comparison, side):,.2f} us",
            "outside": sum(not x.low <= t <= x.high for t in samples[side]),
            "samples": len(samples[side]),
        }
        for index, side in enumerate(comparison.sides)
    ]
    bottom = len(lanes) * (_LANE + 14)
    return {
        "height": bottom + 26,
        "bottom": bottom,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "lane": _LANE,
        "bar": round(max(1.0, (x.end - x.start) / _BINS - 1), 2),
        "lanes": lanes,
        "ticks": x.ticks(8),
    }


def _bars(counts: Sequence[int], tallest: int, x: Scale) -> list[dict[str, Any]]:
    """The bars of a histogram. Empty ones are left out."""
    width, step = (x.end - x.start) / _BINS, (x.high - x.low) / _BINS
    return [
        {
            "x": round(x.start + i * width, 2),
            "height": round(_LANE * n / tallest, 2),
            "count": n,
            "low": f"{x.low + i * step:,.2f}",
        }
        for i, n in enumerate(counts)
        if n
    ]


def _middle(comparison: Comparison, side: str) -> float:
    """The median of the blocks' medians, in microseconds."""
    return statistics.median(block.median_us(side) for block in comparison.usable)


def _ratios(comparison: Comparison, effects: Effects) -> dict[str, Any]:
    """The paired ratios of each block, candidate and control, in the order in which the blocks were taken."""
    points = _paired(comparison, "candidate", CANDIDATE, REFERENCE)
    if effects[FLOOR] is not None and comparison.control_of is not None:
        points += _paired(comparison, "control", CONTROL, comparison.control_of)
    band = comparison.band * 100
    values = [point["y"] for point in points] + [-band, band]
    margin = (max(values) - min(values)) * 0.08
    height = 220
    x = Scale(-0.5, len(comparison.blocks) - 0.5, 70, _WIDTH - _RIGHT)
    y = Scale(min(values) - margin, max(values) + margin, height, 8)
    effect = effects.get(CANDIDATE)
    interval = None if effect is None else [y((end - 1) * 100) for end in (effect.high, effect.low, effect.ratio)]
    starts = [i for i, (before, block) in enumerate(pairwise(comparison.blocks), 1) if block.process != before.process]
    return {
        "height": height + 34,
        "bottom": height,
        "left": 70,
        "right": _WIDTH - _RIGHT,
        "band": (y(band), y(-band)),
        "zero": y(0),
        "effect": interval,
        "ticks": y.ticks(5, percent=True),
        "borders": [x(index - 0.5) for index in starts] if len(starts) <= _MOST_BORDERS else [],
        "points": [point | {"x": x(point["x"]), "y": y(point["y"])} for point in points],
        "blocks": len(comparison.blocks),
    }


def _paired(comparison: Comparison, name: str, top: str, bottom: str) -> list[dict[str, Any]]:
    """A side against another in each block: x is the block's number, y the difference in percent."""
    points = []
    for index, block in enumerate(comparison.blocks):
        value = (block.median_us(top) / block.median_us(bottom) - 1) * 100
        text = f"block {index + 1}, process {block.process + 1}: {value:+.3f}%"
        points.append({"x": index, "y": value, "side": name, "fit": block.conditions.unfit is None, "text": text})
    return points


# --- the GPU over the blocks ---------------------------------------------------------------------


def _conditions(comparison: Comparison) -> list[dict[str, Any]]:
    """Clock, temperature and power over the blocks, and the clock during each side's samples, as far as known."""
    blocks = comparison.blocks
    unfit = [i for i, block in enumerate(blocks) if block.conditions.unfit is not None]
    charts = [
        _small_chart(title, [getattr(block.conditions, field) for block in blocks], unfit)
        for title, field in _MEASURED.items()
    ]
    for side in (REFERENCE, CANDIDATE):
        clocks = [block.clock_mhz.get(side) for block in blocks]
        charts.append(_small_chart(f"SM clock during the {side}, MHz", clocks, (), side))
    return [chart for chart in charts if chart is not None]


def _small_chart(
    title: str, values: Sequence[float | None], unfit: Sequence[int], side: str = ""
) -> dict[str, Any] | None:
    """A value over the blocks; None if fewer than two blocks have one.

    unfit: blocks that do not count. side: whose colour it has.
    """
    points = [(float(i), float(value)) for i, value in enumerate(values) if value is not None]
    if len(points) < 2:
        return None
    low, high = min(v for _, v in points), max(v for _, v in points)
    spread, middle = max(high - low, abs(high) * 0.02, 1.0), (high + low) / 2
    x = Scale(0, len(values) - 1, 46, 326)
    y = Scale(middle - spread * 0.7, middle + spread * 0.7, 84, 8)
    return {
        "title": title,
        "side": side,
        "range": f"{low:,.0f} throughout" if low == high else f"{low:,.0f} to {high:,.0f}",
        "path": line(points, x, y),
        "dots": [(x(i), y(v), f"block {i + 1:.0f}: {v:,.0f}") for i, v in points] if len(points) <= _MOST_DOTS else [],
        "ticks": y.ticks(3),
        "unfit": [x(float(i)) for i in unfit],
    }
