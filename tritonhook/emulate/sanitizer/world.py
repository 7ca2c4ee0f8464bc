"""Check the order of accesses to global memory by all CTAs of a launch.

For each unit of memory, the last write and the last reads of two actors are recorded, as numbers of *events*. An event
is an actor, its time and an instruction. Within a cluster, the clocks of its warps order events. Between clusters, the
releases that actors have acquired order them (flags.py). A write that leaves a byte unchanged does not race with an
earlier write. Two strong accesses do not race if each is in the scope of the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.sanitizer.alike import Alike
from tritonhook.emulate.sanitizer.clocks import SEEN
from tritonhook.emulate.sanitizer.flags import Published
from tritonhook.emulate.sanitizer.semantics import CTA, GPU, WEAK, Semantics
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.memory import Allocation, Memory
    from tritonhook.emulate.sanitizer.order import Order
    from tritonhook.emulate.sanitizer.unset import Unset

MOST_BYTES = 384 << 20  # limit for records of accesses; if global memory needs more, it is not checked
_UNIT_BYTES = 12  # bytes of the records of a unit: a write and two reads
_MOST_EVENTS = 1 << 23
_COLUMNS = "actor", "time", "pc", "scope"
_WORDS = {"r": "read", "w": "write", "a": "atomic access"}
_BULK = {"r": "read of a bulk copy", "w": "bulk copy", "a": "bulk reduction"}
_SEVERAL = {1: np.int32, 2: np.int64, 4: np.complex128}  # by number of units: dtype that holds one event for each
_NONE = np.zeros((0, 1), np.int32)
NEVER = 2**31 - 1  # the time of a bulk store that its thread has not waited for


@dataclass(frozen=True, slots=True)
class Accessed:
    """Accessed bytes of a buffer. Each array has shape (2, pieces): first and end byte of each piece. early_...:
    accesses before the kernel waited for the previous one."""

    written: Array
    read: Array
    early_written: Array
    early_read: Array


def _pieces(where: Array, unit: int) -> Array:
    """Return first and end byte of each piece of consecutive true units, shape (2, pieces). unit: in bytes."""
    return np.flatnonzero(np.diff(np.r_[False, where, False])).reshape(-1, 2).T * unit


@dataclass(frozen=True, slots=True)
class Wave:
    """The actors of a wave, i.e. of CTAs that are executed together. first, first_cluster: numbers of its first actor
    and cluster among those of all waves. grain: threads per actor. of_cta, of_cluster: actors of a CTA, of a
    cluster."""

    first: int
    first_cluster: int
    ctas: tuple[int, ...]
    grain: int
    of_cta: int
    of_cluster: int

    def who(self, actor: int) -> str:
        """Return the name of an actor for people, e.g. "warp 2 of CTA 0"."""
        cta, number = divmod(actor - self.first, self.of_cta)
        return f"{'lane' if self.grain == 1 else 'warp'} {number} of CTA {self.ctas[cta]}"

    def inside(self, actor: int) -> tuple[int, int]:
        """Return the cluster of an actor, and its number in this cluster."""
        cluster, number = divmod(actor - self.first, self.of_cluster)
        return self.first_cluster + cluster, number


class World:
    """Checks the global memory of a launch. unit: bytes that are tracked as one. unset: unwritten words of buffers;
    None if all are written. published: releases of all waves. is_early: the kernel may start before the previous one
    has ended."""

    def __init__(self, memory: Memory, unit: int, unset: Unset | None = None, is_early: bool = False) -> None:
        # _early: units that were written (row 0) and read (row 1) before the wait for the previous kernel.
        self.is_early, self._early = is_early, np.zeros((2, 0), bool)
        self.memory, self.unit, self.unset, self.published = memory, unit, unset, Published()
        self._slots = np.zeros((0, 0), np.int32)  # events of each unit: the last write (row 0), two reads
        self._events = {name: np.zeros(1 << 12, np.int32) for name in _COLUMNS}
        self._are_used = np.zeros((3, 0), bool)  # by row of _slots and allocation: whether there are events
        self._used = 1  # number of the next event; 0 means no event
        self._waves: list[Wave] = []
        self.readers: dict[int, set[tuple[int, int]]] = {}  # reads that race, by instruction; see idle.py
        self._doubts: list[tuple[Callable[[], None], Array, Array]] = []
        self._flying: dict[int, list[tuple[int, int]]] = {}  # by actor: its bulk stores, as commit group and event
        self.fenced = 0  # the first event after the latest proxy fence

    def join(self, machine: Machine, grain: int) -> Wave:
        """Add the wave that a machine executes. grain: threads per actor."""
        geometry, last = machine.geometry, self._waves[-1] if self._waves else None
        first = last.first + len(last.ctas) * last.of_cta if last is not None else 0
        clusters = last.first_cluster + len(last.ctas) * last.of_cta // last.of_cluster if last is not None else 0
        of_cta = geometry.padded_threads // grain
        made = Wave(first, clusters, geometry.ctas, grain, of_cta, of_cta * geometry.cluster_size)
        self._waves.append(made)
        return made

    def wave_of(self, actor: int) -> Wave:
        return self._waves[bisect_right(self._waves, actor, key=lambda wave: wave.first) - 1]

    def fence(self) -> None:
        """Record a fence.proxy.async of global memory by any thread."""
        self.fenced = self._used

    @property
    def unwatched(self) -> str:
        """Reason why races in global memory are not searched for; "" if they are."""
        if (size := len(self.memory.global_.data)) // self.unit * _UNIT_BYTES <= MOST_BYTES:
            return ""
        most = MOST_BYTES // _UNIT_BYTES * self.unit
        return f"races in global memory were not looked for: it has {size:,} bytes, more than the limit of {most:,}"

    @property
    def is_watched(self) -> bool:
        size = len(self.memory.global_.data) // self.unit
        if not self._slots.shape[1] and size * _UNIT_BYTES <= MOST_BYTES:
            self._slots = np.zeros((3, size), np.int32)
            self._early = np.zeros((2, size if self.is_early else 0), bool)
            self._alike = Alike(size)
            self._begins = np.asarray([one.begin for one in self.memory.allocations])
            self._are_used = np.zeros((3, len(self._begins) + 1), bool)
        return bool(self._slots.shape[1])

    def accessed(self, one: Allocation) -> Accessed:
        """Return which bytes of a buffer the launch accessed."""
        units = slice(one.begin // self.unit, -(-(one.begin + one.size) // self.unit))
        slots = self._slots[:, units] if self.is_watched and one.size else np.zeros((3, 0), np.int32)
        each = slots[0] != 0, (slots[1] | slots[2]) != 0, *self._early[:, units]
        return Accessed(*(_pieces(where, self.unit) for where in each))

    # --- accesses ----------------------------------------------------------------------------

    def access(self, order: Order, g: Group, index: Array, size: int, how: str, one: Semantics) -> None:
        """Check and record an access. index: byte indices for the threads of the group's slice. how: see
        Memory.locate. one: semantics of the instruction."""
        if not self.is_watched:
            return
        numbers = g.numbers
        at = index[numbers - g.s.start]
        lanes = numbers // order.grain
        count = max(1, size // self.unit)
        if self.is_early and not order.waited[lanes].all():
            self._come_early((at[~order.waited[lanes]] // self.unit)[:, None] + np.arange(count), how)
        rows, wide = at // (self.unit * count), _SEVERAL.get(count)
        slots = self._slots.reshape(3, -1, count) if wide is None else self._slots.view(wide)
        first, last = (int(np.searchsorted(self._begins, one, "right")) for one in (at.min(), at.max()))
        used = self._are_used[:, first - 1 : last]

        def held(kind: int) -> Array:
            if not used[kind].any():
                return _NONE
            found: Array = slots[kind].take(rows, 0).view(np.int32).reshape(-1, count)
            return found

        def hold(kind: int, events: Array) -> None:
            used[kind] = True
            slots[kind][rows] = events if wide is None else np.ascontiguousarray(events).view(wide)[:, 0]

        made = self._made(order, lanes, one)
        events = np.repeat(made, count).reshape(-1, count)
        written = held(0)
        others = self._check(order, lanes, rows, written, ("write", how), one)
        threads = None if order.grain == 1 or (one.scope and how != "a") else numbers
        self._check_lanes(order, threads, rows, written, ("write", how))
        if how == "r":
            if (last := held(1)).any():  # another actor's read stays in slot 1; then this read goes to slot 2
                mine = (last == 0) | (self._events["actor"][last] == lanes[:, None] + order.wave.first)
                if not mine.all():
                    hold(2, np.where(mine, slots[2].take(rows, 0).view(np.int32).reshape(-1, count), events))
                events = np.where(mine, events, last)
            hold(1, events)
        else:
            for kind in (1, 2):
                if (read := held(kind)).any():
                    self._check(order, lanes, rows, read, ("read", how), one)
                    self._check_lanes(order, threads, rows, read, ("read", how))
                    hold(kind, np.zeros_like(read))
            hold(0, events)
            if how == "w":
                self._note_alike(order, lanes, rows, others, events)
            else:
                self._alike.changed((rows[:, None] * count + np.arange(count)).reshape(-1))
            if how == "a" and one.scope < GPU:  # check against other actors of the same step
                self._check(order, lanes, rows, held(0), ("write", how), one)
        if threads is not None:
            order.recent_outside.note(order.machine.pc, numbers, at, size)
        if one.releases and how != "r" and order.grain > 1:
            self._leave_out(order, numbers)
        if one.scope:
            order.flags.access("global", at, lanes, how, one)

    def _leave_out(self, order: Order, threads: Array) -> None:
        """Process a release. If only one lane of a warp releases, it releases only its own writes: writes of other
        lanes since the warp's last barrier get a later time, so that the release does not cover them."""
        warps, first, counts = np.unique(threads // WARP, return_index=True, return_counts=True)
        warps, alone = warps[counts == 1], threads[first[counts == 1]]
        for pc, (made, times) in order.events.items():
            late = times[warps] == order.clocks.now(warps)
            if not late.any() or (found := order.recent_outside.by_other_lanes(pc, alone[late])) is None:
                continue
            units = found[np.isin(self._slots[0][found], made[warps[late]])]
            if len(units):
                old, which = np.unique(self._slots[0][units], return_inverse=True)
                who, when = (self._events[name][old] for name in ("actor", "time"))
                self._slots[0][units] = self._add(order, who - order.wave.first, when + 1, Semantics(), pc)[which]

    def _come_early(self, units: Array, how: str) -> None:
        for kind in {"r": (1,), "w": (0,), "a": (0, 1)}[how]:
            self._early[kind, units] = True

    def _check_lanes(
        self, order: Order, threads: Array | None, rows: Array, events: Array, what: tuple[str, str]
    ) -> None:
        """Report units that these threads access and that other lanes of their warp have accessed since the warp's last
        barrier. what: the earlier and the current access, e.g. ("write", "r")."""
        if threads is None or not events.any():
            return
        count = events.shape[1]
        threads, events = np.repeat(threads, count), events.reshape(-1)
        actors = threads // order.grain
        columns = {name: row[events] for name, row in self._events.items()}
        own = (events > 0) & (columns["actor"] == actors + order.wave.first)
        own &= (columns["scope"] == WEAK) | (what[1] != "a")
        own &= columns["time"] == order.clocks.now(actors)
        units = (rows[:, None] * count + np.arange(count)).reshape(-1)
        for pc in np.unique(columns["pc"][own]).tolist():
            some = np.flatnonzero(own & (columns["pc"] == pc))
            how = "r" if what[0] == "read" else "a" if columns["scope"][some[0]] else "w"
            wrong = some[order.recent_outside.by_others(pc, threads[some], units[some], how)]
            if len(wrong):
                self._found(order, actors, events, units, wrong, what, "lanes")

    def copied(self, order: Order, thread: int, index: Array, size: int, how: str, changes: Array | None) -> None:
        """Check and record a bulk copy of a thread. It reads at once; its writes end when the thread has waited for
        them. index: byte indices of pieces of `size` bytes. changes: mask of the pieces whose contents change."""
        if not self.is_watched or not len(index):
            return
        self._are_used[:] = True
        pieces = index if changes is None else index[changes]
        units, every = (
            np.unique(one[:, None] // self.unit + np.arange(max(1, size // self.unit))) for one in (pieces, index)
        )
        one = Semantics(GPU if how == "a" else WEAK)
        written, lane = self._slots[0], thread // order.grain
        if not order.waited[lane]:
            self._come_early(every, how)
        for rows, kinds in ((units, (0,)), (every, (1, 2) if how != "r" else ())):
            for kind in kinds:
                events, lanes = self._slots[kind][rows][:, None], np.full(len(rows), lane)
                self._check(order, lanes, rows, events, ("read" if kind else "write", _BULK[how]), one)
        if how == "r":
            self._check_fence(order, lane, every, written[every])
        elif len(every):
            self._alike.changed(every)
            self._slots[1:, every] = 0
        event = self._add(order, np.array([lane]), np.array([NEVER if how != "r" else order.clocks.now(lane)]), one)
        if how != "r":
            self._flying.setdefault(lane + order.wave.first, []).append(
                (order.flights.group("bulk", lane), int(event[0]))
            )
        self._slots[1 if how == "r" else 0, every] = event

    def _check_fence(self, order: Order, lane: int, units: Array, events: Array) -> None:
        """Report units that a bulk copy reads and that plain stores wrote without a proxy fence since."""
        late = np.flatnonzero(events >= max(1, self.fenced))
        if len(late):
            code, pcs = order.machine.code.instructions, self._events["pc"][events[late]]
            plain = {
                pc for pc in np.unique(pcs).tolist() if not code[pc].text.lstrip("@!%pP0123456789 ").startswith("cp.")
            }
            late = late[np.isin(pcs, [*plain])]
        if len(late):
            self._found(order, np.full(len(units), lane), events, units, late, ("write", _BULK["r"]), "fence")

    def landed(self, order: Order, g: Group, pending: int) -> None:
        """Record that the bulk stores of these warps have ended, except those of their latest `pending` groups."""
        for lane in np.unique(g.numbers // order.grain).tolist() if self._flying else ():
            flying = self._flying.pop(lane + order.wave.first, [])
            limit = order.flights.group("bulk", lane) - pending
            for group, event in flying:
                if group < limit:
                    self._events["time"][event] = order.clocks.now(lane)
                else:
                    self._flying.setdefault(lane + order.wave.first, []).append((group, event))

    def _check(
        self, order: Order, lanes: Array, rows: Array, events: Array, what: tuple[str, str], one: Semantics
    ) -> Array | None:
        """Report accesses that are not ordered after earlier events.

        lanes, rows: actor and index of each access. events: the earlier events of the accessed units, a row per access;
        0: no event. what: the earlier and the current access. Return for each unit the actor of the event that is not
        ordered before the access, else -1; None if all are ordered.
        """
        if not events.any():
            return None
        count = events.shape[1]
        actors, events = np.repeat(lanes, count), events.reshape(-1)
        units = (rows[:, None] * count + np.arange(count)).reshape(-1)
        first, kind = self._unordered(order, actors, events, one), "global"
        if first is None:
            if not one.is_constant or what[0] == "read":
                return None
            first, kind = np.flatnonzero(events), "constant"
        if what == ("write", "r") and kind == "global":
            first = first[~self._alike.are_writers(units[first], actors[first] + order.wave.first)]
        if len(first):
            self._found(order, actors, events, units, first, what, kind)
        found = np.full(len(units), -1)
        found[first] = self._events["actor"][events[first]]
        return found

    def _note_alike(self, order: Order, lanes: Array, rows: Array, others: Array | None, events: Array) -> None:
        """Record the actors that write the same units. others: for each unit, the actor of an earlier write that is not
        ordered before this one, or -1; None: no unit has such a write. events: the events of these writes."""
        count = events.shape[1]
        units, events = (rows[:, None] * count + np.arange(count)).reshape(-1), events.reshape(-1)
        last = self._slots[0][units]
        if others is None and (last == events).all():
            return self._alike.changed(units)
        before = np.where(last != events, self._events["actor"][last], -1 if others is None else others)
        self._alike.wrote(units, np.repeat(lanes, count) + order.wave.first, before)

    def _found(
        self, order: Order, actors: Array, events: Array, units: Array, first: Array, what: tuple[str, str], kind: str
    ) -> None:
        """Report accesses that conflict with earlier accesses. actors, events, units: actor, earlier access and unit of
        memory of each checked access. first: indices of the accesses to report."""
        if what[0] == "read":
            self._note_readers(self._events["pc"][events[first]], self._events["actor"][events[first]])
        elif what[1] == "r":
            self._note_readers(np.full(len(first), order.machine.pc), actors[first] + order.wave.first)
        doubts = np.full(len(first), what == ("write", "w"))
        if what == ("read", "w"):  # is the reader also a writer of the same value?
            readers, last = self._events["actor"][events[first]], self._slots[0][units[first]]
            doubts = (readers == self._events["actor"][last]) | self._alike.are_writers(units[first], readers)
        for some in (first[doubts], first[~doubts]):
            if len(some):
                add = self._pair(order, actors[some[0]], events[some[0]], what, units[some[0]], kind)
                if some[0] in first[doubts]:  # no race if the write changes nothing
                    self._doubts.append((add, units[some], self._bytes(units[some])))
                else:
                    add()

    def _made(self, order: Order, actors: Array, one: Semantics) -> Array:
        """Return the event number of each access. Make a new event if the actor's time has changed since its last
        execution of this instruction."""
        pc = order.machine.pc
        known = order.events.get(pc)
        if known is None:
            known = order.events[pc] = np.zeros((2, order.warps), np.int32)
        who = actors if len(actors) < 2 else actors[np.r_[True, actors[1:] != actors[:-1]]]
        now = order.clocks.now(who)
        old = known[1, who] != now
        if old.any():
            who = np.unique(who[old])
            known[1, who] = order.clocks.now(who)
            known[0, who] = self._add(order, who, known[1, who], one)
        found: Array = known[0, actors]
        return found

    def _add(self, order: Order, who: Array, times: Array, one: Semantics, pc: int | None = None) -> Array:
        """Add an event for each of these actors, and return their numbers. pc: the instruction; None: the current
        one."""
        pc = order.machine.pc if pc is None else pc
        if self._used + len(who) > _MOST_EVENTS:
            raise Unfinished(f"more than {_MOST_EVENTS:,} accesses of global memory by different warps or instructions")
        if self._used + len(who) > len(self._events["pc"]):
            room = max(len(who), len(self._events["pc"]))
            self._events = {name: np.r_[row, np.zeros(room, np.int32)] for name, row in self._events.items()}
        made = np.arange(self._used, self._used + len(who))
        for name, value in zip(_COLUMNS, (who + order.wave.first, times, pc, one.scope), strict=True):
            self._events[name][made] = value
        self._used += len(who)
        return made

    def _unordered(self, order: Order, actors: Array, events: Array, one: Semantics) -> Array | None:
        """Return the indices of accesses that are not ordered after their events; None if all are. events: 0 means no
        event."""
        others = self._events["actor"][events]
        is_flying = self._events["time"][events] == NEVER
        doubt = np.flatnonzero((events > 0) & ((others != actors + order.wave.first) | is_flying))
        if not len(doubt):
            return None
        mine, others, events = actors[doubt], others[doubt], events[doubt]
        times, local = self._events["time"][events], others - order.wave.first
        here = (local >= 0) & (local < order.warps)
        local = np.where(here, local, 0)
        near = here & (order.clocks.cluster(local) == order.clocks.cluster(mine))
        known = np.zeros(len(mine), bool)
        known[near] = order.clocks.known(SEEN, mine[near], local[near]) >= times[near]
        if one.scope:
            scopes = np.minimum(self._events["scope"][events], one.scope)
            of_cta = order.wave.of_cta
            same = near & (local // of_cta == mine // of_cta)
            known |= (scopes >= GPU) | ((scopes > WEAK) & same) | ((scopes > CTA) & near)
        left = np.flatnonzero(~known)
        if len(left) and (order.flags.carried or self.published.is_full):
            pairs, which = np.unique(np.stack([mine[left], events[left]]), axis=1, return_inverse=True)
            ordered = np.array([self._is_acquired(order, *pair) for pair in pairs.T.tolist()])
            left = left[~ordered[which.reshape(-1)]]
        return doubt[left] if len(left) else None

    def _is_acquired(self, order: Order, actor: int, event: int) -> bool:
        other, time = int(self._events["actor"][event]), int(self._events["time"][event])
        return order.flags.is_ordered(actor, *self.wave_of(other).inside(other), time)

    # --- findings ----------------------------------------------------------------------------

    def _pair(
        self, order: Order, actor: int, event: int, what: tuple[str, str], unit: int, kind: str
    ) -> Callable[[], None]:
        """Return a function that reports one conflict."""
        columns, (first, how) = self._events, what
        first = "atomic access" if columns["scope"][event] and first == "write" else first
        earlier = first, int(columns["pc"][event]), int(columns["actor"][event])
        own = "another lane's " if kind == "lanes" else ""
        mine = own + _WORDS.get(how, how), order.machine.pc, int(actor) + order.wave.first
        return lambda: order.add_conflict(kind, earlier, mine, int(unit) * self.unit)

    def _note_readers(self, pcs: Array, actors: Array) -> None:
        for pc, actor in set(zip(pcs.tolist(), actors.tolist(), strict=True)):
            wave = self.wave_of(actor)
            cta, number = divmod(actor - wave.first, wave.of_cta)
            self.readers.setdefault(pc, set()).add((wave.ctas[cta], number))

    def _bytes(self, units: Array) -> Array:
        return self.memory.global_.data.reshape(-1, self.unit)[units].copy()

    def stored(self, order: Order, g: Group, index: Array, unit: int, values: Any, how: Semantics) -> None:
        """Report recorded races whose write has changed bytes, and different values that one instruction has written to
        one location."""
        for add, units, before in self._doubts:
            if (self._bytes(units) != before).any():
                add()
        self._doubts.clear()
        if not how.scope and (pair := order.written_differently(self.memory.global_, g, index, unit, values)):
            one, other = (("write", order.machine.pc, order.wave.first + actor) for actor in pair[:2])
            order.add_conflict("global", one, other, pair[2])

    def who(self, actor: int) -> str:
        return self.wave_of(actor).who(actor)

    def where(self, index: int) -> str:
        """Describe for people where a byte of global memory lies: its number in a buffer, and the buffer's name."""
        one = self.memory.allocations[bisect_right([a.begin for a in self.memory.allocations], index) - 1]
        return f"byte {index - one.begin:,} of {one.name}{self.memory.element(one, index)}"
