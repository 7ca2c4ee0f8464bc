"""Check accesses to the shared memory of another CTA of the cluster: it must have started, and must not have ended.

A cluster barrier before the access proves the start; one after it proves that the CTA had not ended. Without such a
barrier, the vector clocks of the warps decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.sanitizer.accesses import Access, Conflict
from tritonhook.emulate.sanitizer.clocks import SEEN
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.order import Order

_WORDS = {"r": "read", "w": "write", "a": "atomic access"}


class Elsewhere:
    """Checks a machine's accesses to the shared memory of other CTAs."""

    def __init__(self, order: Order) -> None:
        self._order = order
        geometry = order.machine.geometry
        self._of_cta = order.warps // len(geometry.ctas)
        self._have_met = np.zeros(len(geometry.ctas) // geometry.cluster_size, bool)
        # By CTA and actor: the time of the last access since the last cluster barrier, and the access.
        self._open: dict[tuple[int, int], tuple[int, Access]] = {}

    def access(self, numbers: Array, ctas: Array, how: str) -> None:
        """Check that the CTAs whose shared memory these threads access have started. numbers: numbers of the threads.
        ctas: for each thread, the CTA whose memory it accesses. how: see Memory.locate."""
        order = self._order
        far = ctas != order.machine.cta[numbers]
        if not far.any():
            return
        for cta, actor in np.unique(np.stack([ctas[far], numbers[far] // order.grain]), axis=1).T.tolist():
            mine = Access(_WORDS[how], order.machine.pc, actor)
            self._open[cta, actor] = int(order.clocks.now(actor)), mine
            if not self._have_met[cta // order.clocks.size] and not self._known(cta, actor, True):
                order.add(Conflict("begin", mine, mine, order.machine.geometry.ctas[cta]))

    def _known(self, cta: int, actor: int, by_actor: bool) -> int:
        """With by_actor, return the latest time of the CTA's warps that is ordered before the actor. Without it, return
        the latest time of the actor that is ordered before a warp of the CTA."""
        order, warps = self._order, np.arange(cta * self._of_cta, (cta + 1) * self._of_cta)
        pair = (np.full_like(warps, actor), warps) if by_actor else (warps, np.full_like(warps, actor))
        return int(order.clocks.known(SEEN, *pair).max())

    def met(self, cluster: int) -> None:
        """Record that all threads of a cluster have arrived at its barrier."""
        self._have_met[cluster] = True
        size = self._order.clocks.size
        self._open = {key: one for key, one in self._open.items() if key[0] // size != cluster}

    def end(self) -> None:
        """Report accesses that nothing orders before the end of the CTA whose memory they access."""
        for (cta, actor), (time, mine) in self._open.items():
            if self._known(cta, actor, False) < time:
                self._order.add(Conflict("end", mine, mine, self._order.machine.geometry.ctas[cta]))
