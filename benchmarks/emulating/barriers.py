"""What `tritonhook emulate` finds in a kernel as it is, and without the barrier in its middle. Where nothing is found
without it, why: an independent look at the healthy run, which knows no clocks.

    not reached   no CTA of the launch comes to that barrier (a `trap` in its place does nothing)
    redundant     no byte of shared memory is accessed by two threads on both its sides, up to the next barriers,
                  with one of them writing; what is asynchronous counts on both sides of the barrier behind it
    one warp      as redundant, but for lanes of one warp among several, which `emulate` does not tell apart
    missed        else
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import prod
from typing import Any

import numpy as np

from benchmarks.emulating.kept import Row

_BARRIER = re.compile(r"bar\.sync\s+0;")
_MOST_CTAS, _WARP = 128, 32


def looked_at(case: Any, text: str, ctas: int) -> Row:
    """One row: what is found in PTX, and without its middle barrier (None: it has none)."""
    places = [match.span() for match in _BARRIER.finditer(text)]
    row: Row = {"kernel": case.kernel, "found": _kinds(case, text, ctas), "without_a_barrier": None, "why": ""}
    if not places:
        return row
    begin, end = places[len(places) // 2]
    every = min(prod(case.launch.grid), _MOST_CTAS)
    for count in dict.fromkeys((ctas, every)):
        row["without_a_barrier"] = _kinds(case, text[:begin] + text[end:], count)
        if row["without_a_barrier"]:
            return row
    if not _is_reached(case, f"{text[:begin]}trap;{text[end:]}", every):
        return row | {"why": "not reached"}
    line = text.count("\n", 0, begin) + 1
    return row | {"why": _ordered(case, text, line, every)}


def _look(case: Any, text: str, ctas: int) -> Any:
    from tritonhook.capture.launches.contents import NORMAL
    from tritonhook.ptx.module import Ptx
    from tritonhook.verify.cpu import ExecutionSettings, sanitized

    return sanitized(case, Ptx(text), ExecutionSettings(NORMAL, ctas))


def _kinds(case: Any, text: str, ctas: int) -> list[str]:
    return sorted({one.kind for one in _look(case, text, ctas).findings})


def _is_reached(case: Any, text: str, ctas: int) -> bool:
    return "trap" in str(_look(case, text, ctas).error)


def _ordered(case: Any, text: str, line: int, ctas: int) -> str:
    """Who accesses, on both sides of the barrier at this line, one byte, one of them writing: see above."""
    from tritonhook.emulate.sanitizer import run
    from tritonhook.emulate.sanitizer.order import Order

    logs: list[_Log] = []

    class Logged(Order):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            logs.append(_Log(self.machine, line))

        def access(self, g: Any, index: Any, size: int, how: str) -> None:
            if how not in "bc":
                numbers = g.numbers
                logs[-1].add(numbers, index[numbers - g.s.start], size, how != "r")
            super().access(g, index, size, how)

        def copying(self, g: Any, index: Any, size: int) -> None:
            numbers = g.numbers
            logs[-1].begin(numbers, index[numbers - g.s.start], size)
            super().copying(g, index, size)

        def landed(self, threads: Any, index: Any, size: int) -> None:
            logs[-1].add(threads, index, size, True)
            super().landed(threads, index, size)

        def bulk_read(self, kind: str, threads: Any, index: Any, size: int) -> None:
            for thread in threads:
                logs[-1].add(np.full(index.size, thread), index.reshape(-1), size, False, lasts=True)
            super().bulk_read(kind, threads, index, size)

        def bulk_write(self, thread: int, index: Any, size: int, barrier: int) -> None:
            logs[-1].add(np.full(index.size, -1), index.reshape(-1), size, True, lasts=True)
            super().bulk_write(thread, index, size, barrier)

        def arrive(self, place: Any, threads: Any, waits: bool) -> None:
            if place[0] == "barrier":
                logs[-1].barrier(threads)
            super().arrive(place, threads, waits)

        def together(self, g: Any) -> None:
            logs[-1].barrier(g.numbers if self.grain == 1 else g.numbers[:0])
            super().together(g)

    original, run.Order = run.Order, Logged  # type: ignore[misc, attr-defined]
    try:
        _look(case, text, ctas)
    finally:
        run.Order = original  # type: ignore[attr-defined]
    if not logs[0].conflicts(1):
        return "redundant"
    grain = 1 if prod(case.launch.block) <= _WARP else _WARP
    return "missed" if logs[0].conflicts(grain) else "one warp"


class _Log:
    """Which bytes are accessed between which barriers. An epoch of a thread ends at each barrier that it comes to."""

    def __init__(self, machine: Any, line: int) -> None:
        self.machine, self.line = machine, line
        self.epoch = np.zeros(machine.threads, np.int64)
        self.ends: set[tuple[int, int]] = set()  # CTA and epoch that the barrier in question ends
        self.accesses: dict[tuple[int, int], list[tuple[Any, Any, bool]]] = defaultdict(list)

    def barrier(self, threads: Any) -> None:
        if self.machine.instruction.line == self.line:
            self.ends |= {(int(self.machine.cta[one]), int(self.epoch[one])) for one in threads}
        self.epoch[threads] += 1

    def add(self, threads: Any, index: Any, size: int, writes: bool, lasts: bool = False) -> None:
        bytes_ = (index[:, None] + np.arange(size)).reshape(-1)
        owners = np.repeat(threads, size)
        for cta in np.unique(self.machine.cta[threads]):
            mine = np.repeat(self.machine.cta[threads] == cta, size)
            now = int(self.epoch[threads[self.machine.cta[threads] == cta]].max())
            for epoch in (now, now + 1) if lasts else (now,):
                self.accesses[int(cta), epoch].append((bytes_[mine], owners[mine], writes))

    def begin(self, threads: Any, index: Any, size: int) -> None:
        """A copy that lands later: its bytes count from here on."""
        self.add(threads, index, size, True, lasts=True)

    def conflicts(self, grain: int) -> bool:
        """Between groups of so many threads."""
        return any(self._conflict(*place, grain) for place in self.ends)

    def _conflict(self, cta: int, epoch: int, grain: int) -> bool:
        sides = [self.accesses.get((cta, one), []) for one in (epoch, epoch + 1)]
        size = 1 + max((int(bytes_.max()) for side in sides for bytes_, _, _ in side), default=0)
        for writer, other in (sides, sides[::-1]):
            # The thread that wrote a byte; -2: several, -3: none.
            owner = np.full(size, -3, np.int64)
            for bytes_, threads, writes in writer:
                if writes:
                    seen, mine = owner[bytes_], threads // grain
                    owner[bytes_] = np.where((seen == -3) | (seen == mine), mine, -2)
            if any(((owner[bytes_] != -3) & (owner[bytes_] != threads // grain)).any() for bytes_, threads, _ in other):
                return True
        return False
