"""What the documents of memory timelines and calibrations must look like."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields, Number, Whole


class MemoryReading(Fields):
    """The state of a context; null: not known.

    stack_limit_bytes: per thread. free_bytes: of the device. torch_allocated_bytes, torch_reserved_bytes: torch's
    allocator.
    """

    stack_limit_bytes: Count | None
    free_bytes: Count | None
    torch_allocated_bytes: Count | None
    torch_reserved_bytes: Count | None


class MemoryEnd(Fields):
    """The start or the end of a watch. used: bytes by source. others_bytes: of other processes. reading: null without a
    context."""

    used: dict[str, Count]
    others_bytes: Count | None
    reading: MemoryReading | None


class MemoryPoint(Fields):
    """The device's memory at one moment.

    t_ns: since the watch began. used_bytes: of the device. source: where the number is from. torch_allocated_bytes,
    torch_reserved_bytes: torch's allocator.
    """

    t_ns: Count
    used_bytes: Count
    source: str
    torch_allocated_bytes: Count | None
    torch_reserved_bytes: Count | None


class MemoryMark(Fields):
    """A kernel's load or first launch. t_ns: since the watch began. before, after: null if they could not be read; then
    note: says why."""

    t_ns: Count
    kind: Literal["load", "launch"]
    kernel: str
    before: MemoryReading | None
    after: MemoryReading | None
    note: str | None


class Timeline(Fields):
    """One GPU during one watch.

    device: its UUID. name, arch, total_bytes, resident_threads: the GPU. period_ns, duration_ns, process: the sampling.
    samples: those that differ from the one before, and one a second. marks: loads and first launches. notes: what is
    missing. torch_peak_allocated_bytes, torch_peak_reserved_bytes: torch's own peaks.
    """

    device: str
    name: str
    total_bytes: Count | None
    resident_threads: Count | None
    period_ns: Count
    duration_ns: Count
    start: MemoryEnd
    end: MemoryEnd
    samples: list[MemoryPoint]
    marks: list[MemoryMark]
    notes: list[str]
    process: Count | None
    torch_peak_allocated_bytes: Count | None
    torch_peak_reserved_bytes: Count | None
    arch: Count | None


class Watched(Fields):
    """What one process of a watched program left. notes: what is missing. timelines: one for each GPU."""

    notes: list[str]
    timelines: list[Timeline]


class CalibrationFields(Fields):
    """How one GPU's local-memory pool grows.

    gpu: its name. driver: its CUDA version. bytes_per_stack_byte: the slope. worst_residual_bytes: how far the worst
    point lies off. points: how many were measured.
    """

    gpu: str
    driver: str
    bytes_per_stack_byte: Number
    worst_residual_bytes: Whole
    points: Count


class Calibrations(Fields):
    """The file of calibrations."""

    calibrations: list[CalibrationFields]
