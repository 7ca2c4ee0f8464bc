"""Which accesses of shared memory are ordered: a clock for each warp, as race detectors for threads have; for each lane
where a CTA is one warp. Below, "warp" is either.

Each warp counts its own time, and knows up to which time of each other warp it is ordered behind (clocks.py). Barriers
and mbarriers hand that on. An access of a byte is a race if the last one of another warp is not ordered before it, and
one of the two writes. The bulk copies that one mbarrier waits for are an actor of their own, and so is a CTA's tensor
core where it executes tcgen05. Reads of wgmma and of bulk stores last until they are waited for, those of tcgen05 until
a commit of theirs has arrived, copies of cp.async until they have landed. FENCED is as SEEN, but of writes behind which
comes a `fence.proxy.async`: what wgmma, tcgen05 and bulk stores read has to be ordered so, too.

Lanes of one warp among several are not told apart. Writes that leave a byte as it was, behind another write, are no
race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.machine import WARP
from tritonhook.emulate.sanitizer.clocks import FENCED, SEEN, Clocks, joined
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.capture.launches.record import Launch
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.memory import Memory

Place = tuple[str, int]  # of a barrier
NEVER = 1 << 60  # when an access of tensor memory is done that its warp has not waited for
MOST = 32  # findings
PART = 16  # lanes of tensor memory that are told apart
PAGE = 256  # units whose reads by a warp are kept together
_UNIT_BYTES, _READ_BYTES = 25, 8  # of a unit: its last write; its last read by one warp
_READERS = 8  # warps of which room is kept for reads of all of a CTA's memory
_LEAST_READ_BYTES = 192 << 20
_MOST_FLIGHTS = 1 << 16
KINDS = {"wgmma": "read of wgmma", "bulk": "read of a bulk store", "tcgen05": "read of tcgen05.mma"}


@dataclass(frozen=True, slots=True)
class Access:
    """pc: of the instruction. actor: the warp, or the copies of an mbarrier. what: "read", "write", ..."""

    what: str
    pc: int
    actor: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of one byte of shared memory that nothing orders; of one kind: "race" or "proxy"; "tensor": of one
    column of tensor memory. first: the earlier one, as it was executed. at: the shared address, or the column."""

    kind: str
    first: Access
    second: Access
    at: int


class TensorAccesses:
    """The last access of each column of tensor memory, for each 16 lanes: by which actor, when, and by which
    instruction."""

    def __init__(self, ctas: int) -> None:
        from tritonhook.emulate.tensor_memory import COLUMNS, LANES

        shape = ctas, LANES // PART, COLUMNS
        self.actor, self.time, self.pc = np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape, np.int64)

    def note(self, where: Any, actor: int, time: int, pc: int) -> None:
        self.actor[where], self.time[where], self.pc[where] = actor, time, pc


def watched_bytes(shared: int, launch: Launch, unit: int) -> int:
    """What it takes to watch a CTA, about. shared: bytes of its shared memory."""
    warps = -(-launch.block[0] * launch.block[1] * launch.block[2] // WARP)
    actors = (WARP if warps == 1 else warps) * launch.cluster[0] * launch.cluster[1] * launch.cluster[2] + 16
    of_unit = _UNIT_BYTES + _READ_BYTES * min(actors, _READERS)
    return shared // unit * of_unit + 16 * actors * actors + 1024 * warps


class _Reads:
    """The last read of each unit by each warp of its cluster: when, and by which instruction. Pages are made where
    there is a read."""

    def __init__(self, rows: int, size: int) -> None:
        pages = rows * -(-size // PAGE)
        most = max(size * _READERS * _READ_BYTES, _LEAST_READ_BYTES) // (PAGE * _READ_BYTES)
        self._page = np.full((rows, -(-size // PAGE)), -1, np.int32)
        self._times, self._pcs = (np.zeros((min(pages, most), PAGE), np.int32) for _ in "tp")
        self._used = 0

    def note(self, rows: Array, places: Array, times: Array, pc: int) -> None:
        pages = self._page[rows, places // PAGE]
        if (missing := pages < 0).any():
            new = np.unique(np.stack([rows[missing], places[missing] // PAGE]), axis=1)
            end = self._used + new.shape[1]
            if end > len(self._times):
                raise Unfinished(f"more reads of shared memory than {self._times.nbytes * 2:,} bytes can keep")
            self._page[new[0], new[1]] = np.arange(self._used, end)
            self._used = end
            pages = self._page[rows, places // PAGE]
        self._times[pages, places % PAGE], self._pcs[pages, places % PAGE] = times, pc

    def times(self, row: int, places: Array) -> Array | None:
        """When each place was read by the warp of a row, 0 for never; None if none was."""
        pages = self._page[row, places // PAGE]
        if (pages < 0).all():
            return None
        return np.where(pages < 0, 0, self._times[pages, places % PAGE])

    def pc(self, row: int, place: int) -> int:
        return int(self._pcs[self._page[row, place // PAGE], place % PAGE])


@dataclass(slots=True, eq=False)
class _Flight:
    """Reads that last until a warp has waited for them. clocks: when which warp had."""

    pc: int
    warp: int
    group: int
    clocks: dict[int, int] = field(default_factory=dict)


class Order:
    """Watches the shared memory of a machine. conflicts: what was found. unwritten: instructions that read what nothing
    has written. unit: bytes that are told apart. grain: threads of what counts as a warp."""

    def __init__(self, machine: Machine, memory: Memory, unit: int) -> None:
        self.machine, self.memory, self.unit = machine, memory, unit
        self.grain = 1 if machine.geometry.padded_threads == WARP else WARP
        self.warps, ctas = machine.threads // self.grain, len(machine.geometry.ctas)
        self.clocks = Clocks(self.warps, ctas, machine.geometry.cluster_size)
        self._copies: dict[Place, int] = {}
        self.rows = machine.geometry.padded_threads // self.grain * machine.geometry.cluster_size
        size = len(memory.shared.data) // unit
        self.writer, self.write_pc = np.full(size, -1, np.int32), np.zeros(size, np.int32)
        self.written = np.zeros(size, np.int64)
        self.is_generic, self.flying = np.zeros(size, bool), np.zeros(size, np.int32)
        self.read = _Reads(self.rows, size)
        self.flight = np.zeros(size, np.int32)  # the number of the latest one that reads there, plus one
        self.flights: list[_Flight] = []
        self.committed = {kind: np.zeros(self.warps, np.int64) for kind in KINDS}
        self.open_flights: dict[str, list[_Flight]] = {kind: [] for kind in KINDS}
        self.conflicts: dict[tuple[str, int, int], Conflict] = {}
        self.unwritten: set[int] = set()
        self._meeting: dict[Place, Array] = {}
        self._opened: dict[Place, Array] = {}
        self._waiting: dict[Place, list[Array]] = {}
        self._doubts: list[tuple[Conflict, Array, Array]] = []

    @property
    def owners(self) -> Sequence[int]:
        """The CTA of each actor behind the warps: first their tensor cores, then copies."""
        return self.clocks.owners

    @cached_property
    def tensor(self) -> dict[bool, TensorAccesses]:
        """The last reads and the last writes."""
        return {writes: TensorAccesses(len(self.machine.geometry.ctas)) for writes in (False, True)}

    # --- barriers ----------------------------------------------------------------------------

    def arrive(self, place: Place, threads: Array, waits: bool) -> None:
        """Threads arrive; those that wait go on when it opens."""
        self._give(place, np.unique(threads // self.grain), waits)

    def copied(self, place: Place) -> None:
        """Bytes of a bulk copy arrive at an mbarrier."""
        self._give(place, np.array([self._copies_for(place)]), False)

    def _copies_for(self, place: Place) -> int:
        """The copies that an mbarrier waits for, as an actor: those of others may be done later."""
        if place not in self._copies:
            self._copies[place] = self.clocks.add(place[1] // self.memory.shared_bytes)
        return self._copies[place]

    def _give(self, place: Place, actors: Array, waits: bool) -> None:
        known = self.clocks.of(actors)
        self._meeting[place] = joined(self._meeting.get(place, known), known)
        self.clocks.tick(actors)
        if waits:
            self._waiting.setdefault(place, []).append(actors)

    def open(self, place: Place) -> None:
        """All are there: those that wait know what each of them knew."""
        known = self._meeting.pop(place, None)
        if known is None:
            return
        self._opened[place] = joined(self._opened.get(place, known), known)
        for actors in self._waiting.pop(place, []):
            self.clocks.take(actors, known)

    def wait(self, place: Place, threads: Array, is_open: bool) -> None:
        """Threads go on behind a barrier that is open, or will when it opens."""
        actors = np.unique(threads // self.grain)
        if not is_open:
            self._waiting.setdefault(place, []).append(actors)
        elif place in self._opened:
            self.clocks.take(actors, self._opened[place])

    def fence(self, g: Group) -> None:
        """fence.proxy.async: what these warps know is also ordered for the asynchronous proxy."""
        actors = np.unique(g.numbers // self.grain)
        self.clocks.fence(actors)
        self.clocks.tick(actors)

    def together(self, g: Group) -> None:
        """bar.warp.sync: the lanes here know what each of them knew."""
        if self.grain == 1:
            for warp in np.unique(g.numbers // WARP):
                lanes = g.numbers[g.numbers // WARP == warp]
                self.clocks.take(lanes, self.clocks.of(lanes))
                self.clocks.tick(lanes)

    # --- accesses ----------------------------------------------------------------------------

    def _places(self, index: Array, size: int) -> Array:
        """The numbers of the units that accesses take, one row for each."""
        return (index // self.unit)[:, None] + np.arange(max(1, size // self.unit))

    def access(self, g: Group, index: Array, size: int, how: str) -> None:
        """Lanes read or write. index: over the slice. how: as in Memory.locate."""
        if how in "bc":
            return
        numbers = g.numbers
        places = self._places(index[numbers - g.s.start], size)
        actors = np.repeat(numbers // self.grain, places.shape[1])
        places = places.reshape(-1)
        # Atomics of a cluster are ordered among one another: one is a write, and no read that others have to wait for.
        by_cluster = dict(self._by_cluster(np.unique(actors))) if how == "a" else {}
        for place, some in by_cluster.items():
            if place in self._opened:
                self.clocks.take(some, self._opened[place])
        if how != "w":
            self._reads(places, actors, how == "r")
        if how != "r":
            self._writes(places, actors, how)
        for place, some in by_cluster.items():
            self._give(place, some, False)
            self.open(place)

    def _by_cluster(self, actors: Array) -> Iterator[tuple[Place, Array]]:
        """The atomics of each cluster, as a place, and its actors. actors: in order."""
        clusters = self.clocks.cluster(actors)
        for some in np.split(actors, np.flatnonzero(np.diff(clusters)) + 1):
            yield ("atomics", int(self.clocks.cluster(some[0]))), some

    def _reads(self, places: Array, actors: Array, is_kept: bool) -> None:
        pc = self.machine.pc
        self._check_writer(places, actors, Access("read", pc, 0))
        if (self.writer[places] < 0).any():
            self.unwritten.add(pc)
        if is_kept:
            self.read.note(actors % self.rows, places, self.clocks.now(actors), pc)

    def _check_writer(self, places: Array, actors: Array, mine: Access) -> None:
        """Whether the last write of each place is ordered before this access."""
        writers = self.writer[places]
        wrong = (writers >= 0) & (writers != actors) & (self.written[places] > self._seen(actors, writers))
        if wrong.any():
            self._conflict("race", places, actors, wrong, self._write_at, mine)
        self._check_flying(places, actors, mine)

    def _seen(self, actors: Array, others: Array) -> Array:
        seen: Array = self.clocks.known(SEEN, actors, others)
        return seen

    def _check_flying(self, places: Array, actors: Array, mine: Access) -> None:
        """Whether a copy is on its way there."""
        flying = self.flying[places] > 0
        if flying.any():
            self._conflict("race", places, actors, flying, self._flying_at, mine)

    def _writes(self, places: Array, actors: Array, how: str) -> None:
        pc = self.machine.pc
        mine = Access("atomic access" if how == "a" else "write", pc, 0)
        self._check_readers(places, actors, mine)
        self._check_flying(places, actors, mine)
        writers = self.writer[places]
        doubt = (writers >= 0) & (writers != actors) & (self.written[places] > self._seen(actors, writers))
        if doubt.any() and how == "w":  # it may leave all as it is
            where = places[doubt]
            first = int(np.flatnonzero(doubt)[0])
            conflict = self._made("race", where[0], int(actors[first]), self._write_at(int(where[0])), mine)
            self._doubts.append((conflict, where, self._bytes(where)))
        self._written(places, actors, pc, True)

    def _written(self, places: Array, actors: Array, pc: int, is_generic: bool) -> None:
        self.writer[places], self.write_pc[places] = actors, pc
        self.written[places] = self.clocks.now(actors)
        self.is_generic[places], self.flying[places] = is_generic, 0

    def _check_readers(self, places: Array, actors: Array, mine: Access) -> None:
        for row in range(self.rows):
            times = self.read.times(row, places)
            if times is None:
                continue
            readers = self._first_warp(places) + row
            wrong = (times > self._seen(actors, readers)) & (readers != actors)
            if wrong.any():
                self._conflict("race", places, actors, wrong, lambda at, r=row: self._read_at(at, r), mine)
        for number in np.unique(self.flight[places]):
            if number == 0:
                continue
            flight = self.flights[number - 1]
            here = self.flight[places] == number
            ordered = [self._seen(actors, np.full_like(actors, warp)) >= time for warp, time in flight.clocks.items()]
            wrong = here & ~np.logical_or.reduce(ordered) if ordered else here
            if wrong.any():
                first = Access("asynchronous read", flight.pc, flight.warp)
                self._conflict("race", places, actors, wrong, lambda at, one=first: one, mine)

    def stored(self, g: Group, index: Array, unit: int, values: Array) -> None:
        """Lanes have written. Warps of one instruction that write other values to one place: a race."""
        self._settle_doubts()
        held = self.memory.shared.read(index, unit, len(values))
        wrong = (held != np.asarray(list(values))).any(0)
        if wrong.any():
            actors, lane = g.numbers // self.grain, int(np.flatnonzero(wrong)[0])
            same = np.flatnonzero((index == index[lane]) & (actors != actors[lane]))
            if len(same):
                pc, at = self.machine.pc, int(index[lane])
                first, second = (Access("write", pc, int(actors[one])) for one in (lane, int(same[0])))
                self._add(Conflict("race", first, second, at % self.memory.shared_bytes))

    # --- what is asynchronous ------------------------------------------------------------------

    def copying(self, g: Group, index: Array, size: int) -> None:
        """cp.async begins."""
        numbers = g.numbers
        places = self._places(index[numbers - g.s.start], size)
        actors = np.repeat(numbers // self.grain, places.shape[1])
        places, mine = places.reshape(-1), Access("copy", self.machine.pc, 0)
        self._check_writer(places, actors, mine)
        self._check_readers(places, actors, mine)
        self.flying[places] = self.machine.pc + 1
        self.writer[places] = np.maximum(self.writer[places], 0)

    def landed(self, threads: Array, index: Array, size: int) -> None:
        """The copies of these threads have arrived."""
        places = self._places(index, size)
        actors, places = np.repeat(threads // self.grain, places.shape[1]), places.reshape(-1)
        pcs = self.flying[places] - 1
        self._written(places, actors, 0, False)
        self.write_pc[places] = pcs

    def bulk_write(self, thread: int, index: Array, size: int, barrier: int) -> None:
        """A bulk copy to shared memory: by the copies of its mbarrier, ordered behind what its thread knows."""
        places, warp = self._places(index, size).reshape(-1), thread // self.grain
        actor = self._copies_for(("mbarrier", barrier))
        self.clocks.take(np.array([actor]), self.clocks.of(np.array([warp])))
        actors, mine = np.full(len(places), actor), Access("bulk copy", self.machine.pc, 0)
        self._check_writer(places, actors, mine)
        self._check_readers(places, actors, mine)
        self.clocks.tick(actor)
        self._written(places, actors, mine.pc, False)

    def bulk_read(self, kind: str, threads: Sequence[int], index: Array, size: int) -> None:
        """A read that lasts until its warps wait for it: see KINDS. threads: one of each warp."""
        places, pc = np.unique(self._places(index.reshape(-1), size)), self.machine.pc
        for thread in threads:
            warp = thread // self.grain
            actors, mine = np.full(len(places), warp), Access(KINDS[kind], pc, 0)
            self._check_writer(places, actors, mine)
            writers = self.writer[places]
            known = self.clocks.known(FENCED, actors, writers)
            wrong = self.is_generic[places] & (writers >= 0) & (self.written[places] > known)
            if wrong.any():
                self._conflict("proxy", places, actors, wrong, self._write_at, mine)
        if (self.writer[places] < 0).any():
            self.unwritten.add(pc)
        warp = threads[0] // self.grain
        made = _Flight(pc, warp, int(self.committed[kind][warp]))
        if len(self.flights) == _MOST_FLIGHTS:  # most of them are read over by now
            used = np.unique(self.flight)
            self.flight = np.searchsorted(used[used > 0], self.flight).astype(np.int32) + (self.flight > 0)
            self.flights = [self.flights[number - 1] for number in used[used > 0]]
            if len(self.flights) == _MOST_FLIGHTS:
                raise Unfinished(f"more than {_MOST_FLIGHTS:,} reads of matrices and bulk stores at once")
        self.flights.append(made)
        self.open_flights[kind].append(made)
        self.flight[places] = len(self.flights)

    def commit(self, g: Group, kind: str) -> None:
        """The group of these reads ends."""
        self.committed[kind][np.unique(g.numbers // self.grain)] += 1

    def wait_reads(self, g: Group, kind: str, pending: int) -> None:
        """All but the latest `pending` groups of these warps are done."""
        warps = set(np.unique(g.numbers // self.grain).tolist())
        left = []
        for one in self.open_flights[kind]:
            mine = {one.warp, one.warp + 1, one.warp + 2, one.warp + 3} if kind == "wgmma" else {one.warp}
            done = [w for w in mine & warps if one.group < self.committed[kind][w] - pending]
            one.clocks |= {w: int(self.clocks.now(w)) for w in done}
            if len(one.clocks) < len(mine):
                left.append(one)
        self.open_flights[kind] = left

    # --- tcgen05 -----------------------------------------------------------------------------

    def _core_of(self, thread: int) -> int:
        """The tensor core of a thread's CTA: an actor, which does what it is told in order."""
        return self.warps + int(self.machine.cta[thread])

    def products_done(self, place: Place, thread: int) -> None:
        """A commit: the products that a thread has begun arrive at an mbarrier when they are done."""
        core, warp = self._core_of(thread), thread // self.grain
        for one in self.open_flights["tcgen05"]:
            if one.warp == warp:
                one.clocks[core] = int(self.clocks.now(core))
        self.open_flights["tcgen05"] = [one for one in self.open_flights["tcgen05"] if one.warp != warp]
        self._give(place, np.array([core]), False)

    def tensor_by_core(self, thread: int, cta: int, lanes: Array, columns: Array, writes: bool) -> None:
        """A product that a thread begins reads or writes columns of these lanes of a CTA."""
        core, warp = self._core_of(thread), thread // self.grain
        self.clocks.take(np.array([core]), self.clocks.of(np.array([warp])))
        where = cta, *np.ix_(np.unique(lanes // PART), columns)
        what = "product" if writes else "read of tcgen05.mma"
        self._tensor(where, core, warp, int(self.clocks.now(core)), what, writes)

    def tensor_by_warp(self, thread: int, lanes: Array, columns: Array, writes: bool) -> None:
        """A warp reads or writes columns of its lanes; that is done when it has waited for it."""
        warp = thread // self.grain
        where = int(self.machine.cta[thread]), *np.ix_(np.unique(lanes // PART), columns)
        self._tensor(where, warp, warp, NEVER, "write" if writes else "read", writes)

    def _tensor(self, where: Any, actor: int, knows: int, time: int, what: str, writes: bool) -> None:
        """Whether the last writes there, by others, are ordered before what `knows` does; if it writes, reads too."""
        for kind in (True, False) if writes else (True,):
            last = self.tensor[kind]
            other, when = last.actor[where], last.time[where]
            wrong = (other >= 0) & (other != actor) & (when > self.clocks.known(SEEN, knows, other))
            if wrong.any():
                first = tuple(int(one[0]) for one in np.nonzero(wrong))
                text = f"{'write' if kind else 'read'} of tensor memory"
                earlier = Access(text, int(last.pc[where][first]), int(other[first]))
                mine = Access(what, self.machine.pc, actor)
                self._add(Conflict("tensor", earlier, mine, int(where[2][0, first[1]])))
        self.tensor[writes].note(where, actor, time, self.machine.pc)

    def tensor_done(self, g: Group, writes: bool) -> None:
        """tcgen05.wait: what these warps have stored is there, or what they have loaded."""
        last = self.tensor[writes]
        for warp in np.unique(g.numbers // self.grain):
            last.time[(last.actor == warp) & (last.time == NEVER)] = self.clocks.now(warp)

    # --- findings ----------------------------------------------------------------------------

    def _write_at(self, place: int) -> Access:
        actor = int(self.writer[place])
        return Access("write" if actor < self.warps else "bulk copy", int(self.write_pc[place]), actor)

    def _flying_at(self, place: int) -> Access:
        return Access("copy that has not landed", int(self.flying[place]) - 1, -1)

    def _read_at(self, place: int, row: int) -> Access:
        return Access("read", self.read.pc(row, place), int(self._first_warp(place)) + row)

    def _first_warp(self, places: Any) -> Any:
        """The first warp of the cluster whose shared memory these are."""
        return places * self.unit // self.memory.shared_bytes // self.machine.geometry.cluster_size * self.rows

    def _conflict(self, kind: str, places: Array, actors: Array, wrong: Array, first: Any, mine: Access) -> None:
        at = int(np.flatnonzero(wrong)[0])
        self._add(self._made(kind, int(places[at]), int(actors[at]), first(int(places[at])), mine))

    def _made(self, kind: str, place: int, actor: int, first: Access, mine: Access) -> Conflict:
        second = Access(mine.what, mine.pc, actor)
        return Conflict(kind, first, second, int(place) * self.unit % self.memory.shared_bytes)

    def _add(self, found: Conflict) -> None:
        key = found.kind, found.first.pc, found.second.pc
        if len(self.conflicts) < MOST:
            self.conflicts.setdefault(key, found)

    def _bytes(self, places: Array) -> Array:
        return self.memory.shared.data.reshape(-1, self.unit)[places].copy()

    def _settle_doubts(self) -> None:
        """Writes behind writes: a race if something has changed."""
        for conflict, places, before in self._doubts:
            if (self._bytes(places) != before).any():
                self._add(conflict)
        self._doubts.clear()
