"""Detect a livelock: threads that poll forever. If registers and memory are again in an earlier state, the execution
must repeat forever."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from tritonhook.emulate.errors import Hang
from tritonhook.emulate.machine import Machine

_FIRST = 64  # rounds of polls before the first state is kept
_PERIOD = 12  # rounds between the states that are compared: a multiple of the usual lengths of a polling loop


class Livelock:
    """Compares states of a launch's machines while all their threads poll; rarely, because a state may be large."""

    def __init__(self) -> None:
        self._next, self._state = _FIRST, 0

    def look(self, machines: Sequence[Machine], rounds: int) -> None:
        """Raise Hang if the state equals that of `_PERIOD` rounds ago. rounds: how often all threads have polled."""
        if rounds < _FIRST:
            self._next = _FIRST
        if rounds == self._next:
            self._state = _state(machines)
        if rounds == self._next + _PERIOD:
            self._next *= 4
            if _state(machines) == self._state:
                pcs = sorted({pc for machine in machines for pc in machine.polling})
                lines = sorted({machines[0].code.instructions[pc].line for pc in pcs})
                raise Hang(f"all threads poll forever: at line {', '.join(map(str, lines))}", pcs, lines)


def _state(machines: Sequence[Machine]) -> int:
    """Return a digest of the state of the machines: threads, barriers and memory."""
    state = crc32(machines[0].memory.global_.data)
    for machine in sorted(machines, key=lambda one: one.geometry.ctas):
        for array in (*machine.held, machine.memory.shared.data, machine.memory.local.data):
            state = crc32(array, state)
        # Hash only the parity of a phase: polling threads test nothing else of it.
        barriers = machine.shared_barriers.phases.items()
        phases = [(at, one.phase & 1, one.expected, one.pending, one.transactions) for at, one in barriers]
        state = crc32(repr((machine.polling, phases)).encode(), state)
    return state
