"""Groups of threads that execute together: what a step of an instruction may do with them, see machine.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Machine

Ready = Callable[[], Any]  # True, False, or an array of bool over all threads of the machine


class Parked(Exception):
    """Threads that run this instruction again: when lanes of their warp have arrived, or when `ready` is true. late: of
    which threads of the slice lanes have not arrived."""

    def __init__(self, ready: Ready | None = None, late: Array | None = None) -> None:
        self.ready, self.late = ready, late


class Group:
    """Threads that execute together: those of `s`, a slice of whole warps, where `mask` is true (None: all).

    pc: of the instruction that is next. ready: what they wait for; None: nothing. late: see Parked.
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
        """How many threads the slice has, active or not."""
        return int(self.s.stop - self.s.start)

    @property
    def active(self) -> Array:
        """The mask, also where it is None."""
        return np.ones(self.size, bool) if self.mask is None else self.mask

    @property
    def numbers(self) -> Array:
        """The numbers of the active threads among all of the machine."""
        return np.flatnonzero(self.active) + self.s.start

    @property
    def warps(self) -> Array:
        """The numbers of the warps that have active lanes."""
        first, last = self.s.start // WARP, self.s.stop // WARP
        return (
            np.arange(first, last) if self.mask is None else first + np.flatnonzero(self.mask.reshape(-1, WARP).any(1))
        )

    def put(self, row: Array, value: Array) -> None:
        """Write a register where lanes are active. value: an array over the slice, or one number for all."""
        if self.mask is None:
            row[self.s] = value
        else:
            np.copyto(row[self.s], value, where=self.mask, casting="unsafe")

    def under(self, where: Array) -> Group | None:
        """Return the group with the lanes that are active and of which `where` is true; None if there is none."""
        if self.mask is not None:
            where = where & self.mask
        elif where.all():
            return self
        else:
            where = where.copy()
        return self._inner(where) if where.any() else None

    def _inner(self, where: Array) -> Group:
        inner = Group(self.machine, self.s, where, self.pc)
        inner.timed_out = self.timed_out
        return inner

    # --- control -----------------------------------------------------------------------------

    def part(self, where: Array | None = None) -> Group | None:
        """Take the active lanes of which `where` is true out of this group. None if there is none."""
        if where is None:
            return self
        active = where.copy() if self.mask is None else where & self.mask
        if not active.any():
            return None
        if (rest := ~active if self.mask is None else self.mask & ~active).any():
            other = self.machine.group(active, self.s.start, self.pc)
            self._become(rest)
            return other
        return self

    def _become(self, active: Array) -> None:
        self.s, self.mask = self.machine.shaped(active, self.s.start)

    def jump(self, pc: int) -> None:
        self.pc = pc

    def scatter(self, pcs: Array) -> None:
        """Go to a place of each thread's own. pcs: over the slice."""
        begin = self.s.start
        for pc in np.unique(pcs[self.active]):
            part = self.part(pcs[self.s.start - begin : self.s.stop - begin] == pc)  # the group becomes smaller
            assert part is not None
            part.jump(int(pc))
            if part is self:
                return

    def exit(self) -> None:
        """End these threads."""
        self.machine.live[self.s] &= ~self.active
        self.machine.ended(self)

    def wait(self, ready: Ready) -> None:
        """Wait until `ready()` is true for them; it is asked again and again, and may change nothing."""
        self.ready = ready

    def retry(self, ready: Ready) -> None:
        """Run this instruction again when `ready()` is true. If all threads of the machine wait, it runs again at once,
        with `timed_out` set. Call it before the step changes anything."""
        raise Parked(ready)

    def frozen(self) -> Group:
        """Return the group as it is now."""
        return Group(self.machine, self.s, None if self.mask is None else self.mask.copy(), self.pc)

    def give_way(self) -> None:
        """Let other threads run first: these poll for what those do."""
        self.gave_way = True

    def converge(self, lanes: Array | int) -> None:
        """Go on only when all lanes of this mask, that have not ended, are here. lanes: uint32, or one for each thread
        of the slice."""
        if self.mask is None:
            return
        by_warp = np.where(self.mask, np.asarray(lanes, np.uint32), np.uint32(0)).reshape(-1, WARP)
        wanted = np.repeat(np.bitwise_or.reduce(by_warp, axis=1), WARP)  # those that are not here say nothing
        named = (wanted >> self.machine.lane[self.s] & 1).astype(bool) & self.machine.live[self.s]
        warps_here = np.repeat(self.mask.reshape(-1, WARP).any(1), WARP)
        if (missing := named & warps_here & ~self.mask).any():
            raise Parked(late=_of_warps(missing))

    def meet(self, lanes: Array) -> None:
        """Go on only when all lanes of this mask wait, here or in other places, with the same mask."""
        machine, active = self.machine, self.active
        waits, met = machine.waits_with[self.s], machine.met[self.s]  # views
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
        """Go on only when all 128 threads of each warpgroup are here that has one here. A kernel may let one thread
        tell others that the warpgroup has read a tile."""
        machine, here = self.machine, self.numbers
        warpgroups = machine.cta[here] * WARP + machine.warp[here] // 4
        _, which, counts = np.unique(warpgroups, return_inverse=True, return_counts=True)
        if (counts < 4 * WARP).any():
            late = np.zeros(self.size, bool)
            late[here - self.s.start] = (counts < 4 * WARP)[which]
            raise Parked(late=_of_warps(late))


def _of_warps(where: Array) -> Array:
    """Whether each thread is of a warp of which `where` is true for one."""
    found: Array = np.repeat(where.reshape(-1, WARP).any(1), WARP)
    return found


def lanes_of(where: Array) -> Array:
    """Return the mask of the lanes of each warp of which `where` is true, as uint32: one for each warp."""
    return np.packbits(where.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32)[:, 0]
