"""Find races between lanes of the same warp since its last barrier, in CTAs of several warps.

For shared memory, the lane that last wrote each unit is recorded. Reads of shared memory, and all accesses of global
memory, are looked up in `Recent`, which records the accesses of the latest instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.sanitizer.accesses import Access
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.order import Order

_RECENT = 16  # instructions whose accesses are recorded
_THREADS = 1 << 24  # exceeds the number of threads of a machine
_SEVERAL = 255  # in place of a lane's number: several lanes wrote


class Recent:
    """The last accesses of each of the latest instructions, to find races of lanes of one warp. unit: bytes per tracked
    unit of memory."""

    def __init__(self, threads: int, unit: int) -> None:
        self.unit = unit
        self._met = np.zeros(threads // WARP, np.int32)  # how often the lanes of each warp have exchanged values
        self._of: dict[int, tuple[Array, Array, int, Array]] = {}

    def met(self, warps: Array) -> None:
        """Record that lanes of these warps have exchanged values, which completes their earlier reads."""
        self._met = self._met.copy()
        self._met[warps] += 1

    def note(self, pc: int, threads: Array, index: Array, size: int) -> None:
        self._of.pop(pc, None)
        self._of[pc] = threads.astype(np.int32), index, size, self._met
        if len(self._of) > _RECENT:
            del self._of[next(iter(self._of))]

    def by_other_lanes(self, pc: int, threads: Array) -> Array | None:
        """Return the units that other lanes of these threads' warps accessed by the instruction at `pc`; None: not
        recorded."""
        if pc not in self._of:
            return None
        others, index, size, _ = self._of[pc]
        some = np.isin(others // WARP, threads // WARP) & ~np.isin(others, threads)
        return ((index[some] // self.unit)[:, None] + np.arange(max(1, size // self.unit))).reshape(-1)

    def by_others(self, pc: int, threads: Array, units: Array, how: str) -> Array:
        """Return for each thread and its unit whether another lane of its warp accessed the unit by the instruction at
        `pc`. how: "r": by a read, and lanes have not exchanged values since. "w": by a write, and the thread itself did
        not write. "a": by an atomic access."""
        if (found := self._of.get(pc)) is None:
            return np.zeros(len(units), bool)
        others, index, size, met = found
        all_units = (index // self.unit)[:, None] + np.arange(max(1, size // self.unit))
        keys = np.sort((all_units.astype(np.int64) * _THREADS + others[:, None]).reshape(-1))
        first, own = units * _THREADS + threads // WARP * WARP, units * _THREADS + threads
        low, high, at = (np.searchsorted(keys, one) for one in (first, first + WARP, own))
        has_own = keys[np.minimum(at, len(keys) - 1)] == own
        if how == "w":
            return (high > low) & ~has_own
        some: Array = high - low > has_own
        return some & (met == self._met)[threads // WARP] if how == "r" else some


class Lanes:
    """Checks accesses of shared memory by lanes of one warp."""

    def __init__(self, order: Order, size: int) -> None:
        self._order = order
        self._last = np.zeros(size, np.uint8)  # by unit: the lane that wrote last
        self._wrote = np.zeros(order.warps, np.uint8)  # by warp: the lane that wrote last, or _SEVERAL
        self._wrote_at = np.zeros(order.warps, np.int64)  # by warp: the time of its last write
        # By warp and time: the lane that released alone after another lane wrote.
        self._releases: dict[tuple[int, int], int] = {}
        self.recent = Recent(order.machine.threads, order.unit)

    def written(self, places: Array, threads: Array) -> None:
        """Record writes of units: one unit for each of `threads`."""
        self._last[places] = threads % WARP
        warps, first, last = threads // WARP, threads[:-1], threads[1:]
        ends = np.r_[warps[1:] != warps[:-1], True] if len(warps) > 1 else np.ones(len(warps), bool)
        several = np.zeros(self._order.warps, bool)
        several[warps[1:][(first // WARP == last // WARP) & (first != last)]] = True
        who, lane = warps[ends], threads[ends] % WARP
        now = self._order.clocks.now(who)
        again = (self._wrote_at[who] == now) & (self._wrote[who] != lane)
        self._wrote[who], self._wrote_at[who] = np.where(several[who] | again, _SEVERAL, lane), now

    def released(self, threads: Array) -> None:
        """Record a release by these threads. If only one lane of a warp releases, it releases only its own writes."""
        warps, first, counts = np.unique(threads // WARP, return_index=True, return_counts=True)
        lanes, now = threads[first] % WARP, self._order.clocks.now(warps)
        alone = (counts == 1) & (self._wrote_at[warps] == now) & (self._wrote[warps] != lanes)
        for warp, time, lane in zip(warps[alone].tolist(), now[alone].tolist(), lanes[alone].tolist(), strict=True):
            self._releases[warp, time] = lane

    def are_left_out(self, places: Array, actors: Array) -> Array:
        """Return for each unit whether its last write is not released: the lane that wrote it has not released it, only
        another lane of its warp has."""
        order = self._order
        wrong = np.zeros(len(places), bool)
        if self._releases:
            writers, times = order.writer[places], order.written[places]
            some = (writers >= 0) & (writers != actors) & order.is_generic[places]
            some &= times == order.seen(actors, writers)
            for warp, time in set(zip(writers[some].tolist(), times[some].tolist(), strict=True)) & {*self._releases}:
                lane = self._releases[warp, time]
                wrong |= some & (writers == warp) & (times == time) & (self._last[places] != lane)
        return wrong

    def have_written(self, places: Array, actors: Array, threads: Array, is_strong: bool = False) -> Array:
        """Return for each unit whether another lane of the thread's warp wrote it, without a barrier of the warp since.
        is_strong: whether the threads' current access is strong."""
        order, strong = self._order, self._order.is_strong[places]
        wrong: Array = (order.writer[places] == actors) & ((self._last[places] != threads % WARP) | strong)
        if wrong.any():
            wrong &= (order.written[places] == order.clocks.now(actors)) & ~(strong & is_strong)
        if wrong.any():
            for pc in np.unique(order.write_pc[places[wrong]]).tolist():
                some = np.flatnonzero(wrong & (order.write_pc[places] == pc))
                how = "a" if strong[some[0]] else "w"
                wrong[some] = self.recent.by_others(pc, threads[some], places[some], how)
        return wrong

    def check_read(self, places: Array, actors: Array, threads: Array) -> None:
        """Report units that these threads read and another lane of their warp wrote."""
        wrong = self.have_written(places, actors, threads)
        if wrong.any():
            mine = Access("another lane's read", self._order.machine.pc, 0)
            self._order.add_at("race", places, actors, wrong, self._order.write_at, mine)

    def check_write(self, row: int, some: Array, places: Array, actors: Array, threads: Array, mine: Access) -> None:
        """Report units that these threads write and another lane of their warp has read. some: indices of the threads
        whose warp has read the unit. row: number of the warp in its cluster."""
        order = self._order
        pcs = order.read.pcs(row, places[some])
        for pc in np.unique(pcs).tolist():
            those = some[pcs == pc]
            wrong = np.zeros(len(places), bool)
            wrong[those] = self.recent.by_others(pc, threads[those], places[those], "r")
            if wrong.any():
                what = Access(f"another lane's {mine.what}", mine.pc, 0)
                order.add_at("race", places, actors, wrong, lambda at: order.read_at(order.read, at, row), what)
