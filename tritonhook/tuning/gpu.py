"""Start and control the child process that uses the GPU (worker.py), with a time limit for each launch. Also the
messages between the two processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook.device.child import Child, Message
from tritonhook.timing.plan import Take, Taken
from tritonhook.timing.statistics import SampleBlock

UNSTEADY = "its outputs differ from run to run"


class LeverCode(Message):
    """Machine code of a kernel. path: its cubin. entry: the kernel's name in the cubin. launch: record of its launch;
    None: that of LoadCodes. like: name of the code that must store the same values, and comes earlier in the list;
    None for a code that is compared only with itself."""

    name: str
    path: Path
    entry: str
    launch: Path | None = None
    like: str | None = None


class LoadCodes(Message):
    """Request: load codes, compare the values that they store, and prepare to time those that pass. The answer is
    RaceReady. Before the first launch of each code, the child sends its name.

    rtol: allowed difference, as a share of the largest value; None: all bits must be equal. keep: numbers of the
    buffers that steer the kernel, e.g. indices; in a second comparison all other buffers hold special numbers, such as
    NaNs. None: no second comparison."""

    codes: tuple[LeverCode, ...]
    launch: Path
    rtol: float | None
    seed: int
    racing: bool
    keep: tuple[int, ...] | None = None


class RaceReady(Message):
    """Result of a process before it measures. failed: the codes that cannot be timed: name and reason. unsteady:
    whether two runs of the reference store different values; then nothing can be timed."""

    failed: dict[str, str]
    unsteady: bool
    notes: tuple[str, ...]


class Free(Message):
    """Request: free the buffers. The answer is Freed."""


class Freed(Message):
    pass


WORKER = (sys.executable, "-m", "tritonhook.tuning.worker")
LIMIT_S = 10.0  # time limit of a launch
_REST_S = 60.0  # time limit between launches, when the process fills and compares buffers, and takes samples


class GpuProcess(Child):
    """A child process that uses the GPU. Methods raise Lost if the process ends or hangs, and TritonHookError if the
    GPU refuses a request."""

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        super().__init__(command, limit_s)
        self.begin()

    def prepare(self, request: LoadCodes) -> RaceReady:
        """Load codes, compare what they store, and prepare to time them."""
        _ = self.device  # waits until the process has a CUDA context
        return self.ask(request, RaceReady, rest_s=_REST_S)

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[SampleBlock, ...]:
        return self.ask(Take(count, process, tuple(sides)), Taken, rest_s=_REST_S).blocks

    def free(self) -> None:
        """Free the buffers."""
        self.ask(Free(), Freed, rest_s=_REST_S)
