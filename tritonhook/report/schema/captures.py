"""Captures: `show`, `run`."""

from __future__ import annotations

from typing import Any, Literal

from tritonhook._util.schema import Count, Fields
from tritonhook.capture.store.schema import Kernel
from tritonhook.report.schema.code import Code, Trigger


class Resources(Fields):
    """What a kernel needs; null: not known.

    registers: per thread. stack: bytes per thread. spill_stores, spill_loads: bytes, as `ptxas -v` prints them.
    local_stores, local_loads: bytes of all instructions that access local memory; spills are among them. shared: static
    bytes per block. dynamic_shared: bytes that a launch adds. instructions, code_bytes: with the padding at the end.
    """

    registers: Count | None
    stack: Count | None
    spill_stores: Count | None
    spill_loads: Count | None
    local_stores: Count | None
    local_loads: Count | None
    shared: Count | None
    dynamic_shared: Count | None
    instructions: Count | None
    code_bytes: Count


class KernelFields(Kernel, kw_only=True):
    """What the documents of captures say of a kernel. stages: what was kept. trigger: what makes ptxas take its other
    scheduler. resources: null without a cubin."""

    stages: list[str]
    trigger: Trigger
    resources: Resources | None


class Seen(Fields):
    """One process that met the kernel. process: the name of its index. rank: "-" if it has none."""

    process: str
    rank: str
    cache_hit: bool


class CapturedKernel(KernelFields, kw_only=True):
    """A kernel of a folder. id: the short name that verbs take. record: the name of its folder. seen: by which
    processes."""

    id: str
    record: str
    seen: list[Seen]


class Damaged(Fields):
    """A record that cannot be read. error: why."""

    record: str
    error: str


class TuningFields(Fields):
    """One choice of an autotuner. winner, among: records. by: what tuned. process: the name of its index."""

    winner: str
    among: list[str]
    by: str
    process: str


class Captures(Fields):
    """The kernels in a capture folder.

    path: the folder. processes: for each its host, rank, pid, argv and versions. torn_lines: lines of an index that a
    killed process left. damaged: records that cannot be read. tunings: choices of autotuners. crashes: folders of
    crashes of ptxas. notes: remarks of the run. hidden: how many kernels `--filter` left out.
    """

    format: Literal[1]
    kind: Literal["captures"]
    path: str
    processes: list[dict[str, Any]]
    torn_lines: Count
    kernels: list[CapturedKernel]
    damaged: list[Damaged]
    tunings: list[TuningFields]
    crashes: list[str]
    notes: list[str] = []
    hidden: Count = 0


class CapturedOne(KernelFields, kw_only=True):
    """One captured kernel.

    path: its folder. warnings: known bugs of its ptxas that its PTX meets. notes: why its cubin cannot be read.
    artifacts: the texts by stage. code: its machine code.
    """

    format: Literal[1]
    kind: Literal["capture"]
    path: str | None = None
    warnings: list[str] = []
    notes: list[str] = []
    artifacts: dict[str, str] = {}
    code: Code | None = None
