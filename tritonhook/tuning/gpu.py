"""The parent's side of worker.py: a process that has the GPU, with a time limit for each launch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook.device.child import Child
from tritonhook.timing.messages import Take, Taken
from tritonhook.timing.statistics import Block
from tritonhook.tuning.messages import Code, Free, Freed, Load, Ready

WORKER = (sys.executable, "-m", "tritonhook.tuning.worker")
LIMIT_S = 10.0  # of a launch
_REST_S = 60.0  # of what is done between launches: buffers are filled and compared, samples are taken


class GpuProcess:
    """One process. Methods raise Lost, and TritonHookError where the GPU cannot do what is asked."""

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        self._child = Child(command, limit_s)
        self._child.begin()

    @property
    def device(self) -> str:
        """The GPU's name. Waits until there is a context."""
        return self._child.device

    def prepare(self, codes: Sequence[Code], launch: Path, rtol: float | None, seed: int, racing: bool) -> Ready:
        """Load codes, check what they store against the first one, and prepare to time them."""
        assert self.device
        return self._child.ask(Load(tuple(codes), launch, rtol, seed, racing), Ready, rest_s=_REST_S)

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> tuple[Block, ...]:
        return self._child.ask(Take(count, process, tuple(sides)), Taken, rest_s=_REST_S).blocks

    def free(self) -> None:
        """Free the buffers."""
        self._child.ask(Free(), Freed, rest_s=_REST_S)

    def end(self) -> None:
        self._child.end()
