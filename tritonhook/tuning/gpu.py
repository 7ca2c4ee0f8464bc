"""The parent's side of worker.py: a process that has the GPU, with a time limit for each launch; and their
messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook.device.child import Child, Message
from tritonhook.timing.plan import Take, Taken
from tritonhook.timing.statistics import SampleBlock

UNSTEADY = "its outputs differ from run to run"


class LeverCode(Message):
    """One code of a kernel. entry: its name in the cubin. launch: its launch, if it belongs to another configuration
    than the other codes. like: the plain code of its configuration. Both must store the same values, and the plain code
    comes first. None: this is a plain code."""

    name: str
    path: Path
    entry: str
    launch: Path | None = None
    like: str | None = None


class LoadCodes(Message):
    """Asks to load codes, to check the values that they store, and to prepare to time the codes that pass. The answer
    is RaceReady. Before the first launch of each code, its name is sent. keep: buffers that steer the kernel; the
    other buffers hold special numbers in a second check. None: no second check."""

    codes: tuple[LeverCode, ...]
    launch: Path
    rtol: float | None
    seed: int
    racing: bool
    keep: tuple[int, ...] | None = None


class RaceReady(Message):
    """Results of a process before it times. failed: why a code cannot be timed, by its name. unsteady: whether the
    reference itself does not store the same twice; then nothing can be timed."""

    failed: dict[str, str]
    unsteady: bool
    notes: tuple[str, ...]


class Free(Message):
    """Asks to free the buffers. The answer is Freed."""


class Freed(Message):
    pass


WORKER = (sys.executable, "-m", "tritonhook.tuning.worker")
LIMIT_S = 10.0  # per launch
_REST_S = 60.0  # between launches: time to fill and compare buffers, and to take samples


class GpuProcess(Child):
    """One process. Methods raise Lost, and TritonHookError where the GPU cannot do what is asked."""

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        super().__init__(command, limit_s)
        self.begin()

    def prepare(
        self,
        codes: Sequence[LeverCode],
        launch: Path,
        rtol: float | None,
        seed: int,
        racing: bool,
        keep: tuple[int, ...] | None = None,
    ) -> RaceReady:
        """Load codes, check what they store, and prepare to time them. The fields are those of LoadCodes."""
        _ = self.device  # there is a context
        return self.ask(LoadCodes(tuple(codes), launch, rtol, seed, racing, keep), RaceReady, rest_s=_REST_S)

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[SampleBlock, ...]:
        return self.ask(Take(count, process, tuple(sides)), Taken, rest_s=_REST_S).blocks

    def free(self) -> None:
        """Free the buffers."""
        self.ask(Free(), Freed, rest_s=_REST_S)
