"""GPU memory: `mem watch`, `mem compare`, `mem predict`, `mem fix`, `mem calibrate`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Whole
from tritonhook.memory.schema import CalibrationFields, Timeline


class Cause(Fields):
    """One cause of growth. source: how the number was found. detail: e.g. which kernel."""

    name: str
    bytes: Whole | None
    source: str
    detail: str | None


class Causes(Fields):
    """The growth in parts. explained: whether the unexplained rest is small; null: not known."""

    growth_bytes: Whole | None
    source: str | None
    parts: list[Cause]
    unexplained_bytes: Whole | None
    explained: bool | None


class ExplainedTimeline(Timeline):
    """A timeline with its causes. outside_allocators_bytes: what `--fail-over` is held against. explanation: cause and
    remedy as sentences."""

    format: Literal[1]
    attribution: Causes
    peak_bytes: Count | None
    outside_allocators_bytes: Whole | None
    explanation: list[str]


class Memory(Fields):
    """A watched program. notes: what is missing. timelines: one for each process and GPU."""

    format: Literal[1]
    kind: Literal["memory"]
    notes: list[str]
    timelines: list[ExplainedTimeline]


class Variant(Fields):
    """What one variant took, in the process and GPU that grew most; null: no source says. pool_bytes: the local-memory
    pool."""

    used_bytes: Whole | None
    growth_bytes: Whole | None
    torch_allocated_bytes: Count | None
    torch_reserved_bytes: Count | None
    pool_bytes: Whole | None
    timelines: list[ExplainedTimeline]


class Variants(Fields):
    """Variants of a program. variants: by name."""

    format: Literal[1]
    kind: Literal["memory variants"]
    variants: Annotated[dict[str, Variant], Meta(min_length=1)]


class Gpu(Fields):
    """A GPU. source: where its figures are from."""

    name: str
    sms: Count
    threads_per_sm: Count
    arch: Count | None
    source: str


class Bracket(Fields):
    """A number of bytes that lies between low and high."""

    low: Count
    high: Count


class Buffer(Fields):
    """A buffer of the driver. default_bytes: what it took with default limits."""

    name: str
    default_bytes: Count


class StackNeed(Fields):
    """What one kernel needs. frame_bytes: its own frame. stack_bytes: with all it calls; null: not known. syscalls:
    driver calls. why_unknown: why the stack is not known."""

    kernel: str
    frame_bytes: Count | None
    stack_bytes: Bracket | None
    syscalls: list[str]
    buffers: list[Buffer]
    why_unknown: str | None


class Prediction(Fields):
    """What the driver will reserve for stacks.

    growth_bytes: null: not known. deepest: the kernel that decides. basis: how it was computed. fail_over_bytes,
    failed: of `--fail-over`.
    """

    format: Literal[1]
    kind: Literal["memory prediction"]
    gpu: Gpu
    growth_bytes: Bracket | None
    deepest: str | None
    cause: str
    remedy: str | None
    basis: str
    kernels: list[StackNeed]
    fail_over_bytes: Count | None = None
    failed: bool | None = None


class Load(Fields):
    """A TMA load. refusal: why it stays; null if it was rewritten."""

    function: str
    line: Count
    opcode: str
    refusal: str | None


class FixedSide(Fields):
    """A kernel before or after."""

    syscalls: list[str]
    registers: Count | None
    stack_bytes: Count | None
    code_bytes: Count


class FixedKernel(Fields):
    """A kernel before and after."""

    kernel: str
    before: FixedSide
    after: FixedSide


class Fix(Fields):
    """TMA loads that became `.shared::cta`. why_no_effect: why `kernels` is empty. output: the file that was
    written."""

    format: Literal[1]
    kind: Literal["memory fix"]
    loads: list[Load]
    rewritten: Count
    ptxas: str | None
    kernels: list[FixedKernel]
    why_no_effect: str | None
    output: str | None


class CalibrationPoint(Fields):
    """One launch. frame: of the kernel. limit_before, limit_after: the stack limit. growth_bytes: of the pool."""

    frame: Count
    limit_before: Count
    limit_after: Count
    growth_bytes: Whole


class Measured(Fields):
    """What was measured. threads: the most that the GPU can hold."""

    gpu: str
    driver: str
    threads: Count
    points: list[CalibrationPoint]


class Calibrated(CalibrationFields):
    """A calibration. frames: stack frames that were launched, in bytes.
    file: where it is kept; null with `--dry-run`."""

    format: Literal[1]
    kind: Literal["calibration"]
    measured: Measured
    frames: list[Count]
    file: str | None
