"""Track asynchronous reads of shared memory by wgmma, tcgen05.mma and bulk stores. A read lasts until warps have waited
for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.clocks import FENCED, SEEN
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group
    from tritonhook.emulate.sanitizer.order import Order, Place

_MOST_FLIGHTS = 1 << 17
_WARPS = 4  # warps of a warpgroup
_KINDS = {"wgmma": "read of wgmma", "bulk": "read of a bulk store", "tcgen05": "read of tcgen05.mma"}


class Flights:
    """Checks the asynchronous reads of a machine.

    Each read has a number, its index in these arrays: _pc: its instruction. _group: its commit group. _who: the actors
    that must wait for it. _when: the times at which these had waited; 0: not yet."""

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._latest = np.zeros(size, np.int32)  # by unit: the number of its latest read; 0: none
        self._used = 1
        self._pc, self._group = np.zeros(1 << 8, np.int32), np.zeros(1 << 8, np.int32)
        self._who, self._when = np.zeros((1 << 8, _WARPS), np.int32), np.zeros((1 << 8, _WARPS), np.int64)
        self._committed = {kind: np.zeros(order.warps, np.int32) for kind in _KINDS}
        self._are_fenced = np.zeros(order.warps, bool)
        # By instruction of a product: the warps that have used its registers since their last wgmma.fence.
        self._touched: dict[int, Array] = {}
        self.open = {kind: np.zeros(0, np.int64) for kind in _KINDS}  # numbers of reads that are not waited for yet

    def read(self, kind: str, threads: ArrayLike, index: Array, size: int) -> None:
        """Check and record reads of one or more tiles. kind: a key of _KINDS. threads: one thread of each warp that
        reads, a row per tile. index: byte indices in shared memory of the tiles' pieces, each of `size` bytes."""
        order, pc, warps = self._order, self._order.machine.pc, np.atleast_2d(threads) // self._order.grain
        places = order.places(index.reshape(-1), size).reshape(len(warps), -1)
        writers, written = order.writer[places], order.written[places]
        if (is_new := writers < 0).any():
            order.unwritten.add(pc)
        seen, fenced = (order.clocks.known_by_all(how, warps, writers) for how in (SEEN, FENCED))
        doubt = ~is_new & ((written > seen) | (order.is_generic[places] & (written > fenced)))
        for tile in np.flatnonzero((doubt | (order.flying[places] > 0)).any(1)).tolist():
            for warp in warps[tile]:
                self._check_tile(places[tile], warp, Access(_KINDS[kind], pc, 0))
        if kind == "wgmma":
            late = ~self._are_fenced | self._touched.get(pc, np.zeros(1, bool))
            if late[warps[:, 0]].any():
                order.unfenced.add(pc)
        made = self._add(kind, warps)
        self.open[kind] = np.r_[self.open[kind], made]
        self._latest[places] = made[:, None]

    def _check_tile(self, places: Array, warp: int, mine: Access) -> None:
        """Report writes that are not ordered before a warp's read of a tile."""
        order, actors, writers = self._order, np.full(len(places), warp), self._order.writer[places]
        order.check_writer(places, actors, mine)
        known = order.clocks.known(FENCED, actors, writers)
        wrong = order.is_generic[places] & (writers >= 0) & (order.written[places] > known)
        if wrong.any():
            order.add_at("proxy", places, actors, wrong, order.write_at, mine)

    def _add(self, kind: str, warps: Array) -> Array:
        """Record one read per tile, and return the numbers of these reads. warps: a row per tile."""
        if self._used + len(warps) > _MOST_FLIGHTS:
            self._forget()
        while self._used + len(warps) > len(self._pc):
            for name in ("_pc", "_group", "_who", "_when"):
                setattr(self, name, np.concatenate([one := getattr(self, name), np.zeros_like(one)]))
        made = np.arange(self._used, self._used + len(warps))
        self._used += len(warps)
        self._pc[made], self._group[made] = self._order.machine.pc, self._committed[kind][warps[:, 0]]
        self._who[made], self._when[made] = warps[:, :1], 0
        self._who[made, : warps.shape[1]] = warps
        return made

    def _forget(self) -> None:
        """Forget reads that were waited for and are no longer the latest read of any unit. Raises Unfinished if too
        many are left."""
        kept = np.unique(np.concatenate([[0], self._latest, *self.open.values()]))
        if len(kept) > _MOST_FLIGHTS // 2:
            raise Unfinished(f"more than {_MOST_FLIGHTS // 2:,} reads of matrices and bulk stores at once")
        number = np.zeros(self._used, np.int32)
        number[kept] = np.arange(len(kept))
        self._latest, self._used = number[self._latest], len(kept)
        self.open = {kind: number[one].astype(np.int64) for kind, one in self.open.items()}
        for name in ("_pc", "_group", "_who", "_when"):
            setattr(self, name, getattr(self, name)[kept])

    def check(self, places: Array, actors: Array, mine: Access) -> None:
        """Check that a write is ordered after the latest asynchronous reads of its units."""
        some = np.flatnonzero(numbers := self._latest[places]) if self._used > 1 else []
        if not len(some):
            return
        numbers, who = numbers[some], actors[some, None]
        when = self._when[numbers]
        wrong = ~((when > 0) & (self._order.seen(who, self._who[numbers]) >= when)).any(1)
        for number in np.unique(numbers[wrong]).tolist():
            first = Access("asynchronous read", int(self._pc[number]), int(self._who[number, 0]))
            those = wrong & (numbers == number)
            self._order.add_at("race", places[some], who[:, 0], those, lambda at, one=first: one, mine)

    def fence_registers(self, g: Group) -> None:
        """Execute wgmma.fence: from now on, products may use the registers of these warps."""
        warps = self._warps(g)
        self._are_fenced |= warps
        for touched in self._touched.values():
            touched &= ~warps

    def _warps(self, g: Group) -> Array:
        """Return a mask of the actors that have active lanes in a group."""
        found, grain = np.zeros(self._order.warps, bool), self._order.grain
        found[g.s.start // grain : g.s.stop // grain] = True if g.mask is None else g.mask.reshape(-1, grain).any(1)
        return found

    def check_accumulators(self, g: Group, products: Array) -> None:
        """Check that the warps of an instruction have waited for the products whose accumulators it uses."""
        warps = self._warps(g)
        for pc in products.tolist():
            if pc in self._touched:
                self._touched[pc] |= warps
            else:
                self._touched[pc] = warps.copy()
        flying = self.open["wgmma"]
        for one in flying[(self._pc[flying, None] == products).any(1)].tolist() if len(flying) else ():
            if len(late := self._who[one][warps[self._who[one]] & (self._when[one] == 0)]):
                second = Access("use of its accumulator", self._order.machine.pc, int(late[0]))
                first = Access("product", int(self._pc[one]), int(self._who[one, 0]))
                self._order.add(Conflict("accumulator", first, second, 0))

    def group(self, kind: str, warp: int) -> int:
        """Return the number of a warp's current commit group."""
        return int(self._committed[kind][warp])

    def commit(self, g: Group, kind: str) -> None:
        """End the current commit group of these warps."""
        self._committed[kind] += self._warps(g)

    def wait(self, g: Group, kind: str, pending: int) -> None:
        """Record a wait of these warps: all their commit groups except the latest `pending` are done."""
        if not len(flying := self.open[kind]):
            return
        who, when = self._who[flying], self._when[flying]
        done = self._warps(g)[who] & (self._group[flying, None] < self._committed[kind][who] - pending)
        self._when[flying] = np.where(done, self._order.clocks.now(who), when)
        self.open[kind] = flying[~(self._when[flying] > 0).all(1)]

    def commit_products(self, place: Place, thread: int) -> None:
        """Record tcgen05.commit: the products that a thread has started will arrive at an mbarrier when they end."""
        core, flying = self._order.core_of(thread), self.open["tcgen05"]
        mine = self._who[flying, 0] == thread // self._order.grain
        self._when[flying[mine], 1], self._who[flying[mine], 1] = self._order.clocks.now(core), core
        self.open["tcgen05"] = flying[~mine]
        self._order.give(place, np.array([core]), False)
