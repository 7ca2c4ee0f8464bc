"""Reads of shared memory that last until they are waited for: those of wgmma, of tcgen05.mma and of bulk stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.machine import WARP
from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.clocks import FENCED
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group
    from tritonhook.emulate.sanitizer.order import Order, Place

_MOST_FLIGHTS = 1 << 16
_KINDS = {"wgmma": "read of wgmma", "bulk": "read of a bulk store", "tcgen05": "read of tcgen05.mma"}


@dataclass(slots=True, eq=False)
class Flight:
    """Reads that last until a warp has waited for them. clocks: when which warp had."""

    pc: int
    warp: int
    group: int
    clocks: dict[int, int] = field(default_factory=dict)


class Flights:
    """Watches such reads of a machine. open: those that are not waited for, by kind. unfenced: products without
    wgmma.fence."""

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._latest = np.zeros(size, np.int32)  # by unit: the number of the latest one that reads there, plus one
        self._all: list[Flight] = []
        self._committed = {kind: np.zeros(order.warps, np.int64) for kind in _KINDS}
        self._are_fenced = np.zeros(order.warps, bool)
        self._touched: dict[int, set[int]] = {}  # by warp: products whose registers it has used since its last fence
        self.open: dict[str, list[Flight]] = {kind: [] for kind in _KINDS}
        self.unfenced: set[int] = set()

    def read(self, kind: str, threads: Sequence[int], index: Array, size: int) -> None:
        """Note a read. kind: of _KINDS. threads: one of each warp."""
        order, pc = self._order, self._order.machine.pc
        places = np.unique(order.places(index.reshape(-1), size))
        for thread in threads:
            warp = thread // order.grain
            actors, mine = np.full(len(places), warp), Access(_KINDS[kind], pc, 0)
            order.check_writer(places, actors, mine)
            writers = order.writer[places]
            known = order.clocks.known(FENCED, actors, writers)
            wrong = order.is_generic[places] & (writers >= 0) & (order.written[places] > known)
            if wrong.any():
                order.add_at("proxy", places, actors, wrong, order.write_at, mine)
        if (order.writer[places] < 0).any():
            order.unwritten.add(pc)
        warp = threads[0] // order.grain
        if kind == "wgmma" and (not self._are_fenced[warp] or pc in self._touched.get(warp, ())):
            self.unfenced.add(pc)
        made = Flight(pc, warp, int(self._committed[kind][warp]))
        if len(self._all) == _MOST_FLIGHTS:  # most of them are read over by now
            used = np.unique(self._latest)
            self._latest = np.searchsorted(used[used > 0], self._latest).astype(np.int32) + (self._latest > 0)
            self._all = [self._all[number - 1] for number in used[used > 0]]
            if len(self._all) == _MOST_FLIGHTS:
                raise Unfinished(f"more than {_MOST_FLIGHTS:,} reads of matrices and bulk stores at once")
        self._all.append(made)
        self.open[kind].append(made)
        self._latest[places] = len(self._all)

    def check(self, places: Array, actors: Array, mine: Access) -> None:
        """Check that a write is ordered behind the latest reads of its places."""
        order, numbers = self._order, self._latest[places]
        sequence = np.argsort(numbers, kind="stable") if self._all and numbers.any() else numbers[:0]
        for some in np.split(sequence, np.flatnonzero(np.diff(numbers[sequence])) + 1):
            if not len(some) or numbers[some[0]] == 0:
                continue
            flight, who = self._all[numbers[some[0]] - 1], actors[some]
            ordered = [order.seen(who, np.full_like(who, warp)) >= time for warp, time in flight.clocks.items()]
            wrong = ~np.logical_or.reduce(ordered) if ordered else np.ones(len(some), bool)
            if wrong.any():
                first = Access("asynchronous read", flight.pc, flight.warp)
                order.add_at("race", places[some], who, wrong, lambda at, one=first: one, mine)

    def fence_registers(self, g: Group) -> None:
        """wgmma.fence: products may use the registers of these warps."""
        warps = np.unique(g.numbers // self._order.grain)
        self._are_fenced[warps] = True
        for warp in warps.tolist() if self._touched else ():
            self._touched.pop(warp, None)

    def check_accumulators(self, g: Group, products: frozenset[int]) -> None:
        """Check that the warps of an instruction have waited for the products whose accumulators it uses."""
        for warp in np.unique(g.numbers // WARP).tolist():
            self._touched.setdefault(warp, set()).update(products)
        if flights := [one for one in self.open["wgmma"] if one.pc in products]:
            warps = np.unique(g.numbers // WARP).tolist()
            for one in flights:
                if late := [w for w in warps if w // 4 == one.warp // 4 and w not in one.clocks]:
                    second = Access("use of its accumulator", self._order.machine.pc, late[0])
                    self._order.add(Conflict("accumulator", Access("product", one.pc, one.warp), second, 0))

    def group(self, kind: str, warp: int) -> int:
        """Return the number of a warp's open group."""
        return int(self._committed[kind][warp])

    def commit(self, g: Group, kind: str) -> None:
        """End the group of these reads."""
        self._committed[kind][np.unique(g.numbers // self._order.grain)] += 1

    def wait(self, g: Group, kind: str, pending: int) -> None:
        """All but the latest `pending` groups of these warps are done."""
        warps = set(np.unique(g.numbers // self._order.grain).tolist())
        left = []
        for one in self.open[kind]:
            mine = {one.warp, one.warp + 1, one.warp + 2, one.warp + 3} if kind == "wgmma" else {one.warp}
            done = [w for w in mine & warps if one.group < self._committed[kind][w] - pending]
            one.clocks |= {w: int(self._order.clocks.now(w)) for w in done}
            if len(one.clocks) < len(mine):
                left.append(one)
        self.open[kind] = left

    def commit_products(self, place: Place, thread: int) -> None:
        """Note a commit of tcgen05: the products that a thread has begun arrive at an mbarrier when they are done."""
        core, warp = self._order.core_of(thread), thread // self._order.grain
        for one in self.open["tcgen05"]:
            if one.warp == warp:
                one.clocks[core] = int(self._order.clocks.now(core))
        self.open["tcgen05"] = [one for one in self.open["tcgen05"] if one.warp != warp]
        self._order.give(place, np.array([core]), False)
