"""What threads hand to others through memory: flags, locks, counters, semaphores.

A release is a strong write with `.release`, or one behind a fence; an acquire a strong read with `.acquire`, or one
before a fence. Barriers hand on what a fence has covered, and what a read before a fence has seen. Warps of one cluster
hand on their clocks. Between clusters a release is a publication: it has a serial number at its flag, and an actor
knows up to which number of which flag it has acquired; so what actors keep does not grow with the number of clusters.
All releases of a flag are kept: an acquire counts for each of them, which hides races but invents none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.sanitizer.clocks import SEEN, Clocks, joined
from tritonhook.emulate.sanitizer.semantics import GPU, Semantics
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.sanitizer.world import Wave

Flag = tuple[str, int]  # where it lies
MOST_PUBLICATIONS = 1 << 13
_MOST_FLAGS = 32 * MOST_PUBLICATIONS


@dataclass(slots=True)
class _Told:
    """own: what was released there, by cluster, for warps of the same one. knows: what releasers knew of flags.
    sources: what was published last, by actor."""

    own: dict[int, Array] = field(default_factory=dict)
    knows: Mapping[Flag, int] = field(default_factory=dict)
    sources: dict[int, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Published:
    """Releases of all waves of a launch. by_cluster: the flag, the serial number, and the clock that was released.
    is_full: there are too many to keep: all counts as ordered."""

    flags: dict[Flag, _Told] = field(default_factory=dict)
    by_cluster: dict[int, list[tuple[Flag, int, Array]]] = field(default_factory=dict)
    serial: int = 0

    @property
    def is_full(self) -> bool:
        return self.serial >= MOST_PUBLICATIONS


@dataclass(frozen=True, slots=True)
class _Carried:
    """What an actor carries beside its clock. knows: of flags of other clusters. fenced, wide: its clock at its last
    fence, at its last one for the whole GPU; with_fence: what it knew then. pending, seen: of what it has read and not
    yet fenced, the clock and the flags."""

    knows: Mapping[Flag, int] = field(default_factory=dict)
    fenced: Array | None = None
    wide: Array | None = None
    with_fence: Mapping[Flag, int] = field(default_factory=dict)
    pending: Array | None = None
    seen: Mapping[Flag, int] = field(default_factory=dict)


def _both(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None or a is b:
        return b if a is None else a
    return joined(a, b)


def _merged(a: Mapping[Flag, int], b: Mapping[Flag, int]) -> Mapping[Flag, int]:
    if a is b or not b:
        return a
    if not a or all(b.get(flag, 0) >= serial for flag, serial in a.items()):
        return b
    return {**a, **{flag: max(serial, a.get(flag, 0)) for flag, serial in b.items()}}


def _joined(a: _Carried | None, b: _Carried) -> _Carried:
    if a is None or a is b:
        return b
    return _Carried(
        _merged(a.knows, b.knows),
        _both(a.fenced, b.fenced),
        _both(a.wide, b.wide),
        _merged(a.with_fence, b.with_fence),
        _both(a.pending, b.pending),
        _merged(a.seen, b.seen),
    )


class Flags:
    """The flags that the actors of a machine use."""

    def __init__(self, clocks: Clocks, published: Published, wave: Wave) -> None:
        self.clocks, self.published, self.wave = clocks, published, wave
        self.carried: dict[int, _Carried] = {}
        self._met: dict[Any, _Carried] = {}
        self._opened: dict[Any, _Carried] = {}

    # --- barriers ----------------------------------------------------------------------------

    def give(self, place: Any, actors: Array) -> None:
        for one in self._who_carry(actors):
            self._met[place] = _joined(self._met.get(place), self.carried[one])

    def open(self, place: Any, actors: list[Array]) -> None:
        if (met := self._met.pop(place, None)) is not None:
            self._opened[place] = _joined(self._opened.get(place), met)
            for some in actors:
                self._hand(met, some)

    def wait(self, place: Any, actors: Array) -> None:
        if place in self._opened:
            self._hand(self._opened[place], actors)

    def fenced(self, actors: Array) -> Array:
        """Return what a relaxed arrival hands on: what fences of these actors have covered."""
        known = np.zeros_like(self.clocks.of(actors))
        for one in self._who_carry(actors):
            if (fenced := self.carried[one].fenced) is not None:
                known = joined(known, fenced)
        return known

    def see(self, actors: Array, known: Array) -> None:
        """Actors have waited without an acquire: they know it behind their next fence."""
        for one in actors.tolist():
            now = self.carried.get(one, _Carried())
            self.carried[one] = replace(now, pending=_both(now.pending, known))

    def together(self, actors: Array) -> None:
        """Let these actors know what each of them knew."""
        self.give("together", actors)
        self.open("together", [actors])

    def _who_carry(self, actors: Array) -> Iterator[int]:
        return (one for one in actors.tolist() if one in self.carried) if self.carried else iter(())

    def _hand(self, given: _Carried, actors: Array) -> None:
        for one in actors.tolist():
            self.carried[one] = _joined(self.carried.get(one), given)

    # --- fences and strong accesses ------------------------------------------------------------

    def fence(self, actors: Array, scope: int) -> None:
        """Fence what these actors know and what they have read."""
        for one in actors.tolist():
            now = self.carried.get(one, _Carried())
            if now.pending is not None:
                self.clocks.tell(one, now.pending)
            knows, seen = (_merged(now.knows, now.seen), {}) if scope >= GPU else (now.knows, now.seen)
            known = self.clocks.one(one).copy()
            wide = known if scope >= GPU else now.wide
            self.carried[one] = _Carried(knows, known, wide, knows if scope >= GPU else now.with_fence, None, seen)
        self.clocks.tick(actors)

    def access(self, space: str, index: Array, actors: Array, how: str, one: Semantics) -> None:
        """Note strong accesses to flags, one flag for each actor. index: of the bytes. how: as in Memory.locate."""
        if not (one.releases or self.carried or self.published.flags) or (space == "global" and self.published.is_full):
            return
        pairs = np.unique(np.stack([actors, index]), axis=1).T.tolist()
        if how != "r":
            for actor, at in pairs:
                if space == "global" and self.published.is_full:
                    return
                self._release(actor, (space, at), one)
            if one.releases:
                self.clocks.tick(np.unique(actors))
        if how != "w":
            for actor, at in pairs:
                self._acquire(actor, (space, at), one)

    def _release(self, actor: int, flag: Flag, one: Semantics) -> None:
        now = self.carried.get(actor)
        if one.releases:
            known = wide = self.clocks.one(actor).copy()
            knows = now.knows if now is not None else {}
        elif now is None or now.fenced is None:
            return
        else:
            known, wide, knows = now.fenced, now.wide, now.with_fence
        if len(self.published.flags) > _MOST_FLAGS and flag not in self.published.flags:
            return
        told, cluster = self.published.flags.setdefault(flag, _Told()), self._cluster(actor)
        told.own[cluster] = joined(told.own[cluster], known) if cluster in told.own else known
        if wide is None or one.scope < GPU or told.sources.get(self.wave.first + actor) is wide:
            return
        told.sources[self.wave.first + actor] = wide
        if not self.published.is_full:
            self.published.serial += 1
            self.published.by_cluster.setdefault(cluster, []).append((flag, self.published.serial, wide[SEEN]))
            told.knows = {**_merged(told.knows, knows), flag: self.published.serial}

    def _acquire(self, actor: int, flag: Flag, one: Semantics) -> None:
        if (told := self.published.flags.get(flag)) is None:
            return
        now, own = self.carried.get(actor, _Carried()), told.own.get(self._cluster(actor))
        knows = told.knows if one.scope >= GPU else {}
        if not one.acquires:
            now = replace(now, pending=_both(now.pending, own), seen=_merged(now.seen, knows))
        else:
            if own is not None:
                self.clocks.tell(actor, own)
            now = replace(now, knows=_merged(now.knows, knows))
        self.carried[actor] = now

    def _cluster(self, actor: int) -> int:
        return self.wave.first_cluster + int(self.clocks.cluster(actor))

    def is_ordered(self, actor: int, cluster: int, inside: int, time: int) -> bool:
        """Whether an actor has acquired what an actor of a cluster, by its number inside, had done by a time."""
        if self.published.is_full:
            return True
        if (now := self.carried.get(actor)) is None or not now.knows:
            return False
        return any(
            clock[inside] >= time and now.knows.get(flag, 0) >= serial
            for flag, serial, clock in self.published.by_cluster.get(cluster, ())
        )
