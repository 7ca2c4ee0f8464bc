"""Groups of threads that execute together, and what a step (see machine.py) may do with them.

A group's *slice* is a range of the machine's threads, in whole warps; some of them may be inactive. An argument "one
per thread of the slice" is an array of that length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Machine

Ready = Callable[[], Any]  # returns whether a wait is over: a bool, or an array with one bool per thread of the machine


class Parked(Exception):
    """Raised by a step whose threads must wait and then run the instruction again. They wait until `ready` returns
    true. If `ready` is None, they wait for the missing lanes of their warps. late: True for threads of warps with
    missing lanes, one per thread of the slice."""

    def __init__(self, ready: Ready | None = None, late: Array | None = None) -> None:
        self.ready, self.late = ready, late


class Group:
    """Threads that execute together: those of the slice `s` where `mask` is true (None: all).

    pc: index of the next instruction. ready: returns whether their wait is over; None: they do not wait. parked: they
    wait for lanes of their warps. late: see Parked. retries: after the wait, the same instruction runs again.
    timed_out: the instruction runs again before the wait is over, because all threads of the machine wait. gave_way:
    they poll, so others run first.
    """

    __slots__ = ("gave_way", "late", "machine", "mask", "parked", "pc", "ready", "retries", "s", "timed_out")

    def __init__(self, machine: Machine, s: slice, mask: Array | None, pc: int) -> None:
        self.machine, self.s, self.mask, self.pc = machine, s, mask, pc
        self.ready: Ready | None = None
        self.late: Array | None = None
        self.parked = self.gave_way = self.retries = self.timed_out = False

    # --- registers ---------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of threads in the slice, active or not."""
        return int(self.s.stop - self.s.start)

    @property
    def active(self) -> Array:
        """The mask as an array, also if `mask` is None."""
        return np.ones(self.size, bool) if self.mask is None else self.mask

    @property
    def numbers(self) -> Array:
        """The numbers of the active threads in the machine."""
        return np.flatnonzero(self.active) + self.s.start

    @property
    def warps(self) -> Array:
        """The numbers of the warps with active lanes, in the machine."""
        first, last = self.s.start // WARP, self.s.stop // WARP
        return (
            np.arange(first, last) if self.mask is None else first + np.flatnonzero(self.mask.reshape(-1, WARP).any(1))
        )

    def put(self, row: Array, value: Array) -> None:
        """Write a register's elements of the active threads. row: the register, one element per thread of the machine.
        value: one per thread of the slice, or one number for all."""
        if self.mask is None:
            row[self.s] = value
        else:
            np.copyto(row[self.s], value, where=self.mask, casting="unsafe")

    def under(self, where: Array) -> Group | None:
        """Return a group of the active threads where `where` is true; None if there are none."""
        if self.mask is not None:
            where = where & self.mask
        elif where.all():
            return self
        else:
            where = where.copy()
        if not where.any():
            return None
        inner = Group(self.machine, self.s, where, self.pc)
        inner.timed_out = self.timed_out
        return inner

    # --- control -----------------------------------------------------------------------------

    def part(self, where: Array | None = None) -> Group | None:
        """Move the active threads where `where` is true (None: all) to a group of their own, and return it. Return None
        if there are none, and this group itself if they are all its threads."""
        if where is None:
            return self
        active = where.copy() if self.mask is None else where & self.mask
        if not active.any():
            return None
        if (rest := ~active if self.mask is None else self.mask & ~active).any():
            other = self.machine.group(active, self.s.start, self.pc)
            self.s, self.mask = self.machine.shaped(rest, self.s.start)
            return other
        return self

    def jump(self, pc: int) -> None:
        self.pc = pc

    def scatter(self, pcs: Array) -> None:
        """Jump to a different instruction in each thread. pcs: index of the instruction, one per thread of the
        slice."""
        begin = self.s.start
        for pc in np.unique(pcs[self.active]):
            part = self.part(pcs[self.s.start - begin : self.s.stop - begin] == pc)  # part() may shrink the slice
            assert part is not None
            part.jump(int(pc))
            if part is self:
                return

    def exit(self) -> None:
        """End these threads."""
        self.machine.live[self.s] &= ~self.active
        self.machine.ended(self)

    def wait(self, ready: Ready) -> None:
        """Make these threads wait until `ready()` is true for them. It is called many times, and must have no side
        effect."""
        self.ready = ready

    def retry(self, ready: Ready) -> None:
        """Run this instruction again when `ready()` is true. If all threads of the machine wait, the instruction runs
        again at once, with `timed_out` set. Call this before the step changes anything."""
        raise Parked(ready)

    def frozen(self) -> Group:
        """Return a copy that later changes of this group do not affect."""
        return Group(self.machine, self.s, None if self.mask is None else self.mask.copy(), self.pc)

    def give_way(self) -> None:
        """Let other threads run first, because these threads poll for a result of the others."""
        self.gave_way = True

    def converge(self, lanes: Array | int) -> None:
        """Wait until all live lanes of a mask have arrived at this instruction. lanes: the mask of a warp, uint32: one
        for all threads, or one per thread of the slice."""
        if self.mask is None:
            return
        by_warp = np.where(self.mask, np.asarray(lanes, np.uint32), np.uint32(0)).reshape(-1, WARP)
        wanted = np.repeat(np.bitwise_or.reduce(by_warp, axis=1), WARP)  # ignore the masks of inactive lanes
        named = (wanted >> self.machine.lane[self.s] & 1).astype(bool) & self.machine.live[self.s]
        warps_here = np.repeat(self.mask.reshape(-1, WARP).any(1), WARP)
        if (missing := named & warps_here & ~self.mask).any():
            raise Parked(late=_of_warps(missing))

    def meet(self, lanes: Array) -> None:
        """Wait until all live lanes of this mask wait with the same mask, at this instruction or at others. lanes: one
        mask per thread of the slice."""
        machine, active = self.machine, self.active
        waits, met = machine.waits_with[self.s], machine.met[self.s]  # views: writes below change the machine's arrays
        waits[active & ~met] = lanes[active & ~met]
        rows, live = waits.reshape(-1, WARP), np.repeat(lanes_of(machine.live[self.s]), WARP)
        here = (waits != 0) & (waits & live & ~lanes_of(rows[:, :, None] == rows[:, None, :]) == 0)
        met |= here
        waits[here] = 0
        if here.any():
            machine.ask_again()
        if not met[active].all():
            raise Parked(late=_of_warps(active & ~met))
        met &= ~active

    def converge_warpgroups(self) -> None:
        """Wait until all 128 threads of every warpgroup in this group have arrived. Needed because one thread may
        signal other warps that its whole warpgroup has read a tile."""
        machine, here = self.machine, self.numbers
        warpgroups = machine.cta[here] * WARP + machine.warp[here] // 4
        _, which, counts = np.unique(warpgroups, return_inverse=True, return_counts=True)
        if (counts < 4 * WARP).any():
            late = np.zeros(self.size, bool)
            late[here - self.s.start] = (counts < 4 * WARP)[which]
            raise Parked(late=_of_warps(late))


def _of_warps(where: Array) -> Array:
    """Return True for each thread whose warp has a thread where `where` is true."""
    found: Array = np.repeat(where.reshape(-1, WARP).any(1), WARP)
    return found


def lanes_of(where: Array) -> Array:
    """Return one uint32 mask per warp: bit n is `where` of lane n."""
    return np.packbits(where.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32)[:, 0]
