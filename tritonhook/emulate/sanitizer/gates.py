"""Check the use of barriers: mbarriers that are used before their initialisation is visible, or that are overwritten;
barriers of a CTA at which other threads could meet in another execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.barriers import NUMBERS
from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.clocks import SEEN
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.order import Order

_BYTES = 8  # size of an mbarrier
_Arrivals = list[tuple[Array, Array, int]]  # actors, their times, instruction


class Gates:
    """Checks the barriers of a machine. size: number of units in its shared memory."""

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._occupied = np.zeros(size, np.int8)  # number of mbarriers in each unit
        self._inits: dict[int, tuple[Access, int]] = {}  # by mbarrier: its initialisation and the time
        self._coming: dict[int, _Arrivals] = {}  # by barrier of a CTA: arrivals of the current phase
        self._met: dict[int, _Arrivals] = {}  # by barrier of a CTA: arrivals of the phase before

    def initialised(self, place: int, thread: int) -> None:
        """Record that a thread has initialised an mbarrier."""
        order, actor = self._order, thread // self._order.grain
        self._occupied[order.places(np.array([place]), _BYTES)] += place not in self._inits
        self._inits[place] = Access("mbarrier.init", order.machine.pc, actor), int(order.clocks.now(actor))

    def invalidated(self, place: int) -> None:
        """Record that an mbarrier was invalidated."""
        self._occupied[self._order.places(np.array([place]), _BYTES)] -= self._inits.pop(place, None) is not None

    def uses(self, place: int, threads: Array) -> None:
        """Check that an mbarrier's initialisation is ordered before its use (arrival or wait) by these threads."""
        order, (first, time) = self._order, self._inits.get(place, (None, 0))
        actors = np.unique(threads // order.grain)
        if first is None or not len(actors := actors[actors != first.actor]):
            return
        late = order.clocks.cluster(actors) != order.clocks.cluster(first.actor)
        late |= order.clocks.known(SEEN, actors, np.full_like(actors, first.actor)) < time
        if late.any():
            second = Access("use of the mbarrier", order.machine.pc, int(actors[late][0]))
            order.add(Conflict("race", first, second, place % order.memory.shared_bytes))

    def written(self, places: Array, actors: Array, mine: Access) -> None:
        """Check that these writes do not overwrite an mbarrier."""
        order = self._order
        if self._inits and (wrong := self._occupied[places] > 0).any():
            begin = int(places[wrong][0]) * order.unit // _BYTES * _BYTES
            every = (self._inits[at][0] for at in range(begin, begin + order.unit, _BYTES) if at in self._inits)
            order.add_at("gate", places, actors, wrong, lambda at: next(every, mine), mine)

    def arrive(self, key: int, actors: Array) -> None:
        """Check that arrivals at a barrier of the CTA are ordered after all arrivals of the phase before. If not, they
        could belong to that phase in another execution."""
        order = self._order
        for who, when, pc in self._met.get(key, ()):
            if (late := order.clocks.known(SEEN, actors[:, None], who) < when).any():
                mine, other = (int(one[0]) for one in np.nonzero(late))
                first, second = ("arrival", pc, int(who[other])), ("arrival", order.machine.pc, int(actors[mine]))
                order.add_conflict("phase", first, second, key % NUMBERS)
        self._coming.setdefault(key, []).append((actors, order.clocks.now(actors), order.machine.pc))

    def open(self, key: int) -> None:
        """Record that all threads have arrived at a barrier, so that its next phase begins."""
        self._met[key] = self._coming.pop(key, [])
