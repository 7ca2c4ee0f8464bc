"""The tensor memory of sm_100: 128 lanes (rows) of 512 columns of 32 bits for each CTA, and how warps access it.

Only the shapes 32x32b and 16x32bx2 are supported. Cells that were never written hold NaN. Source: PTX ISA 9, "Tensor
Memory" and "Tensorcore 5th Generation Instructions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import Fault, OutOfBounds
from tritonhook.emulate.machine import WARP, Group, lanes_of
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Machine

LANES, COLUMNS = 128, 512
UNIT = 32  # the fewest columns that can be allocated; also the number of lanes that a warp can access
_NOTHING = 0x7FFF_FFFF
_EVERY = np.arange(LANES)


@dataclass(frozen=True, slots=True)
class Fragment:
    """The cells of tensor memory that each thread of a warp accesses.

    count: registers per thread; each holds one column or, if `packed`, the lower halves of two columns. lanes, columns:
    offsets from the address, for each thread of the warp."""

    count: int
    lanes: Array
    columns: Array
    packed: bool = False

    @classmethod
    def of_lanes(cls, count: int) -> Fragment:
        """Make 32x32b: thread n of the warp accesses lane n."""
        return cls(count, np.arange(WARP), np.zeros(WARP, np.int64))

    @classmethod
    def of_halves(cls, count: int, apart: int = 0) -> Fragment:
        """Make 16x32bx2: both halves of the warp access the same 16 lanes; the columns of the upper half are `apart`
        after those of the lower one."""
        return cls(count, np.arange(WARP) % 16, np.arange(WARP) // 16 * apart)


class TensorMemory:
    """The tensor memory of all CTAs of a machine. cells: uint32 (CTA, lane, column). allocated: bool (CTA, column)."""

    def __init__(self, machine: Machine) -> None:
        self.machine, ctas = machine, len(machine.geometry.ctas)
        self.cells = np.full((ctas, LANES, COLUMNS), _NOTHING, np.uint32)
        self.allocated = np.zeros((ctas, COLUMNS), bool)

    # --- columns -----------------------------------------------------------------------------

    def allocate(self, ctas: Sequence[int], columns: int) -> int | None:
        """Allocate columns that are free in all these CTAs. Return the first, a multiple of `columns`, or None if there
        are no free ones. Which columns a GPU chooses is not documented."""
        for begin in range(0, COLUMNS - columns + 1, columns):
            taken = np.ix_(list(ctas), range(begin, begin + columns))
            if not self.allocated[taken].any():
                self.allocated[taken] = True
                return begin
        return None

    def free(self, thread: int, begin: int, columns: int) -> None:
        """Free columns of a thread's CTA. Raises Fault if they are not allocated."""
        taken = self.allocated[self.machine.cta[thread], begin : begin + columns]
        if len(taken) < columns or not taken.all():
            text = f"dealloc of {columns} columns of tensor memory from {begin} on, which are not all allocated"
            raise Fault(text, thread)
        taken[:] = False

    def by_core(
        self, thread: int, cta: int, address: int, columns: int, writes: bool, lanes: Array = _EVERY
    ) -> Array:  # fmt: skip
        """Return the cells of all lanes in `columns` columns (a view), for an operation of the tensor core that a
        thread begins. lanes: the lanes that the operation reads or writes. Raises Fault if the columns are not
        allocated."""
        begin = address & 0xFFFF
        self._check(np.array([cta])[:, None], begin + np.arange(columns)[None], np.array([thread]))
        if (watch := self.machine.memory.watch) is not None:
            watch.tensor.by_core(thread, cta, lanes, begin + np.arange(columns), writes)
        return self.cells[cta, :, begin : begin + columns]

    def _check(self, ctas: Array, columns: Array, threads: Array) -> None:
        """Raise Fault if columns are not allocated. All arrays have one row per thread."""
        good = columns < COLUMNS
        good &= self.allocated[ctas, np.where(good, columns, 0)]
        if not good.all():
            row = int(np.flatnonzero(~good.all(1))[0])
            text = f"access of column {int(columns[row][~good[row]][0])} of tensor memory, which is not allocated"
            raise Fault(text, int(threads[row]))

    # --- warps -------------------------------------------------------------------------------

    def load(self, g: Group, addresses: Array, one: Fragment) -> Array:
        """Load registers for whole warps: shape (count, threads of the slice)."""
        warps, place = self._places(g, addresses, one, False)
        cells = self.cells[place].transpose(2, 0, 1)
        found = np.zeros((one.count, g.size // WARP, WARP), np.uint32)
        found[:, warps] = cells[0::2] & 0xFFFF | cells[1::2] << 16 if one.packed else cells
        return found.reshape(one.count, -1)

    def store(self, g: Group, addresses: Array, one: Fragment, registers: Array, lanes: slice = slice(None)) -> None:
        """Store registers of whole warps, shape (count, threads of the slice). lanes: the lanes of each warp that
        write."""
        warps, (ctas, rows, columns) = self._places(g, addresses, one, True)
        values = registers.reshape(one.count, -1, WARP)[:, warps].transpose(1, 2, 0)
        if one.packed:
            values = np.stack([values & 0xFFFF, values >> 16], -1).reshape(*values.shape[:2], -1)
        self.cells[ctas, rows[:, lanes], columns[:, lanes]] = values[:, lanes]

    def _places(self, g: Group, addresses: Array, one: Fragment, writes: bool) -> tuple[Array, tuple[Array, ...]]:
        """Return the active warps of the slice, and the indices (CTA, lane, column) of their cells, each of shape
        (warps, threads, columns) or broadcast to it. Raises Fault."""
        warps = np.flatnonzero(lanes_of(g.active))
        threads = warps * WARP + g.s.start
        first = addresses[warps * WARP].astype(np.int64)
        lanes = (first >> 16)[:, None] + one.lanes
        wrong = (lanes // UNIT != self.machine.warp[threads][:, None] % 4).any(1)
        if wrong.any():
            lane, thread = (int(found[wrong][0]) for found in (first >> 16, threads))
            text = f"lane {lane} of tensor memory, outside of the {UNIT} lanes that this warp can access"
            raise OutOfBounds(text, thread)
        columns = (first & 0xFFFF)[:, None, None] + one.columns[:, None] + np.arange(one.count << one.packed)
        ctas = self.machine.cta[threads]
        self._check(ctas[:, None], columns.reshape(len(warps), -1), threads)
        if (watch := self.machine.memory.watch) is not None:
            for thread, rows, mine in zip(threads, lanes, columns, strict=True):
                watch.tensor.by_warp(int(thread), rows, np.unique(mine), writes)
        return warps, (ctas[:, None, None], lanes[:, :, None], columns)
