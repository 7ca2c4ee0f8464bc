"""The parent's side of worker.py: a process that has the GPU, with a time limit for each launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook.device.child import Child
from tritonhook.timing.messages import Take, Taken
from tritonhook.timing.statistics import SampleBlock
from tritonhook.tuning.messages import Free, Freed, LeverCode, LoadCodes, Ready

WORKER = (sys.executable, "-m", "tritonhook.tuning.worker")
LIMIT_S = 10.0  # of a launch
_REST_S = 60.0  # of what is done between launches: buffers are filled and compared, samples are taken


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
    ) -> Ready:
        """Load codes, check what they store, and prepare to time them. The fields are those of LoadCodes."""
        _ = self.device  # there is a context
        return self.ask(LoadCodes(tuple(codes), launch, rtol, seed, racing, keep), Ready, rest_s=_REST_S)

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[SampleBlock, ...]:
        return self.ask(Take(count, process, tuple(sides)), Taken, rest_s=_REST_S).blocks

    def free(self) -> None:
        """Free the buffers."""
        self.ask(Free(), Freed, rest_s=_REST_S)
