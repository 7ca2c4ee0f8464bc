"""Kernels tuned: `tune`."""

from __future__ import annotations

from typing import Literal

from tritonhook._util.schema import Count, Fields, Hash, Number
from tritonhook.timing.schema import TimedBlock


class DroppedLever(Fields):
    """A lever that was not raced, and why: the code of another one, ptxas failed, other outputs, a crash, a hang."""

    lever: str
    reason: str


class TunedRace(Fields):
    """The race of a kernel's codes. left: at its end, the time over that of the compiler's own code. dropped: after
    which block."""

    blocks: Count
    left: dict[str, Number]
    dropped: dict[str, Count]


class CodeFigures(Fields):
    """One code of a kernel. code: the hash of its instructions. stack, spill_stores, spill_loads, shared: bytes; shared
    without what the launch adds. null: not known."""

    code: Hash
    registers: Count | None
    stack: Count | None
    spill_stores: Count | None
    spill_loads: Count | None
    shared: Count


class CandidateCode(CodeFigures, kw_only=True):
    """A code that a lever gave."""

    lever: str


class TunedKernel(Fields):
    """One kernel.

    share: of the GPU's time; null: not known. launch: the one that was timed. reason: why it is no win. lever: the one
    that led the race; null: none. gain_percent: by how much less time the kernel takes under it, in fresh processes;
    interval_percent: its 95% interval. p: how often chance gives such a gain. All three null where nothing was
    confirmed. ptxas: the compiler's own. ptx: the hash of the normalised PTX. own: the compiler's code.
    candidates: the other codes, with their levers. seconds: of the GPU's time. samples: of the confirmation; null
    without --save.
    """

    kernel: str
    record: str
    arch: str
    front_end: str
    ptx: str
    ptxas: str
    share: float | None
    launch: str
    verdict: Literal["WIN", "LEAVE IT", "ASSEMBLED"]
    reason: str
    lever: str | None
    gain_percent: Number | None
    interval_percent: tuple[Number, Number] | None
    p: float | None
    processes: Count
    own: CodeFigures
    candidates: list[CandidateCode]
    dropped: list[DroppedLever]
    race: TunedRace | None
    notes: list[str]
    seconds: float
    samples: list[TimedBlock] | None


class SkippedKernel(Fields):
    """A kernel that was not tuned, and why."""

    kernel: str
    record: str
    reason: str
    share: float | None


class Tuning(Fields):
    """Kernels tuned together. policy: the file that the wins went to. device: the GPU; null: none was used.

    stopped: why it ended early; "" if it did not. start_seconds: of the processes with the GPU. counts: kernels by
    verdict.
    """

    format: Literal[1]
    kind: Literal["tuning"]
    target: str
    policy: str
    device: str | None
    stopped: str
    start_seconds: float
    counts: dict[str, Count]
    kernels: list[TunedKernel]
    skipped: list[SkippedKernel]
