"""Track synchronisation through memory: flags, locks, counters, semaphores.

A release is a strong write with `.release`, or a strong write after a fence. An acquire is a strong read with
`.acquire`, or a strong read before a fence. An acquire orders later accesses of its warp after accesses that came
before the release of the same flag. Barriers pass this order on to the other warps.

Within a cluster, a release stores the warp's clock at the flag, and an acquire joins this clock. Between clusters, a
release is a *publication* with a serial number. Each actor records the highest serial number that it has acquired of
each flag, so its state does not grow with the number of clusters. All releases of a flag are kept, and an acquire
acquires all of them. This may hide races, but never reports false ones.
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

Flag = tuple[str, int]  # its space, and its byte index there
MOST_PUBLICATIONS = 1 << 13
_MOST_FLAGS = 32 * MOST_PUBLICATIONS


@dataclass(slots=True)
class _Released:
    """Releases of one flag. own: by cluster, the released clock, for acquires in the same cluster. knows: publications
    that the releasing actors had acquired, by flag. sources: by actor, the clock that it published last."""

    own: dict[int, Array] = field(default_factory=dict)
    knows: Mapping[Flag, int] = field(default_factory=dict)
    sources: dict[int, Array] = field(default_factory=dict)


@dataclass(slots=True)
class Published:
    """Releases of all waves of a launch. by_cluster: publications of each cluster: flag, serial number, released clock.
    is_full: there were too many to record; now all accesses count as ordered."""

    flags: dict[Flag, _Released] = field(default_factory=dict)
    by_cluster: dict[int, list[tuple[Flag, int, Array]]] = field(default_factory=dict)
    serial: int = 0

    @property
    def is_full(self) -> bool:
        return self.serial >= MOST_PUBLICATIONS


@dataclass(frozen=True, slots=True)
class _Carried:
    """State of an actor besides its clock. knows: serial numbers of publications that it has acquired, by flag. fenced:
    its clock at its last fence. wide, with_fence: its clock and its `knows` at its last fence of GPU scope. pending,
    seen: clocks and publications that it has read since its last fence; the next fence acquires them."""

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
    """Releases and acquires by the actors of one machine."""

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
        """Return the clock that a relaxed arrival at a barrier passes on: that of these actors' last fences."""
        known = np.zeros_like(self.clocks.of(actors))
        for one in self._who_carry(actors):
            if (fenced := self.carried[one].fenced) is not None:
                known = joined(known, fenced)
        return known

    def see(self, actors: Array, known: Array) -> None:
        """Record a relaxed wait at a barrier: the next fence of these actors acquires the barrier's clock `known`."""
        for one in actors.tolist():
            now = self.carried.get(one, _Carried())
            self.carried[one] = replace(now, pending=_both(now.pending, known))

    def together(self, actors: Array) -> None:
        """Join the states of these actors, as a barrier does."""
        self.give("together", actors)
        self.open("together", [actors])

    def _who_carry(self, actors: Array) -> Iterator[int]:
        return (one for one in actors.tolist() if one in self.carried) if self.carried else iter(())

    def _hand(self, given: _Carried, actors: Array) -> None:
        for one in actors.tolist():
            self.carried[one] = _joined(self.carried.get(one), given)

    # --- fences and strong accesses ------------------------------------------------------------

    def fence(self, actors: Array, scope: int) -> None:
        """Execute a fence: later strong writes of these actors release, and their earlier strong reads acquire. scope:
        a constant of semantics.py."""
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
        """Process strong accesses as releases and acquires. index: byte index of the flag, for each of `actors`. how:
        see Memory.locate. one: semantics of the instruction."""
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
        released, cluster = self.published.flags.setdefault(flag, _Released()), self._cluster(actor)
        released.own[cluster] = joined(released.own[cluster], known) if cluster in released.own else known
        if wide is None or one.scope < GPU or released.sources.get(self.wave.first + actor) is wide:
            return
        released.sources[self.wave.first + actor] = wide
        if not self.published.is_full:
            self.published.serial += 1
            self.published.by_cluster.setdefault(cluster, []).append((flag, self.published.serial, wide[SEEN]))
            released.knows = {**_merged(released.knows, knows), flag: self.published.serial}

    def _acquire(self, actor: int, flag: Flag, one: Semantics) -> None:
        if (released := self.published.flags.get(flag)) is None:
            return
        now, own = self.carried.get(actor, _Carried()), released.own.get(self._cluster(actor))
        knows = released.knows if one.scope >= GPU else {}
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
        """Whether the accesses of another actor up to `time` are ordered before this actor. The other actor belongs to
        another cluster. cluster, inside: its cluster, and its number there."""
        if self.published.is_full:
            return True
        if (now := self.carried.get(actor)) is None or not now.knows:
            return False
        return any(
            clock[inside] >= time and now.knows.get(flag, 0) >= serial
            for flag, serial, clock in self.published.by_cluster.get(cluster, ())
        )
