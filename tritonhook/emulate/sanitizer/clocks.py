"""Vector clocks of a launch's actors, as in race detectors for threads.

Actors are, in the order of their numbers: the warps (or the lanes, if a CTA is one warp), the tensor core of each CTA,
and for each mbarrier the asynchronous copies that arrive there. A clock has entries only for the actors of its own
cluster, because synchronisation through shared memory orders no other actors. So the size of all clocks is linear in
the number of clusters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.words import Array

SEEN, FENCED = 0, 1  # kinds of clocks: for ordinary accesses, and for those of the asynchronous proxy
_MOST_BYTES = 256 << 20


class Clocks:
    """The clocks of a machine. warps: number of warps in all CTAs. ctas: number of CTAs. size: CTAs in a cluster.
    owners: the CTAs of the tensor cores and of the mbarriers' copies."""

    def __init__(self, warps: int, ctas: int, size: int) -> None:
        self.size, self.owners, of_cta = size, list(range(ctas)), warps // ctas
        self._cta = np.concatenate([np.arange(warps) // of_cta, np.arange(ctas)])
        self._inside = np.concatenate(
            [np.arange(warps) % (of_cta * size), of_cta * size + np.arange(ctas) % size]
        )  # the actor's number in its cluster
        self._count = [(of_cta + 1) * size] * (ctas // size)  # actors of each cluster
        self._times = self._room(self._count[0])
        self._times[SEEN, :, np.arange(self._count[0]), np.arange(self._count[0])] = 1
        self._count_of_cta = of_cta
        self._lay()

    def _lay(self) -> None:
        """Compute the index at which each actor's clock begins in the flat array of one kind of clock."""
        room = self._times.shape[2]
        self._begin = (self._cta // self.size * room + self._inside) * room
        self._flat = self._times.reshape(2, -1)  # a view

    def _room(self, actors: int) -> Array:
        shape = 2, len(self._count), actors, actors
        if (size := 8 * int(np.prod(shape, dtype=np.int64))) > _MOST_BYTES:
            raise Unfinished(
                f"clocks of {actors:,} warps and mbarriers in each of {shape[1]:,} clusters take {size:,} bytes, "
                f"more than the limit of {_MOST_BYTES:,}"
            )
        return np.zeros(shape, np.int64)

    def add(self, cta: int) -> int:
        """Add an actor to the cluster of a CTA, and return its number."""
        cluster = cta // self.size
        inside, room = self._count[cluster], self._times.shape[2]
        if inside == room:
            times = self._room(room + max(4, room // 4))
            times[:, :, :room, :room] = self._times
            self._times = times
        self._count[cluster] += 1
        self._times[SEEN, cluster, inside, inside] = 1
        self._cta, self._inside = np.append(self._cta, cta), np.append(self._inside, inside)
        self._lay()
        self.owners.append(cta)
        return len(self._cta) - 1

    def cluster(self, actors: Any) -> Any:
        return self._cta[actors] // self.size

    def now(self, actors: Any) -> Any:
        """Return the current time of each actor, i.e. its entry in its own clock."""
        return self._flat[SEEN][self._begin[actors] + self._inside[actors]]

    def known(self, kind: int, actors: Any, others: Any) -> Any:
        """Return for each actor the latest time of another actor of its cluster that is ordered before it. kind: SEEN
        or FENCED."""
        return self._flat[kind][self._begin[actors] + self._inside[others]]

    def known_by_all(self, kind: int, actors: Array, others: Array) -> Array:
        """Return the latest time of each other actor that is ordered before all actors of the same row. actors: shape
        (rows, n), each row from one cluster. others: shape (rows, m). Result: shape (rows, m)."""
        clocks = self._times[kind, self.cluster(actors), self._inside[actors]].min(1)
        found: Array = np.take_along_axis(clocks, self._inside[others], 1)
        return found

    def tick(self, actors: Any) -> None:
        inside = self._inside[actors]
        self._times[SEEN, self.cluster(actors), inside, inside] += 1

    def of(self, actors: Array) -> Array:
        """Return the join (elementwise maximum) of the clocks of these actors, which are in one cluster."""
        found: Array = self._times[:, self.cluster(actors[0]), self._inside[actors]].max(1)
        return found

    def one(self, actor: int) -> Array:
        """Return an actor's clocks of both kinds, as a view of shape (2, actors)."""
        found: Array = self._times[:, self._cta[actor] // self.size, self._inside[actor]]
        return found

    def tell(self, actor: int, known: Array) -> None:
        """Join other clocks into the clocks of one actor."""
        own = self.one(actor)[:, : known.shape[1]]
        np.maximum(own, known, out=own)

    def take(self, actors: Array, known: Array) -> None:
        """Join other clocks into the clocks of several actors of one cluster."""
        cluster, inside, length = self.cluster(actors[0]), self._inside[actors], known.shape[1]
        before = self._times[:, cluster, inside, :length]
        self._times[:, cluster, inside, :length] = np.maximum(before, known[:, None])

    def meet(self, ctas: Array) -> None:
        """Synchronise all warps of each of these CTAs, as a barrier does. Clusters must have one CTA."""
        count = self._count_of_cta
        rows = self._times[:, ctas, :count]  # a copy
        known, own = rows.max(2, keepdims=True), np.arange(count)
        now = rows[SEEN][:, own, own] + 1
        self._times[:, ctas, :count] = known
        self._times[SEEN, ctas[:, None], own, own] = now

    def fence(self, actors: Array) -> None:
        """Copy the SEEN clocks of these actors to FENCED: their order now holds for the asynchronous proxy, too."""
        where = self.cluster(actors), self._inside[actors]
        self._times[FENCED][where] = self._times[SEEN][where]


def joined(a: Array, b: Array) -> Array:
    """Join two clocks. One may be shorter, because actors were added to the cluster in between."""
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    found = a.copy()
    np.maximum(found[:, : b.shape[1]], b, out=found[:, : b.shape[1]])
    return found
