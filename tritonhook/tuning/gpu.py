"""The parent's side of worker.py: processes that have the GPU, with a time limit for each launch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonhook._util.line_child import LineChild
from tritonhook.errors import DeviceError
from tritonhook.timing.result import block_of
from tritonhook.timing.statistics import Block

WORKER = (sys.executable, "-m", "tritonhook.tuning.worker")
LIMIT_S = 10.0  # of a launch
_START_S = 120.0  # of a process that loads its libraries
_ORDER_S = 60.0  # of what is done between launches: buffers are filled and compared, samples are taken


class Lost(Exception):
    """A process with the GPU was lost: it crashed or hung, and has been ended. at: the code that it launched; None
    while it was timing."""

    def __init__(self, at: str | None, text: str) -> None:
        super().__init__(text)
        self.at = at


@dataclass(frozen=True, slots=True)
class Code:
    """One code of a kernel. entry: its name in the cubin."""

    name: str
    path: Path
    entry: str


@dataclass(frozen=True, slots=True)
class Ready:
    """What a process found before it times. failed: why a code cannot be timed, by its name. unsteady: whether the
    reference itself does not store the same twice; then nothing can be timed."""

    failed: Mapping[str, str]
    unsteady: bool
    notes: tuple[str, ...]


class GpuProcess:
    """One process. Methods raise Lost, and DeviceError where the GPU cannot do what is asked."""

    def __init__(self, limit_s: float = LIMIT_S, command: Sequence[str] = WORKER) -> None:
        self._limit_s = limit_s
        self._child = LineChild(command)

        self._child.send(json.dumps({"begin": True}))  # it makes a context as soon as it has loaded its libraries
        self._device: str | None = None

    @property
    def device(self) -> str:
        """The GPU's name. Waits until there is a context."""
        if self._device is None:
            self._device = str(self._answer("device", _START_S))
        return self._device

    def prepare(self, codes: Sequence[Code], launch: Path, rtol: float | None, seed: int, racing: bool) -> Ready:
        """Load codes, check what they store against the first one, and prepare to time them."""
        assert self.device
        listed = [[code.name, str(code.path), code.entry] for code in codes]
        fields = {"rtol": rtol, "seed": seed, "racing": racing}
        self._child.send(json.dumps({"codes": listed, "launch": str(launch), **fields}))
        ready = self._answer("ready")
        return Ready(ready["failed"], ready["unsteady"], tuple(ready["notes"]))

    def blocks(self, count: int, process: int, sides: Sequence[str]) -> list[Block]:
        self._child.send(json.dumps({"blocks": count, "process": process, "sides": list(sides)}))
        return [block_of(document) for document in self._answer("taken")]

    def free(self) -> None:
        """Free the buffers."""
        self._child.send(json.dumps({"free": True}))
        self._answer("freed")

    def end(self) -> None:
        self._child.end()

    def _answer(self, kind: str, order_s: float = _ORDER_S) -> Any:
        at: str | None = None
        while True:
            limit_s = order_s if at is None else self._limit_s
            answer = self._child.answer(limit_s)
            if answer is None:
                self.end()
                raise Lost(at, f"no end within {limit_s:g} s")
            if "lost" in answer:
                text = answer["lost"] or self._child.ended()
                self.end()
                raise Lost(at, text)
            if "error" in answer:
                raise DeviceError(answer["error"])
            if kind in answer:
                return answer[kind]
            at = answer.get("at")
