"""Check the order of accesses to tensor memory. A CTA's tensor core is an actor that executes products in order. Loads
and stores of a warp end when the warp has waited for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.sanitizer.accesses import PART
from tritonhook.emulate.sanitizer.clocks import SEEN
from tritonhook.emulate.tensor_memory import COLUMNS, LANES
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group
    from tritonhook.emulate.sanitizer.order import Order

NEVER = 1 << 60  # the time of an access that its warp has not waited for


class _Accesses:
    """The last access of each column in each group of 16 lanes of tensor memory: its actor, time and instruction."""

    def __init__(self, ctas: int) -> None:
        shape = ctas, LANES // PART, COLUMNS
        self.actor, self.time, self.pc = np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def note(self, where: Any, actor: int, time: int, pc: int) -> None:
        self.actor[where], self.time[where], self.pc[where] = actor, time, pc


class TensorOrder:
    """Checks the tensor memory of a machine against its last reads and writes."""

    def __init__(self, order: Order) -> None:
        self._order = order
        ctas = len(order.machine.geometry.ctas)
        self._last = {writes: _Accesses(ctas) for writes in (False, True)}

    def by_core(self, thread: int, cta: int, lanes: Array, columns: Array, writes: bool) -> None:
        """Check a product, started by a thread, that reads or writes columns of these lanes of a CTA's tensor
        memory."""
        core, warp = self._order.core_of(thread), thread // self._order.grain
        self._order.clocks.tell(core, self._order.clocks.one(warp))
        where = cta, *np.ix_(np.unique(lanes // PART), columns)
        what = "product" if writes else "read of tcgen05.mma"
        self._note(where, core, warp, int(self._order.clocks.now(core)), what, writes)

    def by_warp(self, thread: int, lanes: Array, columns: Array, writes: bool) -> None:
        """Check a warp's load or store of columns. It ends when the warp has waited for it."""
        warp = thread // self._order.grain
        where = int(self._order.machine.cta[thread]), *np.ix_(np.unique(lanes // PART), columns)
        self._note(where, warp, warp, NEVER, "write" if writes else "read", writes)

    def _note(self, where: Any, actor: int, knows: int, time: int, what: str, writes: bool) -> None:
        """Report the last writes by other actors that are not ordered before this access. If this is a write, check the
        last reads, too. Then record this access. knows: the actor whose clock shows what is ordered before the access.
        time: when the access ends."""
        for kind in (True, False) if writes else (True,):
            last = self._last[kind]
            other, when = last.actor[where], last.time[where]
            wrong = (other >= 0) & (other != actor) & (when > self._order.clocks.known(SEEN, knows, other))
            if wrong.any():
                first = tuple(int(one[0]) for one in np.nonzero(wrong))
                text = f"{'write' if kind else 'read'} of tensor memory"
                earlier = text, int(last.pc[where][first]), int(other[first])
                mine = what, self._order.machine.pc, actor
                self._order.add_conflict("tensor", earlier, mine, int(where[2][0, first[1]]))
        self._last[writes].note(where, actor, time, self._order.machine.pc)

    def done(self, g: Group, writes: bool) -> None:
        """Execute tcgen05.wait: the stores (writes) or loads of these warps have ended."""
        last = self._last[writes]
        for warp in self._order.actors(g):
            last.time[(last.actor == warp) & (last.time == NEVER)] = self._order.clocks.now(warp)
