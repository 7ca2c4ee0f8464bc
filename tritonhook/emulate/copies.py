"""Copies to shared memory that run beside their threads (cp.async): their data arrives when a thread waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.memory import GLOBAL
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.memory import Store


@dataclass(slots=True)
class _Copy:
    """One copy of some threads. threads: their numbers. index: where in the store. values: shape (count, threads).
    groups: the number of the group that each thread commits it to."""

    threads: Array
    store: Store
    index: Array
    unit: int
    values: Array
    groups: Array

    def only(self, some: Array) -> _Copy:
        """Return the part of the copy that some of its threads made."""
        values, groups = self.values[:, some], self.groups[some]
        return _Copy(self.threads[some], self.store, self.index[some], self.unit, values, groups)


class AsyncCopies:
    """The copies of a machine's threads that have not arrived yet."""

    def __init__(self, machine: Machine) -> None:
        self._memory = machine.memory
        self._committed = np.zeros(machine.threads, np.int64)  # groups, by thread
        self._waiting: list[_Copy] = []

    def start(self, g: Group, store: Store, index: Array, unit: int, values: Array) -> None:
        """Start a copy. index: of every lane. values: over the slice, read already."""
        active = g.active
        if self._memory.watch is not None:
            self._memory.watch.copying(g, index, unit * len(values))
        self._waiting.append(
            _Copy(g.numbers, store, index[active], unit, values[:, active], self._committed[g.s][active])
        )

    def read(self, g: Group, addresses: Array, wanted: Array, size: int) -> Array:
        """Read the words of copies of `size` bytes of global memory: only so many are read, the rest is zeros."""
        memory, found = self._memory, np.zeros((size // 4, g.size), np.uint32)
        if (whole := g.under(wanted >= size)) is not None:
            read = memory.read(whole, GLOBAL, addresses, 4, size // 4)
            found = read if whole is g else np.where(whole.active, read, found)
        if (part := g.under((wanted > 0) & (wanted < size))) is not None:
            for place in range(size):
                if (inner := part.under(wanted > place)) is not None:
                    byte = memory.read(inner, GLOBAL, addresses + np.uint64(place), 1)[0].astype(np.uint32)
                    found[place // 4] |= np.where(inner.active, byte << np.uint32(8 * (place % 4)), np.uint32(0))
        return found

    def commit(self, g: Group) -> None:
        """End the group of each thread."""
        self._committed[g.s] += g.active

    def wait(self, g: Group, pending: int | None) -> None:
        """Let all but the latest `pending` groups of these threads arrive. None: also what is in no group."""
        limit = np.full(len(self._committed), -1, np.int64)
        active = g.active
        limit[g.s][active] = 1 << 62 if pending is None else self._committed[g.s][active] - pending
        left = []
        for copy in self._waiting:
            done = copy.groups < limit[copy.threads]
            if done.any():
                copy.store.write(copy.index[done], copy.unit, copy.values[:, done])
                if self._memory.watch is not None:
                    self._memory.watch.landed(copy.threads[done], copy.index[done], copy.unit * len(copy.values))
            if not done.all():
                left.append(copy.only(~done))
        self._waiting = left
