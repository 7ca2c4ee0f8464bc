"""Accesses of the shared memory of other CTAs of a cluster: have these begun, and not ended?

A barrier of the cluster answers both for what lies before and behind it; without one, what warps know of each other.
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
    """Watches such accesses of a machine."""

    def __init__(self, order: Order) -> None:
        self._order = order
        geometry = order.machine.geometry
        self._of_cta = order.warps // len(geometry.ctas)
        self._have_met = np.zeros(len(geometry.ctas) // geometry.cluster_size, bool)
        self._open: dict[tuple[int, int], tuple[int, Access]] = {}  # by CTA and actor: when, since the last barrier

    def access(self, numbers: Array, ctas: Array, how: str) -> None:
        """Threads access the shared memory of these CTAs. how: as in Memory.locate."""
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
        """Up to which time an actor knows of a warp of a CTA, or a warp of it knows of the actor."""
        order, warps = self._order, np.arange(cta * self._of_cta, (cta + 1) * self._of_cta)
        pair = (np.full_like(warps, actor), warps) if by_actor else (warps, np.full_like(warps, actor))
        return int(order.clocks.known(SEEN, *pair).max())

    def met(self, cluster: int) -> None:
        """All threads of a cluster have arrived at its barrier."""
        self._have_met[cluster] = True
        size = self._order.clocks.size
        self._open = {key: one for key, one in self._open.items() if key[0] // size != cluster}

    def end(self) -> None:
        """Find accesses that nothing orders before the end of the CTA."""
        for (cta, actor), (time, mine) in self._open.items():
            if self._known(cta, actor, False) < time:
                self._order.add(Conflict("end", mine, mine, self._order.machine.geometry.ctas[cta]))
