"""HTML page of a watched program's GPU memory: the Summary, and a chart of memory in use over time, with events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tritonhook.memory.timeline import MemorySample, MemoryTimeline
from tritonhook.report.pages.charts import Scale, steps, thin
from tritonhook.report.result import MIB, Page, size
from tritonhook.report.results.memory import Memory, event, title_of

_COLUMNS = 900  # pixel columns of a chart; `thin` keeps at most four points of each
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 1000, 64, 12, 26, 300
_MOST_MARKS = 400


def memory_page(result: Memory) -> Page:
    timelines = result.values()
    charts = [_chart(timeline) for timeline in timelines]
    data = {"timelines": [chart and chart.pop("points") for chart in charts]}
    parts = [{"title": title_of(it), "chart": chart} for it, chart in zip(timelines, charts, strict=True)]
    return Page(result.summary(), "memory", {"timelines": parts}, data)


def _chart(timeline: MemoryTimeline) -> dict[str, Any] | None:
    """Make the chart of one timeline: memory in use, torch's share of it, and the events. Return None without
    samples."""
    samples = _of_one_source(timeline)
    if not samples:
        return None
    end = max(timeline.duration_ns, samples[-1].t_ns, *(m.t_ns for m in timeline.marks), 1) / 1e9
    series = _series(samples, end)
    highest = max(v for points in series.values() for _, v in points)
    unit, divisor = ("GiB", 1 << 30) if highest >= 4 << 30 else ("MiB", MIB)
    x = Scale(0, end, _LEFT, _WIDTH - _RIGHT)
    y = Scale(0, highest * 1.06 / divisor or 1, _TOP + _HEIGHT, _TOP)
    drawn = {n: [(t, v / divisor) for t, v in thin(points, _COLUMNS)] for n, points in series.items()}
    paths = {name: steps(points, x, y) for name, points in drawn.items()}
    of_both = {"left": _LEFT, "right": _WIDTH - _RIGHT, "unit": unit}
    return of_both | {
        "height": _TOP + _HEIGHT + 34,
        "top": _TOP,
        "bottom": _TOP + _HEIGHT,
        "area": f"{paths['used']}V{_TOP + _HEIGHT}H{x(drawn['used'][0][0]):g}Z",
        "paths": paths,
        "ticks": y.ticks(5),
        "times": x.ticks(8),
        "marks": _marks(timeline, x),
        "samples": len(samples),
        "source": samples[0].source,
        "thinned": len(drawn["used"]) < len(series["used"]),
        "legend": list(paths),
        "points": {
            "end": end,
            **of_both,
            "series": [[n, [[round(t, 6), round(v, 4)] for t, v in points]] for n, points in drawn.items()],
        },
    }


def _series(samples: Sequence[MemorySample], end: float) -> dict[str, list[tuple[float, float]]]:
    """Return the series to draw, as points (seconds, bytes): memory in use, reserved by torch, allocated by torch. Each
    series is extended to `end` with its last value."""
    series = {}
    for name in ("used", "torch reserved", "torch allocated"):
        field = f"{name.replace(' ', '_')}_bytes"
        points = [(s.t_ns / 1e9, float(v)) for s in samples if (v := getattr(s, field)) is not None]
        if points:
            series[name] = [*points, (end, points[-1][1])]
    return series


def _marks(timeline: MemoryTimeline, x: Scale) -> list[dict[str, Any]]:
    """Place events on the time axis: at most _MOST_MARKS, those with the largest growth."""
    took = [((m.growth_bytes or 0) > 0 or bool(m.stack_growth_bytes), m) for m in timeline.marks]
    return [
        {
            "x": x(m.t_ns / 1e9),
            "took": grew,
            "kind": m.kind,
            "text": f"{event(m)} at {m.t_ns / 1e9:.3f} s: {m.kernel[:200]}, {size(m.growth_bytes)}",
        }
        for grew, m in sorted(took, key=lambda pair: (pair[0], pair[1].growth_bytes or 0))[-_MOST_MARKS:]
    ]


def _of_one_source(timeline: MemoryTimeline) -> tuple[MemorySample, ...]:
    """Choose the samples of one source: the source from which the growth was computed, or else the most frequent
    source.

    Sources count different things, so a line through samples of several sources would show steps that never happened.
    """
    sources, wanted = [sample.source for sample in timeline.samples], timeline.attribution().source
    chosen = wanted if wanted in sources else next(iter(Counter(sources).most_common(1)), [""])[0]
    return tuple(sample for sample in timeline.samples if sample.source == chosen)
