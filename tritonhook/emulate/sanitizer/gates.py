"""Barriers themselves: mbarriers that are used before their initialisation is visible, or written over; threads that
meet others at a barrier than they do in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.barriers import NUMBERS
from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.clocks import SEEN
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.order import Order

_BYTES = 8  # of an mbarrier
_Arrivals = list[tuple[Array, Array, int]]  # who, when, by which instruction


class Gates:
    """Watches the barriers of a machine. size: units of its shared memory."""

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._occupied = np.zeros(size, np.int8)  # mbarriers in each unit
        self._inits: dict[int, tuple[Access, int]] = {}  # of mbarriers: where, and when
        self._coming: dict[int, _Arrivals] = {}  # of barriers of a CTA
        self._met: dict[int, _Arrivals] = {}  # the phase before

    def initialised(self, place: int, thread: int) -> None:
        """Note that a thread has initialised an mbarrier."""
        order, actor = self._order, thread // self._order.grain
        self._occupied[order.places(np.array([place]), _BYTES)] += place not in self._inits
        self._inits[place] = Access("mbarrier.init", order.machine.pc, actor), int(order.clocks.now(actor))

    def invalidated(self, place: int) -> None:
        """Note that an mbarrier is none any more."""
        self._occupied[self._order.places(np.array([place]), _BYTES)] -= self._inits.pop(place, None) is not None

    def uses(self, place: int, threads: Array) -> None:
        """Threads arrive at an mbarrier, or wait for it: whether its initialisation is ordered before that."""
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
        """Check that no mbarrier lies where these actors write."""
        order = self._order
        if self._inits and (wrong := self._occupied[places] > 0).any():
            begin = int(places[wrong][0]) * order.unit // _BYTES * _BYTES
            every = (self._inits[at][0] for at in range(begin, begin + order.unit, _BYTES) if at in self._inits)
            order.add_at("gate", places, actors, wrong, lambda at: next(every, mine), mine)

    def arrive(self, key: int, actors: Array) -> None:
        """Check that these actors come behind all who have met at a barrier of the CTA before: else they may meet
        those."""
        order = self._order
        for who, when, pc in self._met.get(key, ()):
            if (late := order.clocks.known(SEEN, actors[:, None], who) < when).any():
                mine, other = (int(one[0]) for one in np.nonzero(late))
                first, second = ("arrival", pc, int(who[other])), ("arrival", order.machine.pc, int(actors[mine]))
                order.add_conflict("phase", first, second, key % NUMBERS)
        self._coming.setdefault(key, []).append((actors, order.clocks.now(actors), order.machine.pc))

    def open(self, key: int) -> None:
        """All are there."""
        self._met[key] = self._coming.pop(key, [])
