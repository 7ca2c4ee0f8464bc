"""Pages of GPU memory: a watched run, variants side by side, and a prediction. From their JSON documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.memory.timeline import Attribution, Mark, MemorySample, MemoryTimeline
from tritonhook.report.memory import explain
from tritonhook.report.pages.charts import Scale, decimals, line, thin
from tritonhook.report.pages.common import MIB, UNKNOWN, Page, Summary, Table, Tone, count, number, size

_COLUMNS = 900  # of pixels in a chart: more points than four of each cannot be seen
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 1000, 64, 12, 26, 300
_FLAGS = 12  # marks with a number of their own in the chart
_MOST_MARKS = 400


def timelines_of(document: Mapping[str, Any]) -> list[MemoryTimeline]:
    """Raises KeyError, TypeError or ValueError where the document is none. Fields of newer versions are left out."""
    known = MemoryTimeline.__dataclass_fields__
    given = document.get("timelines", [document])  # one timeline by itself
    return [MemoryTimeline.from_json({k: v for k, v in item.items() if k in known}) for item in given]


def memory_page(document: Mapping[str, Any]) -> Page:
    timelines = timelines_of(document)
    parts = {"timelines": [_timeline(t, number_) for number_, t in enumerate(timelines)]}
    data = {"timelines": [part["points"] for part in parts["timelines"]]}
    return Page(memory_summary(document), "memory", parts, data)


def memory_summary(document: Mapping[str, Any]) -> Summary:
    timelines = timelines_of(document)
    notes = tuple(map(str, document.get("notes") or ())) + tuple(
        f"missing: {note}" for timeline in timelines for note in timeline.notes
    )
    if not timelines:
        return Summary("GPU memory", "", "nothing was watched", Tone.UNSURE, (), (), notes)
    worst = max(timelines, key=lambda t: t.outside_allocators_bytes or 0)
    outside = worst.outside_allocators_bytes
    explained = [t.attribution().is_explained for t in timelines]
    if outside is None:
        verdict, tone = "not known what grew outside the allocators", Tone.UNSURE
    elif outside > 16 * MIB:
        verdict, tone = f"{size(outside)} that no allocator shows", Tone.BAD
    else:
        verdict, tone = "next to nothing outside the allocators", Tone.GOOD
    facts = [fact for timeline in timelines for fact in explain(timeline)]
    if False in explained and tone is Tone.GOOD:
        tone = Tone.UNSURE
    tables = tuple(_parts_table(t, len(timelines) > 1) for t in timelines)
    subject = ", ".join(dict.fromkeys(t.name for t in timelines))
    return Summary("GPU memory", subject, verdict, tone, tuple(dict.fromkeys(facts)), tables, notes)


def _title(timeline: MemoryTimeline) -> str:
    process = "" if timeline.process is None else f", process {timeline.process}"
    return f"{timeline.name}{process}"


def _parts_table(timeline: MemoryTimeline, named: bool) -> Table:
    attribution = timeline.attribution()
    rows = [(p.name, size(p.bytes), p.detail, p.source) for p in attribution.parts]
    rows.append(("unexplained", size(attribution.unexplained_bytes), "", "the growth less the parts above"))
    rows.append(("growth", size(attribution.growth_bytes), "", attribution.source or "no source saw both ends"))
    title = f"Where it went: {_title(timeline)}" if named else "Where it went"
    return Table(title, ("cause", "size", "which", "how it is known"), tuple(rows), words=(2, 3))


# --- one timeline --------------------------------------------------------------------------------


def _timeline(timeline: MemoryTimeline, index: int) -> dict[str, Any]:
    attribution = timeline.attribution()
    chart = _chart(timeline)
    return {
        "index": index,
        "title": _title(timeline),
        "device": timeline.device,
        "figures": _figures(timeline, attribution),
        "chart": chart,
        "waterfall": _waterfall(attribution),
        "parts": _parts_table(timeline, False),
        "predictions": _predictions(timeline),
        "marks": _marks(timeline),
        "more_marks": max(0, len(timeline.marks) - _MOST_MARKS),
        "explain": explain(timeline),
        "points": None if chart is None else chart.pop("points"),
    }


def _figures(timeline: MemoryTimeline, attribution: Attribution) -> list[dict[str, str]]:
    peak = timeline.peak
    return [
        {
            "label": "growth",
            "value": size(attribution.growth_bytes),
            "note": attribution.source or "no source saw both ends",
        },
        {
            "label": "outside the allocators",
            "value": size(timeline.outside_allocators_bytes),
            "note": "pool, first launches, unexplained",
        },
        {
            "label": "peak in use",
            "value": UNKNOWN if peak is None else size(peak.used_bytes),
            "note": f"of {size(timeline.total_bytes)}",
        },
        {
            "label": "torch, at its peak",
            "value": size(timeline.torch_peak_reserved_bytes),
            "note": f"reserved; {size(timeline.torch_peak_allocated_bytes)} allocated",
        },
        {
            "label": "watched",
            "value": f"{timeline.duration_ns / 1e9:,.2f} s",
            "note": f"{count(len(timeline.samples), 'sample')}, every {timeline.period_ns / 1e6:g} ms",
        },
    ]


def _chart(timeline: MemoryTimeline) -> dict[str, Any] | None:
    """Use over time with torch's share, the stack limit, and marks; None without samples."""
    samples = _of_one_source(timeline)
    if not samples:
        return None
    end = max(timeline.duration_ns, samples[-1].t_ns, *(m.t_ns for m in timeline.marks), 1) / 1e9
    used = [(s.t_ns / 1e9, float(s.used_bytes)) for s in samples]
    used.append((end, used[-1][1]))
    series = {"used": used}
    for name, field in (("torch reserved", "torch_reserved_bytes"), ("torch allocated", "torch_allocated_bytes")):
        points = [(s.t_ns / 1e9, float(v)) for s in samples if (v := getattr(s, field)) is not None]
        if points:
            series[name] = [*points, (end, points[-1][1])]
    highest = max(v for points in series.values() for _, v in points)
    unit, divisor = ("GiB", 1 << 30) if highest >= 4 << 30 else ("MiB", MIB)
    x = Scale(0, end, _LEFT, _WIDTH - _RIGHT)
    y = Scale(0, highest * 1.06 / divisor or 1, _TOP + _HEIGHT, _TOP)
    drawn = {name: thin(points, _COLUMNS) for name, points in series.items()}
    paths = {n: line([(t, v / divisor) for t, v in p], x, y, steps=True) for n, p in drawn.items()}
    ticks, times = y.ticks(5), x.ticks(8)
    places, time_places = decimals([v for v, _ in ticks]), decimals([v for v, _ in times])
    growing = sorted(
        (m for m in timeline.marks if (m.growth_bytes or 0) > 0 or m.stack_growth_bytes),
        key=lambda m: -(m.growth_bytes or 0),
    )[:_FLAGS]
    numbered = {id(mark): number_ + 1 for number_, mark in enumerate(sorted(growing, key=lambda m: m.t_ns))}
    levels = _levels([(id(m), x(m.t_ns / 1e9)) for m in sorted(growing, key=lambda m: m.t_ns)])
    return {
        "height": _TOP + _HEIGHT + 34,
        "top": _TOP,
        "bottom": _TOP + _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - _RIGHT,
        "unit": unit,
        "area": f"{paths['used']}V{_TOP + _HEIGHT}H{x(drawn['used'][0][0]):g}Z",
        "paths": paths,
        "ticks": [(f"{v:,.{places}f}", at) for v, at in ticks],
        "times": [(f"{v:,.{time_places}f}", at) for v, at in times],
        "limit": _limit_path(timeline, x, end),
        "marks": [
            {
                "x": x(m.t_ns / 1e9),
                "level": levels.get(id(m), 0),
                "kind": m.kind,
                "number": numbered.get(id(m)),
                "text": f"{_event(m)} at {m.t_ns / 1e9:.3f} s: {m.kernel[:200]}, {size(m.growth_bytes)}",
            }
            for m in sorted(timeline.marks, key=lambda m: id(m) in numbered)[-_MOST_MARKS:]
        ],
        "samples": len(samples),
        "source": samples[0].source,
        "thinned": len(drawn["used"]) < len(used),
        "legend": list(paths),
        "points": {
            "end": end,
            "left": _LEFT,
            "right": _WIDTH - _RIGHT,
            "unit": unit,
            "series": [[n, [[round(t, 6), round(v / divisor, 4)] for t, v in p]] for n, p in drawn.items()],
        },
    }


def _of_one_source(timeline: MemoryTimeline) -> tuple[MemorySample, ...]:
    """The samples of the source that the growth is told by, else of the most frequent: sources count differently, and
    a line through several would show steps that nothing took."""
    sources = Counter(sample.source for sample in timeline.samples)
    if not sources:
        return ()
    wanted = timeline.attribution().source
    chosen = wanted if wanted in sources else sources.most_common(1)[0][0]
    return tuple(sample for sample in timeline.samples if sample.source == chosen)


def _levels(flags: Sequence[tuple[int, float]]) -> dict[int, int]:
    """Flags that would lie on each other go to rows of their own."""
    ends: list[float] = []
    found = {}
    for key, at in flags:
        level = next((n for n, end in enumerate(ends) if at - end >= 20), len(ends))
        ends[level : level + 1] = [at]
        found[key] = level
    return found


def _limit_path(timeline: MemoryTimeline, x: Scale, end: float) -> dict[str, Any] | None:
    """The context's stack limit per thread, in a strip of its own."""
    points = [
        (m.t_ns / 1e9, float(r.stack_limit_bytes))
        for m in sorted(timeline.marks, key=lambda m: m.t_ns)
        for r in (m.before, m.after)
        if r is not None and r.stack_limit_bytes is not None
    ]
    if not points:
        return None
    values = [v for _, v in points]
    y = Scale(0, max(values) * 1.1, 56, 6)
    return {
        "path": line([*points, (end, values[-1])], x, y, steps=True),
        "low": f"{min(values):,.0f}",
        "high": f"{max(values):,.0f}",
        "high_y": y(max(values)),
        "constant": min(values) == max(values),
    }


def _waterfall(attribution: Attribution) -> dict[str, Any] | None:
    """From nothing to the growth, one step for each cause; None where the growth is not known."""
    if attribution.growth_bytes is None:
        return None
    steps = [(p.name, p.bytes or 0, p.detail or p.source) for p in attribution.parts]
    steps.append(("unexplained", attribution.unexplained_bytes or 0, "the growth less the parts above"))
    bars, level, levels = [], 0, [0]
    for name, amount, detail in steps:
        bars.append((name, level, level + amount, amount, detail))
        level += amount
        levels.append(level)
    low, high = min(levels), max(*levels, 1)
    x = Scale(min(0, low), high, 210, 860)
    rows = []
    for index, (name, start, end, amount, detail) in enumerate(bars):
        left, right = sorted((x(start), x(end)))
        rows.append(
            {
                "name": name,
                "y": 10 + 30 * index,
                "x": left,
                "width": max(1.5, right - left),
                "end": x(end),
                "text": size(amount),
                "detail": detail,
                "class": _PART_CLASS.get(name, "other") if amount >= 0 else "shrinks",
            }
        )
    total = 10 + 30 * len(rows)
    return {
        "rows": rows,
        "zero": x(0),
        "total": {
            "y": total,
            "x": min(x(0), x(level)),
            "width": max(1.5, abs(x(level) - x(0))),
            "text": size(attribution.growth_bytes),
        },
        "height": total + 34,
    }


_PART_CLASS = {
    "context": "context",
    "modules": "modules",
    "torch reserved": "torch",
    "local-memory pool": "pool",
    "local-memory pool, other kernels": "pool",
    "buffers of first launches": "pool",
    "unexplained": "unexplained",
}


def _predictions(timeline: MemoryTimeline) -> dict[str, Any] | None:
    """What the formula says of each rise of the stack limit, beside what was taken. None where nothing rose, or the
    GPU's threads are not known."""
    threads = timeline.resident_threads
    raised = [m for m in timeline.launches if m.stack_growth_bytes and m.after is not None and m.before is not None]
    if not threads or not raised:
        return None
    rows = []
    for mark in raised:
        assert mark.before is not None and mark.after is not None
        before, after = mark.before.stack_limit_bytes or 0, mark.after.stack_limit_bytes or 0
        predicted = max(0, after - before) * threads  # footprint.net_growth, with the threads that the driver said
        measured = mark.growth_bytes
        off = None if measured is None or not predicted else (measured - predicted) / predicted * 100
        rows.append((mark, before, after, predicted, measured, off))
    longest = max(max(p, m or 0) for _, _, _, p, m, _ in rows) or 1
    return {
        "threads": f"{threads:,}",
        "rows": [
            {
                "kernel": mark.kernel,
                "stack": f"{before:,} → {after:,}",
                "predicted": size(predicted),
                "measured": size(measured),
                "off": "" if off is None else f"{off:+.1f}%",
                "predicted_width": 100 * predicted / longest,
                "measured_width": 100 * max(0, measured or 0) / longest,
            }
            for mark, before, after, predicted, measured, off in rows
        ],
    }


def _event(mark: Mark) -> str:
    return {"load": "loaded", "launch": "first launch"}.get(mark.kind, mark.kind)


def _marks(timeline: MemoryTimeline) -> list[dict[str, str]]:
    ordered = sorted(timeline.marks, key=lambda m: (-(m.growth_bytes or 0), m.t_ns))[:_MOST_MARKS]
    return [
        {
            "t": f"{m.t_ns / 1e9:.3f}",
            "event": _event(m),
            "kernel": m.kernel,
            "growth": size(m.growth_bytes),
            "sort": "" if m.growth_bytes is None else str(m.growth_bytes),
            "stack": _stack(m),
            "note": m.note or "",
        }
        for m in sorted(ordered, key=lambda m: m.t_ns)
    ]


def _stack(mark: Mark) -> str:
    if mark.before is None or mark.after is None:
        return UNKNOWN
    a, b = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes
    return number(a) if a == b else f"{number(a)} → {number(b)}"


# --- variants, predictions, fixes ----------------------------------------------------------------

_VARIANT_ROWS = {
    "used_bytes": "used, at the peak",
    "growth_bytes": "growth over the start",
    "torch_allocated_bytes": "allocated (torch)",
    "torch_reserved_bytes": "reserved (torch)",
    "pool_bytes": "local-memory pool",
}


def variants_summary(document: Mapping[str, Any]) -> Summary:
    variants = document["variants"]
    names = list(variants)
    rows = tuple((label, *(size(variants[n][key]) for n in names)) for key, label in _VARIANT_ROWS.items())
    grown = [variants[n]["growth_bytes"] for n in names]
    verdict, tone = "not known what grew", Tone.UNSURE
    if None not in grown:
        most = names[grown.index(max(grown))]
        more = max(grown) - min(grown)
        verdict = f"{most} takes {size(more)} more" if more > 16 * MIB else "the variants take the same memory"
        tone = Tone.CHANGED if more > 16 * MIB else Tone.GOOD
    return Summary("GPU memory", " against ".join(names), verdict, tone, (), (Table("Variants", ("", *names), rows),))


def prediction_summary(document: Mapping[str, Any]) -> Summary:
    gpu, growth = document["gpu"], document["growth_bytes"]
    if growth is None:
        verdict, tone = "not known how much local memory the driver will reserve", Tone.UNSURE
    elif growth["high"] == 0:
        verdict, tone = "no local memory beyond what every context has", Tone.GOOD
    else:
        verdict, tone = f"the driver will reserve {_range(growth, size)}", Tone.CHANGED
    if document.get("failed"):
        tone = Tone.BAD
    facts = [f"cause: {document['cause']}"]
    if document.get("remedy"):
        facts.append(f"remedy: {document['remedy']}")
    if document.get("failed"):
        facts.append(f"above the limit of {size(document['fail_over_bytes'])}")
    rows = tuple(
        (
            str(k["kernel"]),
            number(k["frame_bytes"]),
            UNKNOWN if k["stack_bytes"] is None else _range(k["stack_bytes"], number),
            ", ".join(k["syscalls"]) or "none",
            k["why_unknown"] or "",
        )
        for k in document["kernels"]
    )
    columns = ("kernel", "own frame, bytes", "stack per thread, bytes", "driver calls", "")
    notes = (f"basis: {document['basis']}", f"{gpu['sms']} SMs x {gpu['threads_per_sm']:,} threads: {gpu['source']}")
    return Summary(
        "Memory prediction",
        str(gpu["name"]),
        verdict,
        tone,
        tuple(facts),
        (Table("Kernels", columns, rows, words=(3, 4)),),
        notes,
    )


def _range(bracket: Mapping[str, int], shown: Any) -> str:
    low, high = shown(bracket["low"]), shown(bracket["high"])
    return low if low == high else f"{low} to {high}"


def fix_summary(document: Mapping[str, Any]) -> Summary:
    loads: Sequence[Mapping[str, Any]] = document["loads"]
    stay = [load for load in loads if load["refusal"] is not None]
    verdict = (
        f"{len(loads) - len(stay)} of {count(len(loads), 'TMA load')} changed" if loads else "no TMA load to change"
    )
    tone = Tone.UNSURE if stay or document.get("why_no_effect") else Tone.GOOD
    facts = tuple(f"{load['function']}, line {load['line']}, stays: {load['refusal']}" for load in stay)
    rows = []
    for kernel in document["kernels"]:
        for key, label in (
            ("syscalls", "driver calls"),
            ("registers", "registers"),
            ("stack_bytes", "stack, bytes"),
            ("code_bytes", "code, bytes"),
        ):
            rows.append((str(kernel["kernel"]), label, number(kernel["before"][key]), number(kernel["after"][key])))
    notes = (str(document["why_no_effect"]),) if document.get("why_no_effect") else ()
    table = Table(f"Effect, ptxas {number(document.get('ptxas'))}", ("kernel", "", "before", "after"), tuple(rows), 2)
    return Summary("TMA fix", "", verdict, tone, facts, (table,) if rows else (), notes)
