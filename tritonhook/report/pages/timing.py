"""The page of a timed comparison: effects with intervals, every sample, every block, and the state of the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.report.format import UNKNOWN, count, number
from tritonhook.report.pages.charts import Scale, decimals, histogram, line, quantile
from tritonhook.report.summaries.timing import (
    FLOOR,
    Effects,
    effects_of,
    environment_table,
    kernels_table,
    span,
    summarise,
    value_range,
)
from tritonhook.report.summary import Figure, Page
from tritonhook.timing.result import Timed, from_document
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, percent

_WIDTH, _LEFT, _RIGHT = 1000, 130, 20
_BINS = 60
_LANE = 58


def timing_page(document: Mapping[str, Any]) -> Page:
    """Raises UsageError if the document is no timed comparison, or damaged."""
    timed = from_document(document)
    comparison, effects = timed.comparison, effects_of(timed.comparison)
    summary = summarise(timed, effects)
    if not comparison.usable:
        return Page(summary)
    parts = {
        "forest": _forest(comparison, effects),
        "distributions": _distributions(comparison),
        "ratios": _ratios(comparison, effects),
        "conditions": [*_conditions(comparison), *_side_clocks(comparison)],
        "figures": _figures(timed, effects),
        "kernels": kernels_table(timed),
        "environment": environment_table(timed),
    }
    return Page(summary, "timing", parts)


def _figures(timed: Timed, effects: Effects) -> list[Figure]:
    comparison = timed.comparison
    found, control = effects.get(CANDIDATE), effects[FLOOR]
    clocks = [b.conditions.sm_clock_mhz for b in comparison.usable if b.conditions.sm_clock_mhz]
    processes, dropped = count(comparison.processes, "process", "processes"), len(comparison.dropped)
    floor = (UNKNOWN, "no control has a side's code") if control is None else (percent(control.ratio), span(control))
    clock = (value_range(clocks, "MHz"), "") if clocks else (UNKNOWN, "NVML did not answer")
    effect = [] if found is None else [Figure("time, candidate against reference", percent(found.ratio), span(found))]
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
    ticks = x.ticks(8)
    places = decimals([value for value, _ in ticks])
    return {
        "height": height + 26,
        "bottom": height,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "band": (x(-comparison.band * 100), x(comparison.band * 100)),
        "zero": x(0),
        "ticks": [(f"{value:+.{places}f}%" if value else "0", at) for value, at in ticks],
        "lanes": [
            {
                "label": name,
                "y": 28 + 34 * index,
                "low": x((e.low - 1) * 100),
                "high": x((e.high - 1) * 100),
                "mid": x((e.ratio - 1) * 100),
                "text": f"{percent(e.ratio)} ({span(e)})",
                "control": name.startswith("control"),
            }
            for index, (name, e) in enumerate(lanes)
        ],
    }


def _distributions(comparison: Comparison) -> dict[str, Any]:
    """A histogram of all samples of each side, on one scale. Far outliers are counted and not drawn."""
    samples = {side: [t for b in comparison.usable for t in b.times_us[side]] for side in comparison.sides}
    everything = [t for values in samples.values() for t in values]
    low, high = quantile(everything, 0.002), quantile(everything, 0.99)
    margin = max((high - low) * 0.06, high * 1e-4)
    low, high = low - margin, high + margin
    x = Scale(low, high, _LEFT, _WIDTH - _RIGHT)
    counts = {side: histogram(values, low, high, _BINS) for side, values in samples.items()}
    tallest = max(max(c) for c in counts.values()) or 1
    width = (x(high) - x(low)) / _BINS
    lanes = []
    for index, side in enumerate(comparison.sides):
        base = (index + 1) * (_LANE + 14)
        lanes.append(
            {
                "side": side,
                "base": base,
                "bars": [
                    {
                        "x": round(_LEFT + i * width, 2),
                        "height": round(_LANE * c / tallest, 2),
                        "count": c,
                        "low": f"{low + i * (high - low) / _BINS:,.2f}",
                    }
                    for i, c in enumerate(counts[side])
                    if c
                ],
                "median": x(_middle(comparison, side)),
                "median_text": f"{_middle(comparison, side):,.2f} us",
                "outside": sum(not low <= t <= high for t in samples[side]),
                "samples": len(samples[side]),
            }
        )
    bottom = len(lanes) * (_LANE + 14)
    ticks = x.ticks(8)
    places = decimals([value for value, _ in ticks])
    return {
        "height": bottom + 26,
        "bottom": bottom,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "lane": _LANE,
        "bar": round(max(1.0, width - 1), 2),
        "lanes": lanes,
        "ticks": [(f"{value:,.{places}f}", at) for value, at in ticks],
    }


def _middle(comparison: Comparison, side: str) -> float:
    """The median of the blocks' medians, in microseconds."""
    return statistics.median(block.median_us(side) for block in comparison.usable)


def _ratios(comparison: Comparison, effects: Effects) -> dict[str, Any]:
    """The paired ratios of each block, candidate and control, in the order in which the blocks were taken."""
    blocks = [(index, b) for index, b in enumerate(comparison.blocks)]
    series: dict[str, list[tuple[int, float, int, bool]]] = {}
    pairs = [("candidate", CANDIDATE, REFERENCE)]
    if effects[FLOOR] is not None and comparison.control_of is not None:
        pairs.append(("control", CONTROL, comparison.control_of))
    for name, top, bottom in pairs:
        series[name] = [
            (index, (b.median_us(top) / b.median_us(bottom) - 1) * 100, b.process, b.conditions.unfit is None)
            for index, b in blocks
        ]
    band = comparison.band * 100
    values = [v for points in series.values() for _, v, _, _ in points] + [-band, band]
    margin = (max(values) - min(values)) * 0.08
    height = 220
    x = Scale(-0.5, len(blocks) - 0.5, 70, _WIDTH - _RIGHT)
    y = Scale(min(values) - margin, max(values) + margin, height, 8)
    ticks = y.ticks(5)
    places = decimals([value for value, _ in ticks])
    effect = effects.get(CANDIDATE)
    starts = [index for index, b in blocks if index and b.process != blocks[index - 1][1].process]
    many = len(starts) > 12  # processes that take turns: too many borders to draw
    return {
        "height": height + 34,
        "bottom": height,
        "left": 70,
        "right": _WIDTH - _RIGHT,
        "band": (y(band), y(-band)),
        "zero": y(0),
        "effect": None
        if effect is None
        else (y((effect.high - 1) * 100), y((effect.low - 1) * 100), y((effect.ratio - 1) * 100)),
        "ticks": [(f"{value:+.{places}f}%" if value else "0", at) for value, at in ticks],
        "borders": [] if many else [x(index - 0.5) for index in starts],
        "points": [
            {
                "x": x(i),
                "y": y(v),
                "side": name,
                "process": p,
                "fit": fit,
                "text": f"block {i + 1}, process {p + 1}: {v:+.3f}%",
            }
            for name, points in series.items()
            for i, v, p, fit in points
        ],
        "blocks": len(blocks),
    }


def _conditions(comparison: Comparison) -> list[dict[str, Any]]:
    """Clock, temperature and power over the blocks, as far as NVML gave them."""
    wanted = (("SM clock, MHz", "sm_clock_mhz"), ("temperature, °C", "temperature_c"), ("power, W", "power_w"))
    charts = []
    for title, field in wanted:
        points = [
            (float(i), float(value))
            for i, b in enumerate(comparison.blocks)
            if (value := getattr(b.conditions, field)) is not None
        ]
        if len(points) < 2:
            continue
        unfit = [i for i, b in enumerate(comparison.blocks) if b.conditions.unfit is not None]
        charts.append(_small_chart(title, points, len(comparison.blocks), unfit))
    return charts


def _small_chart(
    title: str, points: Sequence[tuple[float, float]], blocks: int, unfit: Sequence[int]
) -> dict[str, Any]:
    """A small chart of a value over the blocks. unfit: blocks that do not count."""
    values = [v for _, v in points]
    spread = max(max(values) - min(values), abs(max(values)) * 0.02, 1.0)
    middle = (max(values) + min(values)) / 2
    x = Scale(0, blocks - 1, 46, 326)
    y = Scale(middle - spread * 0.7, middle + spread * 0.7, 84, 8)
    steady = min(values) == max(values)
    return {
        "title": title,
        "range": f"{values[0]:,.0f} throughout" if steady else f"{min(values):,.0f} to {max(values):,.0f}",
        "path": line(points, x, y),
        "dots": [(x(i), y(v), f"block {i + 1:.0f}: {v:,.0f}") for i, v in points] if len(points) <= 80 else [],
        "ticks": [(f"{value:,g}", at) for value, at in y.ticks(3)],
        "unfit": [x(float(i)) for i in unfit],
    }


def _side_clocks(comparison: Comparison) -> list[dict[str, Any]]:
    """The SM clock during each side's samples, a chart for each side where it is known."""
    charts = []
    for side in (REFERENCE, CANDIDATE):
        clocks = enumerate(block.clock_mhz.get(side) for block in comparison.blocks)
        points = [(float(i), float(mhz)) for i, mhz in clocks if mhz is not None]
        if len(points) > 1:
            charts.append(_small_chart(f"SM clock during the {side}, MHz", points, len(comparison.blocks), ()))
    return charts
