"""Asynchronous copies to shared memory (cp.async): their data is written when a thread waits for it."""

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
    """One copy of some threads. threads: their numbers. index: where each thread writes in `store`. unit: bytes of a
    value. values: shape (count, threads). groups: for each thread, the number of its commit group that contains the
    copy."""

    threads: Array
    store: Store
    index: Array
    unit: int
    values: Array
    groups: Array

    def only(self, some: Array) -> _Copy:
        """Return the part of the copy that belongs to some of its threads."""
        values, groups = self.values[:, some], self.groups[some]
        return _Copy(self.threads[some], self.store, self.index[some], self.unit, values, groups)


class AsyncCopies:
    """The copies of a machine's threads whose data is not yet written."""

    def __init__(self, machine: Machine) -> None:
        self._memory = machine.memory
        self._committed = np.zeros(machine.threads, np.int64)  # number of commit groups that each thread has closed
        self._waiting: list[_Copy] = []

    def start(self, g: Group, store: Store, index: Array, unit: int, values: Array) -> None:
        """Start a copy. index: where each thread of the slice writes. values: the data, which is already read."""
        active = g.active
        if self._memory.watch is not None:
            self._memory.watch.copying(g, index, unit * len(values))
        self._waiting.append(
            _Copy(g.numbers, store, index[active], unit, values[:, active], self._committed[g.s][active])
        )

    def read(self, g: Group, addresses: Array, wanted: Array, size: int) -> Array:
        """Read `size` bytes of global memory for each thread, as 32-bit words. wanted: how many of these bytes are
        really read (src-size of cp.async); the rest is zeros."""
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
        """Close the current commit group of each thread."""
        self._committed[g.s] += g.active

    def wait(self, g: Group, pending: int | None) -> None:
        """Write the data of all but the latest `pending` commit groups of these threads. pending None: write the data
        of all their copies, also of copies in no group."""
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
