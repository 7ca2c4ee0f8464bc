"""Values for one GPU's memory during a watch, and the division of its growth into causes. watcher.py records them.

All sizes are in bytes; a value that a source does not have is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

from tritonhook._display import Brief, Notebook
from tritonhook._util.schema import Fields
from tritonhook.memory.prediction import DEFAULT_STACK

_FLOOR = 16 << 20  # bytes of growth that need no explanation: 2 MiB pages, other processes, rounding
_SHARE = 0.03  # fraction of the growth that needs no explanation


@dataclass(frozen=True, slots=True)
class MemorySample:
    """The device's used memory at one moment. t_ns: nanoseconds since the watch began. source: origin of the number,
    e.g. "NVML"."""

    t_ns: int
    used_bytes: int
    source: str
    torch_allocated_bytes: int | None = None
    torch_reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of the current context: stack limit per thread, free memory of the device, torch's allocator."""

    stack_limit_bytes: int | None = None
    free_bytes: int | None = None
    torch_allocated_bytes: int | None = None
    torch_reserved_bytes: int | None = None


MarkKind = Literal["load", "launch", "operator"]


@dataclass(frozen=True, slots=True, repr=False)
class Mark(Brief):
    """A kernel's load or first launch, or the first call of a torch operator. before, after: state of the memory; None
    if it could not be read, and then `note` has the reason. Growth in nested marks is subtracted from `after`."""

    t_ns: int
    kind: MarkKind
    kernel: str
    before: Reading | None = None
    after: Reading | None = None
    note: str | None = None

    @property
    def stack_growth_bytes(self) -> int | None:
        """Rise of the context's stack limit, in bytes per thread."""
        return _difference(self.before, self.after, "stack_limit_bytes")

    @property
    def growth_bytes(self) -> int | None:
        """Growth of device memory in bytes, without the growth of torch's allocator."""
        free = _difference(self.after, self.before, "free_bytes")
        torch = _difference(self.before, self.after, "torch_reserved_bytes")
        return None if free is None else free - (torch or 0)


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot(Brief):
    """State at the start or the end of a watch. used: used bytes by source, the most reliable source first ("NVML",
    "NVML, this process", "cuMemGetInfo"). others_bytes: bytes of other processes. reading: None if the process had no
    context."""

    used: Mapping[str, int]
    others_bytes: int | None
    reading: Reading | None


@dataclass(frozen=True, slots=True)
class GrowthCause:
    """One cause of growth. source: how the number was measured. detail: e.g. names of kernels."""

    name: str
    bytes: int | None
    source: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The growth of a device's memory during a watch, divided into causes. growth_bytes: None if no source was readable
    at both ends."""

    growth_bytes: int | None
    source: str
    parts: tuple[GrowthCause, ...]

    @property
    def unexplained_bytes(self) -> int | None:
        if self.growth_bytes is None:
            return None
        return self.growth_bytes - sum(part.bytes or 0 for part in self.parts)

    @property
    def is_explained(self) -> bool | None:
        """Whether the unexplained rest is at most 16 MiB or 3% of the growth. None if the growth is not known."""
        left = self.unexplained_bytes
        if left is None or self.growth_bytes is None:
            return None
        return abs(left) <= max(_FLOOR, _SHARE * abs(self.growth_bytes))

    def part(self, name: str) -> GrowthCause | None:
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTimeline(Notebook):
    """One GPU during one watch, in one process.

    device: NVML's UUID of the GPU; without NVML, the driver's. resident_threads: maximum number of resident threads on
    the GPU; None if the process had no context. samples: one for each change, and at least one per second. notes:
    missing data, with the reasons. torch_peak_allocated_bytes, torch_peak_reserved_bytes: maxima of torch's allocator.
    arch: compute capability as a number, e.g. 120.
    """

    _shown: ClassVar[tuple[str, ...]] = ("name", "device", "samples", "marks")

    device: str
    name: str
    total_bytes: int | None
    resident_threads: int | None
    period_ns: int
    duration_ns: int
    start: Snapshot
    end: Snapshot
    samples: tuple[MemorySample, ...]
    marks: tuple[Mark, ...]
    notes: tuple[str, ...] = ()
    process: int | None = None
    torch_peak_allocated_bytes: int | None = None
    torch_peak_reserved_bytes: int | None = None
    arch: int | None = None

    @property
    def peak(self) -> MemorySample | None:
        return max(self.samples, key=lambda sample: sample.used_bytes, default=None)

    @property
    def launches(self) -> tuple[Mark, ...]:
        return tuple(mark for mark in self.marks if mark.kind == "launch")

    @property
    def raised(self) -> tuple[Mark, ...]:
        """The first launches and operator calls that raised the stack limit."""
        return tuple(mark for mark in self.marks if mark.kind != "load" and mark.stack_growth_bytes)

    @property
    def outside_allocators_bytes(self) -> int | None:
        """Growth outside the program's allocators: the local-memory pool, buffers of first launches, and unexplained
        growth. None if none of these is known."""
        attribution = self.attribution()
        known = [p.bytes for p in attribution.parts if p.name in (_POOL, _POOL_OTHER, _FIRST) and p.bytes is not None]
        left = attribution.unexplained_bytes
        if not known and left is None:
            return None
        return sum(known) + max(0, left or 0)

    def attribution(self) -> Attribution:
        """Divide the growth by cause: context, modules, operators, local-memory pool, torch, other processes."""
        source = next((name for name in self.start.used if name in self.end.used), "")
        growth = self.end.used[source] - self.start.used[source] if source else None
        torch = (self.start.reading or Reading(torch_reserved_bytes=0), self.end.reading)
        parts = [
            *self._context(source),
            GrowthCause(_MODULES, _total(m.growth_bytes for m in self.marks if m.kind == "load"), _AROUND),
            *self._operators(),
            *self._pool(),
            GrowthCause(_TORCH, _difference(*torch, "torch_reserved_bytes"), "torch.cuda.memory_reserved"),
            *self._others(source),
        ]
        return Attribution(growth, source, tuple(part for part in parts if part.bytes is not None))

    def between(self) -> tuple[tuple[int, str, str], ...]:
        """List growth between successive marks: bytes, and the names of the mark before and after; the largest first.
        Growth between a kernel and an operator is omitted, since the kernel may have run within another operator."""
        read = [m for m in self.marks if m.before is not None and m.after is not None]
        ends = Mark(0, "load", "the start", after=self.start.reading), Mark(0, "launch", "the end", self.end.reading)
        grown = [
            (replace(b, before=a.after, after=b.before).growth_bytes or 0, a.kernel, b.kernel)
            for a, b in pairwise((ends[0], *read, ends[1]))
            if a.kind == "operator" or b.kind != "operator" or a is ends[0]
        ]
        return tuple(sorted((each for each in grown if each[0] > 0), reverse=True))

    def _context(self, source: str) -> list[GrowthCause]:
        """Compute the context's part: memory used before the first mark, if the watch began without a context."""
        first = next((mark.before for mark in self.marks if mark.before is not None), self.end.reading)
        if self.start.reading is not None or first is None or first.free_bytes is None or self.total_bytes is None:
            return []
        if source == "NVML, this process":
            began = self.end.used.get("cuMemGetInfo", 0) - self.end.used[source] + self.start.used[source]
        elif source:
            began = self.start.used[source]
        else:
            return []
        used = self.total_bytes - first.free_bytes - (first.torch_reserved_bytes or 0)
        pool = ((first.stack_limit_bytes or DEFAULT_STACK) - DEFAULT_STACK) * (self.resident_threads or 0)
        seen = any(mark.before is not None for mark in self.marks)
        when = "used before the first kernel was loaded" if seen else "used at the end: no kernel's start was seen"
        maker = next((f"with the first call of {m.kernel}" for m in self.marks[:1] if m.kind == "operator"), "")
        return [GrowthCause(_CONTEXT, max(0, used - began - pool), when, maker if self.marks[0].before is None else "")]

    def _operators(self) -> list[GrowthCause]:
        """Sum the growth in first calls of torch's operators: torch's kernels, cuBLAS, cuDNN. Calls that raised the
        stack limit are counted as local-memory pool instead."""
        marks = [m for m in self.marks if m.kind == "operator" and m.growth_bytes and not m.stack_growth_bytes]
        grown = Counter[str]()
        for mark in marks:
            grown[mark.kernel] += mark.growth_bytes or 0
        names = ", ".join(name for name, _ in grown.most_common(_MOST_NAMES))
        more = f" and {len(grown) - _MOST_NAMES:,} more" if len(grown) > _MOST_NAMES else ""
        return [GrowthCause(_OPERATORS, grown.total(), _AROUND, names + more)] if marks else []

    def _pool(self) -> list[GrowthCause]:
        raised = self.raised
        deepest = max(raised, key=lambda m: (m.after and m.after.stack_limit_bytes) or 0, default=None)
        detail = ""
        if deepest is not None and deepest.after is not None:
            detail = f"{deepest.kernel}, {deepest.after.stack_limit_bytes:,} bytes per thread"
        parts = [GrowthCause(_POOL, _total(m.growth_bytes for m in raised), _AROUND, detail)] if raised else []
        hidden = self._unseen_stack_growth
        if hidden and self.resident_threads is not None:
            what = f"the stack limit rose by {hidden:,} bytes per thread between watched launches"
            parts.append(GrowthCause(_POOL_OTHER, hidden * self.resident_threads, "stack limit x threads", what))
        buffers = [m for m in self.launches if not m.stack_growth_bytes and (m.growth_bytes or 0) > 0]
        if buffers:
            names = ", ".join(dict.fromkeys(m.kernel for m in buffers))
            parts.append(GrowthCause(_FIRST, _total(m.growth_bytes for m in buffers), _AROUND, names))
        return parts

    @property
    def _unseen_stack_growth(self) -> int:
        """Rise of the stack limit outside all marks, caused by kernels that Triton did not launch; bytes per thread."""
        readings = [r for m in self.marks for r in (m.before, m.after)]
        limits = [r.stack_limit_bytes for r in (self.start.reading, *readings, self.end.reading) if r is not None]
        known = [limit for limit in limits if limit is not None]
        if not known:
            return 0
        known = known if self.start.reading is not None else [DEFAULT_STACK, *known]
        seen = sum(max(0, m.stack_growth_bytes or 0) for m in self.marks)
        return max(0, max(known) - known[0] - seen)

    def _others(self, source: str) -> list[GrowthCause]:
        before, after = self.start.others_bytes, self.end.others_bytes
        if before is None or after is None or source == "NVML, this process":
            return []
        return [GrowthCause(_OTHERS, after - before, "NVML's process list at both ends")]


_CONTEXT, _MODULES, _POOL, _TORCH = "context", "modules", "local-memory pool", "torch reserved"
_POOL_OTHER, _FIRST, _OTHERS = "local-memory pool, other kernels", "buffers of first launches", "other processes"
_OPERATORS, _MOST_NAMES = "first calls of torch operators", 4
_AROUND = "cuMemGetInfo before and after"


def _difference(before: Reading | None, after: Reading | None, name: str) -> int | None:
    if before is None or after is None:
        return None
    a, b = getattr(before, name), getattr(after, name)
    return None if a is None or b is None else int(b - a)


def _total(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# --- the file of one process under `tritonhook mem watch` -----------------------------------------


class Watched(Fields):
    """The file of one process of a watched program. notes: missing data. timelines: one for each GPU."""

    notes: tuple[str, ...]
    timelines: tuple[MemoryTimeline, ...]
