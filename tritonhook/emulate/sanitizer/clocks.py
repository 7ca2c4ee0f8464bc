"""What each actor of a launch knows of the others' time: a vector clock for each, as race detectors for threads have.

Actors are the warps (or lanes), then the tensor core of each CTA, then what copies for an mbarrier. They are numbered
over the whole machine, but a clock has only the actors of its own cluster, as shared memory orders no others: memory
grows with the number of clusters, not with its square.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.words import Array

SEEN, FENCED = 0, 1
_MOST_BYTES = 256 << 20


class Clocks:
    """The clocks of a machine. warps: of all CTAs. ctas, size: CTAs of the machine, and of a cluster. owners: the CTA
    of each actor behind the warps."""

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
        """Find where in `_times` of one kind each actor's clock begins."""
        room = self._times.shape[2]
        self._begin = (self._cta // self.size * room + self._inside) * room
        self._flat = self._times.reshape(2, -1)  # a view

    def _room(self, actors: int) -> Array:
        shape = 2, len(self._count), actors, actors
        if (size := 8 * int(np.prod(shape, dtype=np.int64))) > _MOST_BYTES:
            raise Unfinished(f"clocks of {actors:,} warps and mbarriers in {shape[1]:,} clusters take {size:,} bytes")
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
        """Return the own time of each actor."""
        return self._flat[SEEN][self._begin[actors] + self._inside[actors]]

    def known(self, kind: int, actors: Any, others: Any) -> Any:
        """Up to which time each actor knows of another one of its cluster."""
        return self._flat[kind][self._begin[actors] + self._inside[others]]

    def known_by_all(self, kind: int, actors: Array, others: Array) -> Array:
        """Up to which time all actors of a row know of each other actor of that row. actors: (rows, some), of one
        cluster each. others: (rows, many)."""
        clocks = self._times[kind, self.cluster(actors), self._inside[actors]].min(1)
        found: Array = np.take_along_axis(clocks, self._inside[others], 1)
        return found

    def tick(self, actors: Any) -> None:
        inside = self._inside[actors]
        self._times[SEEN, self.cluster(actors), inside, inside] += 1

    def of(self, actors: Array) -> Array:
        """Return what these actors of one cluster know together: for `take`."""
        found: Array = self._times[:, self.cluster(actors[0]), self._inside[actors]].max(1)
        return found

    def one(self, actor: int) -> Array:
        """Return what an actor knows: a view."""
        found: Array = self._times[:, self._cta[actor] // self.size, self._inside[actor]]
        return found

    def tell(self, actor: int, known: Array) -> None:
        """Let an actor know what others knew."""
        own = self.one(actor)[:, : known.shape[1]]
        np.maximum(own, known, out=own)

    def take(self, actors: Array, known: Array) -> None:
        """Let actors of one cluster know what others knew."""
        cluster, inside, length = self.cluster(actors[0]), self._inside[actors], known.shape[1]
        before = self._times[:, cluster, inside, :length]
        self._times[:, cluster, inside, :length] = np.maximum(before, known[:, None])

    def meet(self, ctas: Array) -> None:
        """Let all warps of each of these CTAs know what each of them knew. Of clusters of one CTA."""
        count = self._count_of_cta
        rows = self._times[:, ctas, :count]  # a copy
        known, own = rows.max(2, keepdims=True), np.arange(count)
        now = rows[SEEN][:, own, own] + 1
        self._times[:, ctas, :count] = known
        self._times[SEEN, ctas[:, None], own, own] = now

    def fence(self, actors: Array) -> None:
        """Let what these actors know count for the asynchronous proxy, too."""
        where = self.cluster(actors), self._inside[actors]
        self._times[FENCED][where] = self._times[SEEN][where]


def joined(a: Array, b: Array) -> Array:
    """Join what two sets of actors know together; the cluster may have got actors in between."""
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    found = a.copy()
    np.maximum(found[:, : b.shape[1]], b, out=found[:, : b.shape[1]])
    return found
