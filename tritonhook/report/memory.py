"""Reports of memory: predictions and watched programs, for terminals, as JSON, and as a trace for Perfetto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tritonhook.cubin.image import Resources
from tritonhook.memory.prediction import MIB, SYSCALL_STACK, Bracket, Prediction, StackNeed
from tritonhook.memory.timeline import Attribution, Mark, MemoryTimeline
from tritonhook.ptx.cta_loads import Site
from tritonhook.report.json import FORMAT
from tritonhook.report.terminal import PlainTable, number

_MOST_KERNELS = 20


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rewrite did to one kernel under one ptxas. code: bytes of instructions."""

    kernel: str
    before: Resources
    after: Resources
    code_before: int
    code_after: int

    @property
    def rows(self) -> tuple[tuple[str, Any, Any], ...]:
        a, b = self.before, self.after
        return (
            ("driver calls", a.syscalls, b.syscalls),
            ("registers", a.registers, b.registers),
            ("stack, bytes per thread", a.stack, b.stack),
            ("code, bytes", self.code_before, self.code_after),
        )


def mib(value: float | None) -> str:
    """Bytes for people: whole MiB from 10 on."""
    if value is None:
        return "not known"
    amount = value / MIB
    return f"{amount:,.0f} MiB" if abs(amount) >= 10 or amount == 0 else f"{amount:,.1f} MiB"


# --- predictions ---------------------------------------------------------------------------------


def render_prediction(prediction: Prediction, fail_over: int | None = None) -> RenderableType:
    """The bracket first, then why and what to do, then the kernels."""
    gpu, growth = prediction.gpu, prediction.growth
    over = fail_over is not None and (growth is None or growth.high > fail_over)
    style = "bold red" if over else "bold yellow" if growth is None or growth.high else "bold green"
    parts: list[RenderableType] = [Text(f"{gpu.name}: {_headline(growth)} (prediction)", style=style)]
    parts.append(Text(f"Cause: {prediction.cause}."))
    if prediction.remedy:
        parts.append(Text(f"Remedy: {prediction.remedy}."))
    parts += [Text(f"Also: {sentence}.") for sentence in _buffers(prediction)]
    if over and fail_over is not None:
        parts.append(Text(f"Above the limit of {mib(fail_over)}.", style="bold red"))
    parts.append(Text(f"Basis: {prediction.basis}.", style="dim"))
    parts.append(Text(f"{gpu.sms} SMs x {gpu.threads_per_sm:,} threads: {gpu.source}.", style="dim"))
    parts.append(_needs_table(prediction))
    return Group(*parts)


def _headline(growth: Bracket | None) -> str:
    if growth is None:
        return "not known how much local memory the driver will reserve"
    if growth.high == 0:
        return "no local memory beyond what every context has"
    amount = mib(growth.low) if growth.low == growth.high else f"{mib(growth.low)} to {mib(growth.high)}"
    return f"the driver will reserve {amount} of local memory"


def _buffers(prediction: Prediction) -> list[str]:
    found = dict.fromkeys(buffer for need in prediction.needs for buffer in need.buffers)
    return [
        f"a {name}, which took {mib(size)} on an H100 with default limits, at load and first launch"
        for name, size in found
    ]


def _needs_table(prediction: Prediction) -> RenderableType:
    ordered = sorted(prediction.needs, key=lambda n: -1 if n.stack is None else -n.stack.high)
    table = PlainTable("kernel", "own frame, bytes", "stack per thread, bytes", "driver calls", padding=(0, 2, 0, 0))
    for need in ordered[:_MOST_KERNELS]:
        table.add_row(need.kernel, number(need.frame), _stack(need), ", ".join(need.syscalls) or "none")
    if len(ordered) > _MOST_KERNELS:
        table.add_row(f"... {len(ordered) - _MOST_KERNELS} more", "", "", "")
    return table


def _stack(need: StackNeed) -> str:
    if need.stack is None:
        return "not known"
    low, high = need.stack.low, need.stack.high
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """`tritonhook mem predict --json`; docs/reference/json.md describes it."""
    deepest = prediction.deepest
    return {
        "format": FORMAT,
        "kind": "memory prediction",
        "gpu": {
            "name": prediction.gpu.name,
            "sms": prediction.gpu.sms,
            "threads_per_sm": prediction.gpu.threads_per_sm,
            "arch": prediction.gpu.arch,
            "source": prediction.gpu.source,
        },
        "growth_bytes": _bracket(prediction.growth),
        "deepest": None if deepest is None else deepest.kernel,
        "cause": prediction.cause,
        "remedy": prediction.remedy,
        "basis": prediction.basis,
        "kernels": [
            {
                "kernel": need.kernel,
                "frame_bytes": need.frame,
                "stack_bytes": _bracket(need.stack),
                "syscalls": list(need.syscalls),
                "buffers": [{"name": name, "default_bytes": size} for name, size in need.buffers],
                "why_unknown": need.why_unknown,
            }
            for need in prediction.needs
        ],
    }


def _bracket(bracket: Bracket | None) -> dict[str, int] | None:
    return None if bracket is None else {"low": bracket.low, "high": bracket.high}


# --- the fix -------------------------------------------------------------------------------------


def render_fix(
    sites: Sequence[Site], effects: Sequence[Effect], ptxas: str | None, why_not: str | None
) -> RenderableType:
    """Which loads change and which stay, then what that did to each kernel."""
    changed, stay = (sum((site.refusal is None) is wanted for site in sites) for wanted in (True, False))
    if not sites:
        parts: list[RenderableType] = [Text("No TMA load to .shared::cluster: nothing to change.", style="bold green")]
    else:
        style = "bold yellow" if stay else "bold green"
        parts = [Text(f"{changed} of {len(sites)} TMA loads to .shared::cta.", style=style)]
    parts += [Text(site.sentence + ".") for site in sites if site.refusal is not None]
    if why_not is not None:
        parts.append(Text(f"The effect is not known: {why_not}", style="yellow"))
    for effect in effects if changed else ():
        table = PlainTable(title=f"{effect.kernel}, ptxas {ptxas}", padding=(0, 2, 0, 0))
        for column in ("", "before", "after"):
            table.add_column(column, justify="left" if column == "" else "right")
        for name, before, after in effect.rows:
            table.add_row(name, number(before), number(after))
        parts.append(table)
    return Group(*parts)


def fix_document(
    sites: Sequence[Site], effects: Sequence[Effect], ptxas: str | None, why_not: str | None, output: str | None
) -> dict[str, Any]:
    """`tritonhook mem fix --json`."""
    return {
        "format": FORMAT,
        "kind": "memory fix",
        "loads": [
            {"function": site.function, "line": site.line, "opcode": site.opcode, "refusal": site.refusal}
            for site in sites
        ],
        "rewritten": sum(site.refusal is None for site in sites),
        "ptxas": ptxas,
        "kernels": [
            {
                "kernel": effect.kernel,
                **{
                    side: {
                        "syscalls": list(resources.syscalls),
                        "registers": resources.registers,
                        "stack_bytes": resources.stack,
                        "code_bytes": code,
                    }
                    for side, resources, code in (
                        ("before", effect.before, effect.code_before),
                        ("after", effect.after, effect.code_after),
                    )
                },
            }
            for effect in effects
        ],
        "why_no_effect": why_not,
        "output": output,
    }


# --- what a watch saw ----------------------------------------------------------------------------

_BAR = 36  # characters of the longest bar
_STEPS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 72


def render_timeline(timeline: MemoryTimeline) -> RenderableType:
    """The waterfall first, then cause and remedy, the timeline, and the kernels that changed something."""
    attribution = timeline.attribution()
    peak, total = timeline.peak, timeline.total_bytes
    process = "" if timeline.process is None else f", process {timeline.process}"
    parts: list[RenderableType] = [
        Text(f"{timeline.name} ({timeline.device}){process}, {timeline.duration_ns / 1e9:.1f} s", style="bold"),
        Text(f"Growth: {mib(attribution.growth_bytes)}{f' by {attribution.source}' if attribution.source else ''}."),
    ]
    if peak is not None:
        parts.append(Text(f"Peak: {mib(peak.used_bytes)} of {mib(total)} in use, by {peak.source}."))
    parts.append(_waterfall(attribution))
    parts += [Text(sentence) for sentence in explain(timeline)]
    if timeline.samples:
        parts.append(Text(_sparkline(timeline)))
    parts.append(_marks_table(timeline))
    parts += [Text(f"Missing: {note}.", style="yellow") for note in timeline.notes]
    return Group(*(part for part in parts if part is not None))


def explain(timeline: MemoryTimeline) -> list[str]:
    """One sentence of cause and one of remedy where the pool grew, and one where growth is not explained."""
    sentences = []
    raised = [m for m in timeline.launches if m.stack_growth_bytes and m.before is not None and m.after is not None]
    for mark in raised[-1:]:
        before, after = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes  # type: ignore[union-attr]
        sentences.append(
            f"Cause: the first launch of {mark.kernel} raised the stack from {number(before)} to {number(after)} bytes "
            f"per thread, and the driver reserved {mib(mark.growth_bytes)} for all threads the GPU can hold."
        )
        if _is_syscall_stack(timeline.arch, after):
            sentences.append(
                "Remedy: that is the stack of a TMA load's driver call on sm_12x (Triton 3.4 to 3.6): "
                "`tritonhook run --fix tma-cta`, or Triton 3.7 and newer."
            )
        else:
            sentences.append(f"Remedy: smaller local arrays, spills or call chains in {mark.kernel}.")
    attribution = timeline.attribution()
    if attribution.is_explained is False:
        sentences.append(f"Not explained: {mib(attribution.unexplained_bytes)}; no watched event accounts for it.")
    return sentences


def _is_syscall_stack(arch: int | None, limit: int | None) -> bool:
    """Whether a GPU of that kind has the driver call, and the limit is one that it was seen to set."""
    if arch is None or arch // 10 != 12 or limit is None:
        return False
    return min(SYSCALL_STACK.values()) <= limit <= max(SYSCALL_STACK.values()) + 512


def _waterfall(attribution: Attribution) -> RenderableType:
    table = PlainTable(padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify)
    left = attribution.unexplained_bytes
    rows = [(p.name, p.bytes, p.source, p.detail) for p in attribution.parts]
    rows.append(("unexplained", left, "the growth less the parts above", ""))
    longest = max((abs(size) for _, size, _, _ in rows if size is not None), default=0) or 1
    for name, size, source, detail in rows:
        bar = "" if size is None else "█" * round(_BAR * abs(size) / longest)
        table.add_row(name, mib(size), bar, f"{detail} ({source})" if detail else f"({source})")
    return table


def _sparkline(timeline: MemoryTimeline) -> str:
    """Use over time, the highest of each column; below the smallest seen there is nothing to see."""
    duration = max(timeline.duration_ns, 1)
    columns: list[int | None] = [None] * _COLUMNS
    for sample in timeline.samples:
        at = min(_COLUMNS - 1, sample.t_ns * _COLUMNS // duration)
        columns[at] = max(columns[at] or 0, sample.used_bytes)
    filled: list[int] = []
    for value in columns:
        filled.append(value if value is not None else filled[-1] if filled else timeline.samples[0].used_bytes)
    low, high = min(filled), max(filled)
    scale = (len(_STEPS) - 2) / ((high - low) or 1)
    line = "".join(_STEPS[1 + round((value - low) * scale)] for value in filled)
    return f"{line}  {mib(low)} to {mib(high)}"


def _marks_table(timeline: MemoryTimeline) -> RenderableType:
    shown = [m for m in timeline.marks if (m.growth_bytes or 0) > 0 or m.stack_growth_bytes or m.note]
    table = PlainTable("s", "event", "kernel", "growth", "stack limit, bytes", padding=(0, 2, 0, 0))
    for mark in shown[:_MOST_KERNELS]:
        table.add_row(f"{mark.t_ns / 1e9:.3f}", _event(mark), mark.kernel, mib(mark.growth_bytes), _limits(mark))
    if len(shown) > _MOST_KERNELS:
        table.add_row("", f"... {len(shown) - _MOST_KERNELS} more", "", "", "")
    return table if shown else Text(f"{len(timeline.launches)} first launches, none took memory.", style="dim")


def _event(mark: Mark) -> str:
    return {"load": "loaded", "launch": "first launch"}.get(mark.kind, mark.kind) + (
        f" ({mark.note})" if mark.note else ""
    )


def _limits(mark: Mark) -> str:
    if mark.before is None or mark.after is None:
        return "not known"
    before, after = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes
    return number(before) if before == after else f"{number(before)} -> {number(after)}"


def timelines_document(timelines: Sequence[MemoryTimeline], notes: Sequence[str] = ()) -> dict[str, Any]:
    """`tritonhook mem watch --json`: each timeline with its attribution."""
    return {
        "format": FORMAT,
        "kind": "memory",
        "notes": list(notes),
        "timelines": [
            timeline.to_json()
            | {
                "attribution": _attribution(timeline.attribution()),
                "peak_bytes": None if timeline.peak is None else timeline.peak.used_bytes,
                "outside_allocators_bytes": timeline.outside_allocators_bytes,
                "explanation": explain(timeline),
            }
            for timeline in timelines
        ],
    }


def _attribution(attribution: Attribution) -> dict[str, Any]:
    return {
        "growth_bytes": attribution.growth_bytes,
        "source": attribution.source or None,
        "parts": [
            {"name": p.name, "bytes": p.bytes, "source": p.source, "detail": p.detail or None}
            for p in attribution.parts
        ],
        "unexplained_bytes": attribution.unexplained_bytes,
        "explained": attribution.is_explained,
    }


def chrome_trace(timelines: Sequence[MemoryTimeline]) -> dict[str, Any]:
    """Chrome's trace format, which Perfetto opens: counters of memory, and an instant event for each mark.

    Times are microseconds since the watch began. One track per process and GPU.
    """
    events: list[dict[str, Any]] = []
    for index, timeline in enumerate(timelines):
        pid = timeline.process if timeline.process is not None else index
        name = f"{timeline.name} ({timeline.device})"
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"GPU memory, process {pid}"}})
        for sample in timeline.samples:
            values = {"used_mib": sample.used_bytes / MIB}
            if sample.torch_reserved_bytes is not None:
                values["torch_reserved_mib"] = sample.torch_reserved_bytes / MIB
            if sample.torch_allocated_bytes is not None:
                values["torch_allocated_mib"] = sample.torch_allocated_bytes / MIB
            events.append({"ph": "C", "name": name, "pid": pid, "ts": sample.t_ns / 1000, "args": values})
        for mark in timeline.marks:
            ts = mark.t_ns / 1000
            arguments: dict[str, Any] = {"growth_mib": None if mark.growth_bytes is None else mark.growth_bytes / MIB}
            arguments |= {"stack_growth_bytes": mark.stack_growth_bytes, "note": mark.note}
            label = f"{_event(mark).partition(' (')[0]}: {mark.kernel}"
            events.append({"ph": "i", "s": "p", "name": label, "pid": pid, "tid": 0, "ts": ts, "args": arguments})
            if mark.after is not None and mark.after.stack_limit_bytes is not None:
                limit = {"bytes_per_thread": mark.after.stack_limit_bytes}
                events.append({"ph": "C", "name": f"stack limit, {name}", "pid": pid, "ts": ts, "args": limit})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


# --- variants side by side -----------------------------------------------------------------------


def render_variants(variants: Mapping[str, Sequence[MemoryTimeline]]) -> RenderableType:
    """The rows of the published table: NVML used, its growth over the start, torch's allocated and reserved."""
    table = PlainTable(padding=(0, 2, 0, 0))
    table.add_column("")
    for name in variants:
        table.add_column(name, justify="right")
    columns = [variant_figures(timelines) for timelines in variants.values()]
    for key, label in _VARIANT_ROWS:
        table.add_row(label, *(_gib(column[key]) for column in columns))
    return table


_VARIANT_ROWS = (
    ("used_bytes", "used, at the peak"),
    ("growth_bytes", "growth over the start"),
    ("torch_allocated_bytes", "allocated (torch)"),
    ("torch_reserved_bytes", "reserved (torch)"),
    ("pool_bytes", "local-memory pool"),
)


def variant_figures(timelines: Sequence[MemoryTimeline]) -> dict[str, int | None]:
    """Of the process and GPU that grew most; None where no source says."""
    figures = [_figures(timeline) for timeline in timelines]
    return max(figures, key=lambda f: f["growth_bytes"] or 0, default=dict.fromkeys(k for k, _ in _VARIANT_ROWS))


def _figures(timeline: MemoryTimeline) -> dict[str, int | None]:
    start, source = timeline.start.used, timeline.attribution().source
    ends = [s.used_bytes for s in timeline.samples if s.source == source]
    if source in timeline.end.used:
        ends.append(timeline.end.used[source])
    used = max(ends, default=None)
    pool = timeline.attribution().part("local-memory pool")
    reading = timeline.end.reading
    return {
        "used_bytes": used,
        "growth_bytes": None if used is None or source not in start else used - start[source],
        "torch_allocated_bytes": timeline.torch_peak_allocated_bytes,
        "torch_reserved_bytes": timeline.torch_peak_reserved_bytes,
        "pool_bytes": pool.bytes if pool is not None else 0 if reading is not None else None,
    }


def _gib(value: int | None) -> str:
    return "not known" if value is None else f"{value / (1 << 30):.3f} GiB"


def variants_document(variants: Mapping[str, Sequence[MemoryTimeline]]) -> dict[str, Any]:
    """`tritonhook mem compare --json`."""
    return {
        "format": FORMAT,
        "kind": "memory variants",
        "variants": {
            name: variant_figures(timelines) | {"timelines": timelines_document(timelines)["timelines"]}
            for name, timelines in variants.items()
        },
    }
