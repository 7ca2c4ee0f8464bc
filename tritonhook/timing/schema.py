"""What the document of a timed comparison must look like."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tritonhook._util.schema import Count, Fields, Number

Time = Annotated[float, Meta(gt=0, le=1e12)]


class TimedKernel(Fields):
    """The code of one kernel on one side. code: a digest. registers: per thread. stack: bytes per thread."""

    code: str
    registers: Count | None
    stack: Count | None


class TimedSide(Fields):
    """How a side was launched.

    copies: launches in one sample. graph: whether as a CUDA graph. why_eager: why not.
    """

    copies: Count = 1
    graph: bool = False
    why_eager: str | None = None


class GpuConditions(Fields):
    """The GPU during one block, from NVML; null: not known.

    sm_clock_mhz, sm_clock_max_mhz: the SM clock, and the highest. temperature_c, power_w: as the names say. slowed: why
    the clock was limited. power_capped: whether the power cap was active. other_processes: how many had the GPU open.
    """

    sm_clock_mhz: Number | None
    sm_clock_max_mhz: Number | None
    temperature_c: Number | None
    power_w: Number | None
    slowed: list[str]
    power_capped: bool | None
    other_processes: Count | None


class TimedBlock(Fields):
    """Samples of all sides in one process.

    process: its number. times_us: by side, the raw samples, in microseconds. conditions: the state of the GPU.
    clock_mhz: by side, the SM clock by the GPU's counters. order: the sides in the order of their samples.
    """

    process: Count
    times_us: dict[str, Annotated[list[Time], Meta(min_length=1)]]
    conditions: GpuConditions
    clock_mhz: dict[str, Number | None]
    order: list[str] = []


class Compared(Fields):
    """What a side is.

    name: what tells it from the others: a kernel's name, a function, a file. kernels: the names under which its kernels
    ran. ptxas: versions; empty: not known.
    """

    name: str
    kernels: list[str]
    ptxas: list[str]


class Tuning(Fields):
    """What autotuned kernels were tuned to. mode: one configuration for all sides, or each its own. sides: by side and
    kernel."""

    mode: Literal["fixed", "each"]
    sides: dict[str, dict[str, str]]


class TimedComparison(Fields):
    """Two forms of a kernel, timed in turn.

    target: what was timed. compared: by side, what it is. kernels: by side and kernel, one entry for each
    configuration. outputs: how many outputs were compared. wrong: how a side's outputs differ from the reference's.
    notes: remarks. device: the GPU. versions: of torch, triton and others. sides: how each was launched. flushes:
    whether the L2 cache was emptied before each sample. stopped: why it ended. seconds: how long it took. blocks: the
    samples. band: what counts as no effect. control_of: the side whose code the control has. code: by kernel, what
    differs, as text. tuning: of autotuned kernels. baselines: by baseline, how its outputs differ.
    """

    format: Literal[1]
    kind: Literal["ab"]
    target: str
    compared: dict[str, Compared]
    kernels: dict[str, dict[str, list[TimedKernel]]]
    outputs: Count
    wrong: dict[str, str]
    notes: list[str]
    device: str | None
    versions: dict[str, str | None] | None
    sides: dict[str, TimedSide] | None
    flushes: bool | None
    stopped: str | None
    seconds: Number
    blocks: list[TimedBlock]
    band: Annotated[float, Meta(gt=0, lt=1)]
    control_of: Literal["reference", "candidate"] | None
    code: dict[str, str]
    tuning: Tuning | None
    baselines: dict[str, str]
