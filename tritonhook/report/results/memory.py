"""Results of `mem watch` and `mem compare`: the GPU memory of watched programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Whole, like
from tritonhook.memory.prediction import SYSCALL_STACK
from tritonhook.memory.timeline import Attribution, GrowthCause, Mark, MemorySample, MemoryTimeline, Snapshot
from tritonhook.report.result import MIB, UNKNOWN, Result, Summary, Table, Tone, both, number, size

_SMALL = 16 * MIB  # bytes; smaller growth is ignored
_MOST_MARKS, _MOST_BETWEEN = 20, 3
_USED, _TORCH = ("used, at the peak", "growth over the start"), ("allocated (torch)", "reserved (torch)")
_VARIANT_ROWS = (*_USED, *_TORCH, "local-memory pool")


class Cause(Fields):
    """One cause of growth. source: what measured the number. detail: e.g. the kernel."""

    name: str
    bytes: Whole | None
    source: str
    detail: str | None

    @classmethod
    def of(cls, part: GrowthCause) -> Cause:
        return cls(part.name, part.bytes, part.source, part.detail or None)


class Causes(Fields):
    """The growth and its causes. source: what measured the growth. unexplained_bytes: growth without a known cause.
    explained: whether `unexplained_bytes` is small; null: not known."""

    growth_bytes: Whole | None
    source: str | None
    parts: tuple[Cause, ...]
    unexplained_bytes: Whole | None
    explained: bool | None

    @classmethod
    def of(cls, told: Attribution) -> Causes:
        parts = tuple(map(Cause.of, told.parts))
        return cls(told.growth_bytes, told.source or None, parts, told.unexplained_bytes, told.is_explained)


class ExplainedTimeline(Fields):
    """The memory of one GPU while one process was watched, with the causes of its growth.

    device: UUID of the GPU. name, arch, total_bytes, resident_threads: properties of the GPU. period_ns: time between
    two samples. duration_ns: how long the process was watched. process: its id. samples: those that differ from their
    predecessor, and one a second. marks: loads, first launches, and first calls of torch operators. notes: what is
    missing. torch_peak_allocated_bytes, torch_peak_reserved_bytes: torch's own peaks. outside_allocators_bytes: growth
    outside the allocators, which `--fail-over` limits. explanation: cause and remedy as sentences.
    """

    device: str
    name: str
    total_bytes: Count | None
    resident_threads: Count | None
    period_ns: Count
    duration_ns: Count
    start: Snapshot
    end: Snapshot
    samples: tuple[MemorySample, ...]
    marks: tuple[Mark, ...]
    notes: tuple[str, ...]
    process: Count | None
    torch_peak_allocated_bytes: Count | None
    torch_peak_reserved_bytes: Count | None
    arch: Count | None
    attribution: Causes
    peak_bytes: Count | None
    outside_allocators_bytes: Whole | None
    explanation: tuple[str, ...]
    format: Literal[1] = 1

    @classmethod
    def of(cls, timeline: MemoryTimeline) -> ExplainedTimeline:
        return cls(
            **{field.name: getattr(timeline, field.name) for field in fields(MemoryTimeline)},
            attribution=Causes.of(timeline.attribution()),
            peak_bytes=None if timeline.peak is None else timeline.peak.used_bytes,
            outside_allocators_bytes=timeline.outside_allocators_bytes,
            explanation=tuple(explain(timeline)),
        )


class Memory(Result, tag="memory"):
    """A watched program. notes: what is missing. timelines: one for each process and GPU."""

    verbs: ClassVar = "mem watch"

    notes: tuple[str, ...]
    timelines: tuple[ExplainedTimeline, ...]

    @classmethod
    def of(cls, timelines: Sequence[MemoryTimeline], notes: Sequence[str] = ()) -> Memory:
        return cls(tuple(notes), tuple(map(ExplainedTimeline.of, timelines)))

    def values(self) -> list[MemoryTimeline]:
        """Convert to MemoryTimelines."""
        return [like(timeline, MemoryTimeline) for timeline in self.timelines]

    def summary(self) -> Summary:
        """Summarise what grew outside the allocators, and why."""
        timelines = self.values()
        notes = (*self.notes, *(f"missing: {note}" for timeline in timelines for note in timeline.notes))
        if not timelines:
            return Summary("GPU memory", "", "nothing was watched", Tone.UNSURE, (), (), notes)
        facts = dict.fromkeys(fact for timeline in timelines for fact in explain(timeline))
        tables = [table for t in timelines for table in _tables(t, title_of(t) if len(timelines) > 1 else "")]
        subject = ", ".join(dict.fromkeys(t.name for t in timelines))
        return Summary("GPU memory", subject, *_verdict(timelines), tuple(facts), tuple(tables), notes)


def _verdict(timelines: Sequence[MemoryTimeline]) -> tuple[str, Tone]:
    outside = max((t.outside_allocators_bytes for t in timelines), key=lambda grown: grown or 0)
    if outside is None:
        return "not known what grew outside the allocators", Tone.UNSURE
    if outside > _SMALL:
        return f"{size(outside)} that no allocator shows", Tone.BAD
    explained = all(t.attribution().is_explained is not False for t in timelines)
    return "almost nothing outside the allocators", Tone.GOOD if explained else Tone.UNSURE


def explain(timeline: MemoryTimeline) -> list[str]:
    """Explain the growth in sentences: cause and remedy if the local-memory pool grew, and how much growth no watched
    event explains."""
    sentences = []
    raised = [
        m
        for m in timeline.marks
        if m.kind != "load" and m.stack_growth_bytes and m.before is not None and m.after is not None
    ]
    for mark in raised[-1:]:
        before, after = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes  # type: ignore[union-attr]
        sentences.append(
            f"Cause: the {event(mark)} of {mark.kernel} raised the stack from {number(before)} to {number(after)} "
            f"bytes per thread, and the driver reserved {size(mark.growth_bytes)} for all threads the GPU can hold."
        )
        if _is_syscall_stack(timeline.arch, after):
            sentences.append(
                "Remedy: use `tritonhook run --rewrite tma-cta`, or Triton 3.7 or newer. This is the stack of a driver "
                "call on sm_12x, to which Triton 3.4 to 3.6 compile a TMA load."
            )
        else:
            sentences.append(f"Remedy: use smaller local arrays, fewer spills or shorter call chains in {mark.kernel}.")
    attribution = timeline.attribution()
    if attribution.is_explained is False:
        between = [f"{size(grown)} between {a} and {b}" for grown, a, b in timeline.between()[:_MOST_BETWEEN]]
        where = f": {', '.join(between)}" if between else ""
        sentences.append(
            f"Not explained: {size(attribution.unexplained_bytes)}; no watched event accounts for it{where}."
        )
    return sentences


def _is_syscall_stack(arch: int | None, limit: int | None) -> bool:
    """Whether a stack limit (bytes per thread) is one that the driver call of a TMA load sets on sm_12x."""
    if arch is None or arch // 10 != 12 or limit is None:
        return False
    return min(SYSCALL_STACK.values()) <= limit <= max(SYSCALL_STACK.values()) + 512


# --- tables ----------------------------------------------------------------------------------------


def title_of(timeline: MemoryTimeline) -> str:
    process = "" if timeline.process is None else f", process {timeline.process}"
    return f"{timeline.name}{process}"


def _tables(timeline: MemoryTimeline, named: str) -> list[Table]:
    tables = [parts_table(timeline, named), _watched_table(timeline, named)]
    marks = [m for m in timeline.marks if (m.growth_bytes or 0) > 0 or m.stack_growth_bytes or m.note]
    return [*tables, _marks_table(marks, named)] if marks else tables


def parts_table(timeline: MemoryTimeline, named: str = "") -> Table:
    """Show the causes of the growth. named: the process and GPU, if there are several."""
    attribution = timeline.attribution()
    rows = [(p.name, size(p.bytes), p.detail, p.source) for p in attribution.parts]
    rows.append(("unexplained", size(attribution.unexplained_bytes), "", "the growth less the parts above"))
    rows.append(("growth", size(attribution.growth_bytes), "", attribution.source or "not measured at both ends"))
    return Table(
        _titled("Where it went", named), ("cause", "size", "which", "how it is known"), tuple(rows), 1, words=(2, 3)
    )


def _watched_table(timeline: MemoryTimeline, named: str) -> Table:
    peak = timeline.peak
    rows = [("GPU", timeline.device), ("process", UNKNOWN if timeline.process is None else str(timeline.process))]
    rows.append(("watched for", f"{timeline.duration_ns / 1e9:,.1f} s"))
    if peak is not None:
        rows.append(("peak in use", f"{size(peak.used_bytes)} of {size(timeline.total_bytes)}, by {peak.source}"))
    launches = len(timeline.launches)
    took = sum((m.growth_bytes or 0) > 0 for m in timeline.launches)
    rows.append(("first launches", f"{launches:,}, {took:,} of them took memory"))
    return Table(_titled("Watched", named), ("", ""), tuple(rows), 2)


def _marks_table(marks: Sequence[Mark], named: str) -> Table:
    chosen = sorted(marks, key=lambda m: -(m.growth_bytes or 0))[:_MOST_MARKS]
    rows = tuple(
        (f"{m.t_ns / 1e9:.3f}", event(m), m.kernel, size(m.growth_bytes), stack_limits(m), m.note or "")
        for m in sorted(chosen, key=lambda m: m.t_ns)
    )
    title = "Events that took memory"
    if len(marks) > len(rows):
        title += f", the {len(rows)} largest of {len(marks):,}"
    columns = ("s", "event", "kernel", "growth", "stack limit, bytes", "note")
    return Table(_titled(title, named), columns, rows, 0, words=(1, 2, 5))


def event(mark: Mark) -> str:
    return {"load": "loaded", "launch": "first launch", "operator": "first call"}[mark.kind]


def stack_limits(mark: Mark) -> str:
    """Format the stack limit before and after an event, in bytes per thread."""
    if mark.before is None or mark.after is None:
        return UNKNOWN
    return both(mark.before.stack_limit_bytes, mark.after.stack_limit_bytes)


def _titled(title: str, named: str) -> str:
    return f"{title}: {named}" if named else title


# --- variants ------------------------------------------------------------------------------------


class VariantMemory(Fields):
    """Memory of one variant. The figures are those of the process and GPU with the largest growth; null: no source
    measures it. pool_bytes: growth of the local-memory pool."""

    used_bytes: Whole | None
    growth_bytes: Whole | None
    torch_allocated_bytes: Count | None
    torch_reserved_bytes: Count | None
    pool_bytes: Whole | None
    timelines: tuple[ExplainedTimeline, ...]

    @classmethod
    def of(cls, timelines: Sequence[MemoryTimeline]) -> VariantMemory:
        told = tuple(map(ExplainedTimeline.of, timelines))
        each = (cls._of(timeline, told) for timeline in timelines)
        return max(each, key=lambda variant: variant.growth_bytes or 0, default=cls(None, None, None, None, None, told))

    @classmethod
    def _of(cls, timeline: MemoryTimeline, told: tuple[ExplainedTimeline, ...]) -> VariantMemory:
        """Build from one timeline of a variant. told: the timelines of all its processes and GPUs."""
        start, attribution, reading = timeline.start.used, timeline.attribution(), timeline.end.reading
        ends = [s.used_bytes for s in timeline.samples if s.source == attribution.source]
        if attribution.source in timeline.end.used:
            ends.append(timeline.end.used[attribution.source])
        used = max(ends, default=None)
        pool = attribution.part("local-memory pool")
        return cls(
            used_bytes=used,
            growth_bytes=None if used is None or attribution.source not in start else used - start[attribution.source],
            torch_allocated_bytes=timeline.torch_peak_allocated_bytes,
            torch_reserved_bytes=timeline.torch_peak_reserved_bytes,
            pool_bytes=pool.bytes if pool is not None else 0 if reading is not None else None,
            timelines=told,
        )

    @property
    def figures(self) -> tuple[int | None, ...]:
        """Figures in the order of `_VARIANT_ROWS`."""
        torch = self.torch_allocated_bytes, self.torch_reserved_bytes
        return self.used_bytes, self.growth_bytes, *torch, self.pool_bytes


class Variants(Result, tag="memory variants"):
    """A program run in several variants. variants: by name."""

    verbs: ClassVar = "mem compare"

    variants: Annotated[dict[str, VariantMemory], Meta(min_length=1)]

    @classmethod
    def of(cls, variants: Mapping[str, Sequence[MemoryTimeline]]) -> Variants:
        return cls({name: VariantMemory.of(timelines) for name, timelines in variants.items()})

    def summary(self) -> Summary:
        """Show the memory of each variant, side by side."""
        columns = zip(*(variant.figures for variant in self.variants.values()), strict=True)
        rows = tuple((label, *map(size, values)) for label, values in zip(_VARIANT_ROWS, columns, strict=True))
        table = Table("Variants", ("", *self.variants), rows)
        return Summary("GPU memory", " against ".join(self.variants), *self._verdict(), (), (table,))

    def _verdict(self) -> tuple[str, Tone]:
        grown = {name: v.growth_bytes for name, v in self.variants.items() if v.growth_bytes is not None}
        if len(grown) < len(self.variants):
            return "not known what grew", Tone.UNSURE
        most = max(grown, key=lambda name: grown[name])
        more = grown[most] - min(grown.values())
        if more > _SMALL:
            return f"the variant {most} takes {size(more)} more", Tone.CHANGED
        return "the variants take the same memory", Tone.GOOD
