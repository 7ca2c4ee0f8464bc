"""Check the order of accesses to shared memory with vector clocks, as race detectors for threads do.

Each warp has a clock; if a CTA is a single warp, each of its lanes has one, and "warp" below means a lane. A clock
counts the warp's own time and records which time of each other warp is ordered before it (clocks.py). Barriers and
mbarriers pass this order on. Two accesses of a byte by different warps are a race if one of them writes and the first
is not ordered before the second. But a write that leaves a byte unchanged does not race with an earlier write.

The bulk copies that one mbarrier waits for have a clock of their own, and so has a CTA's tensor core for tcgen05. Reads
of wgmma and of bulk stores last until they are waited for, reads of tcgen05 until their commit has arrived, copies of
cp.async until they have landed. Each clock exists in two kinds: SEEN covers all writes, FENCED only writes that a
`fence.proxy.async` follows. If wgmma, tcgen05 or a bulk store reads data, both kinds must order the write of the data
before this read.

In CTAs of several warps, accesses by lanes of one warp are checked against each other only until the warp's next
barrier (lanes.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.machine import WARP
from tritonhook.emulate.sanitizer.accesses import READ_BYTES, READERS, Access, Conflict, Reads
from tritonhook.emulate.sanitizer.alike import Alike
from tritonhook.emulate.sanitizer.clocks import SEEN, Clocks, joined
from tritonhook.emulate.sanitizer.clusters import Elsewhere
from tritonhook.emulate.sanitizer.flags import Flags
from tritonhook.emulate.sanitizer.flights import Flights
from tritonhook.emulate.sanitizer.gates import Gates
from tritonhook.emulate.sanitizer.lanes import Lanes, Recent
from tritonhook.emulate.sanitizer.semantics import GPU, WEAK, Semantics, semantics
from tritonhook.emulate.sanitizer.world import World
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.capture.launches.record import Launch
    from tritonhook.emulate.machine import Group, Machine
    from tritonhook.emulate.memory import Memory, Store
    from tritonhook.emulate.sanitizer.tensor import TensorOrder

Place = tuple[str, int]  # a barrier: its kind, e.g. "mbarrier", and its number or byte index
MOST = 32  # findings that are kept
_UNIT_BYTES = 27  # bytes of the record of a unit's last write
_WARP_BYTES = 13 << 10  # bytes of the record of a warp's latest accesses


def watched_bytes(shared: int, launch: Launch, unit: int) -> int:
    """Estimate the bytes that it takes to check a CTA. shared: bytes of its shared memory. unit: bytes that are tracked
    as one."""
    warps = -(-launch.block[0] * launch.block[1] * launch.block[2] // WARP)
    actors = (WARP if warps == 1 else warps) * launch.cluster[0] * launch.cluster[1] * launch.cluster[2] + 16
    of_unit = _UNIT_BYTES + READ_BYTES * min(actors, READERS)
    return shared // unit * of_unit + 16 * actors * actors + _WARP_BYTES * warps


class Order:
    """Checks the shared memory of a machine.

    unit: bytes that are tracked as one. world: the checks of global memory. grain: threads per actor: 32, or 1 if a CTA
    is one warp. conflicts: the unordered accesses that were found. The other sets contain faulty instructions.
    unwritten: reads of unwritten memory. lost: shuffles that read absent lanes. parted: aligned barriers of warps that
    have ended lanes. strangers: instructions whose mask lacks a lane that executes them. unfenced: products without
    wgmma.fence.
    """

    def __init__(self, machine: Machine, memory: Memory, unit: int, world: World | None = None) -> None:
        self.machine, self.memory, self.unit = machine, memory, unit
        self.grain = 1 if machine.geometry.padded_threads == WARP else WARP
        self.warps, ctas = machine.threads // self.grain, len(machine.geometry.ctas)
        self.clocks = Clocks(self.warps, ctas, machine.geometry.cluster_size)
        self.world = World(memory, unit) if world is None else world
        self.wave = self.world.join(machine, self.grain)
        self.flags = Flags(self.clocks, self.world.published, self.wave)
        self.events: dict[int, Array] = {}  # by instruction: the last event of each warp, and its time; see World
        self._meanings: dict[int, Semantics | None] = {}  # memory semantics, by instruction
        self._copies: dict[Place, int] = {}
        self.rows = machine.geometry.padded_threads // self.grain * machine.geometry.cluster_size  # warps of a cluster
        size = len(memory.shared.data) // unit
        self.writer, self.write_pc = np.full(size, -1, np.int32), np.zeros(size, np.int32)
        self.written = np.zeros(size, np.int64)
        self.is_generic, self.flying = np.zeros(size, bool), np.zeros(size, np.int32)
        self.is_strong = np.zeros(size, bool)  # by unit: whether its last write is strong
        self.alike = Alike(size)
        self.read, self.strong = Reads(self.rows, size), Reads(self.rows, size)  # weak reads; atomic accesses
        self.flights = Flights(self, size)
        self.conflicts: dict[tuple[str, int, int], Conflict] = {}
        self.unwritten, self.lost, self.parted, self.strangers, self.unfenced = (set[int]() for _ in range(5))
        self.unheeded: frozenset[int] = frozenset()  # waits whose result nothing reads
        self.gates = Gates(self, size)
        self.waited = np.full(self.warps, not self.world.is_early)  # whether warps have waited for the previous kernel
        self.elsewhere = Elsewhere(self)
        self.lanes = Lanes(self, size)
        self.recent_outside = Recent(machine.threads, self.world.unit)
        self._inside = np.tile(np.arange(machine.geometry.padded_threads) < machine.geometry.block_threads, ctas)
        self._meeting: dict[Place, Array] = {}
        self._opened: dict[Place, Array] = {}
        self._waiting: dict[Place, list[Array]] = {}
        self._doubts: list[tuple[Conflict, Array, Array]] = []

    @cached_property
    def tensor(self) -> TensorOrder:
        """The checks of tensor memory, which are created when a kernel first uses it."""
        from tritonhook.emulate.sanitizer.tensor import TensorOrder

        return TensorOrder(self)

    def actors(self, g: Group) -> Array:
        """Return the numbers of a group's actors."""
        return g.numbers if self.grain == 1 else g.warps

    # --- barriers ----------------------------------------------------------------------------

    def arrive(self, place: Place, threads: Array, waits: bool) -> None:
        """Record that threads arrive at a barrier. waits: whether they also wait until it opens."""
        actors = np.unique(threads // self.grain)
        if place[0] == "barrier":
            self.gates.arrive(place[1], actors)
        self.give(place, actors, waits)

    def can_meet(self) -> bool:
        """Whether `meet` has the same effect as single arrivals."""
        return self.clocks.size == 1 and not self.flags.carried

    def meet(self, ctas: Array) -> None:
        """Synchronise all threads of each of these CTAs at a barrier."""
        self.clocks.meet(ctas)

    def copied(self, place: Place) -> None:
        """Record that bytes of a bulk copy arrive at an mbarrier."""
        self.give(place, np.array([self._copies_for(place)]), False)

    def _copies_for(self, place: Place) -> int:
        """Return the actor of the copies that an mbarrier waits for. Copies for another mbarrier may end later, so they
        are another actor."""
        if place not in self._copies:
            self._copies[place] = self.clocks.add(place[1] // self.memory.shared_bytes)
        return self._copies[place]

    def give(self, place: Place, actors: Array, waits: bool) -> None:
        is_relaxed = self._meaning("b").is_relaxed
        known = self.flags.fenced(actors) if is_relaxed else self.clocks.of(actors)
        self._meeting[place] = joined(self._meeting.get(place, known), known)
        self.flags.give(place, actors)
        self.clocks.tick(actors)
        if waits:
            self._waiting.setdefault(place, []).append(actors)

    def open(self, place: Place) -> None:
        """Open a barrier: order the waiting threads after everything that was executed before the arrivals."""
        if place[0] == "cluster":
            self.elsewhere.met(place[1])
        if place[0] == "barrier":
            self.gates.open(place[1])
        known = self._meeting.pop(place, None)
        if known is None:
            return
        self._opened[place] = joined(self._opened.get(place, known), known)
        waiting = self._waiting.pop(place, [])
        self.flags.open(place, waiting)
        for actors in waiting:
            self.clocks.take(actors, known)

    def wait(self, place: Place, threads: Array, is_open: bool) -> None:
        """Record that threads wait at a barrier. is_open: the barrier is open, so that they go on at once."""
        actors = np.unique(threads // self.grain)
        if not is_open:
            self._waiting.setdefault(place, []).append(actors)
        elif place in self._opened and self._meaning("b").is_relaxed:
            self.flags.see(actors, self._opened[place])
        elif place in self._opened and self.machine.pc not in self.unheeded:
            self.clocks.take(actors, self._opened[place])
            self.flags.wait(place, actors)

    def fence(self, g: Group) -> None:
        """Execute fence.proxy.async: the order that these warps have seen now holds for the asynchronous proxy, too."""
        actors = self.actors(g)
        self.clocks.fence(actors)
        self.world.fence()
        self.clocks.tick(actors)

    def depended(self, g: Group) -> None:
        """Execute griddepcontrol.wait: these warps have waited for the previous kernel."""
        self.waited[self.actors(g)] = True

    def aligned(self, g: Group) -> None:
        """Check that warps that execute an aligned barrier have no ended lanes."""
        if g.mask is not None:
            here, inside = (one.reshape(-1, WARP) for one in (g.mask, self._inside[g.s]))
            if (here.any(1) & (inside & ~here).any(1)).any():
                self.parted.add(self.machine.pc)

    def members(self, g: Group, masks: Array) -> None:
        """Check that each active lane is in the member mask that it names."""
        if ((masks >> self.machine.lane[g.s] & 1 == 0) & g.active).any():
            self.strangers.add(self.machine.pc)

    def collective(self, g: Group) -> None:
        """Record that lanes of these warps exchange values."""
        warps = g.warps
        for recent in (self.lanes.recent, self.recent_outside):
            recent.met(warps)

    def shuffled(self) -> None:
        """Record that the current shuffle reads an absent lane, or that its mask lacks a lane that executes it."""
        self.lost.add(self.machine.pc)

    def memory_fence(self, g: Group) -> None:
        """Execute membar or fence: order these warps' earlier accesses before their later ones."""
        self.flags.fence(self.actors(g), self._meaning("a").scope)

    def together(self, g: Group) -> None:
        """Execute bar.warp.sync: synchronise the active lanes of each warp."""
        if self.grain > 1:
            self.clocks.tick(g.warps)
        else:
            for warp in g.warps:
                lanes = g.numbers[g.numbers // WARP == warp]
                self.clocks.take(lanes, self.clocks.of(lanes))
                self.flags.together(lanes)
                self.clocks.tick(lanes)

    # --- accesses ----------------------------------------------------------------------------

    def places(self, index: Array, size: int) -> Array:
        """Return the numbers of the units that each access touches, a row per access. index: byte indices."""
        return (index // self.unit)[:, None] + np.arange(max(1, size // self.unit))

    def access(self, g: Group, index: Array, size: int, how: str) -> None:
        """Check an access of shared memory. index: byte indices for the threads of the group's slice. how: see
        Memory.locate."""
        if how in "bc":
            return
        numbers = g.numbers
        at = index[numbers - g.s.start]
        if self.clocks.size > 1:
            self.elsewhere.access(numbers, at // self.memory.shared_bytes, how)
        places = self.places(at, size)
        threads = np.repeat(numbers, places.shape[1])
        actors, places = threads // self.grain, places.reshape(-1)
        one = self._meaning(how)
        if how == "a":  # recorded apart from reads, because only weak accesses conflict with atomics
            self.strong.note(actors % self.rows, places, self.clocks.now(actors), self.machine.pc)
        if how != "w":
            if self.grain > 1 and not one.scope:
                self.lanes.check_read(places, actors, threads)
            self._reads(places, actors, one)
        if how != "r":
            self._writes(places, actors, how, one, threads)
            if self.grain > 1:
                self.lanes.written(places, threads)
        if self.grain > 1 and (how == "a" or not one.scope) and not (how == "r" and one.is_of_warps):
            self.lanes.recent.note(self.machine.pc, numbers, at, size)
        if one.releases and how != "r" and self.grain > 1:
            self.lanes.released(numbers)
        if one.scope:
            # Bytes of shared memory in earlier waves.
            begin = self.wave.first // self.wave.of_cta * self.memory.shared_bytes
            self.flags.access("shared", begin + index[numbers - g.s.start], numbers // self.grain, how, one)

    def outside(self, g: Group, index: Array, size: int, how: str) -> None:
        """Check an access of global memory. index: byte indices for the threads of the group's slice. how: see
        Memory.locate."""
        if (unset := self.world.unset) is not None and how not in "bc":
            unset.access(self.machine.pc, index[g.numbers - g.s.start], size, how)
        if how in "rwa" and (one := self._meaning(how)) is not None:
            self.world.access(self, g, index, size, how, one)

    def copied_outside(self, thread: int, index: Array, size: int, how: str, changes: Array | None = None) -> None:
        """Check a bulk copy that reads or writes global memory. index: byte indices of pieces of `size` bytes. changes:
        mask of the pieces whose contents change."""
        if (unset := self.world.unset) is not None:
            unset.access(self.machine.pc, index, size, how)
        self.world.copied(self, thread, index, size, how, changes)

    def stored_outside(self, g: Group, index: Array, unit: int, values: Any) -> None:
        """Check the values that lanes have written to global memory."""
        if (one := self._meaning("w")) is not None:
            self.world.stored(self, g, index, unit, values, one)

    def _meaning(self, how: str) -> Any:
        """Return the memory semantics of the current instruction; None if it accesses memory that nobody writes."""
        pc, code = self.machine.pc, self.machine.code.instructions
        if not 0 <= pc < len(code):
            return Semantics(GPU if how == "a" else WEAK)
        if pc not in self._meanings:
            self._meanings[pc] = semantics(code[pc].text)
        return self._meanings[pc]

    def _reads(self, places: Array, actors: Array, one: Semantics) -> None:
        pc = self.machine.pc
        mine = Access("read", pc, 0)
        if not self.check_writer(places, actors, mine, bool(one.scope)) and not one.scope:
            self._check_readers(places, actors, mine, self.strong)
        if not one.scope and self.grain > 1 and (left := self.lanes.are_left_out(places, actors)).any():
            self.add_at("race", places, actors, left, self.write_at, mine)
        if (self.writer[places] < 0).any():
            self.unwritten.add(pc)
        if not one.scope:
            self.read.note(actors % self.rows, places, self.clocks.now(actors), pc)

    def check_writer(self, places: Array, actors: Array, mine: Access, is_strong: bool = False) -> bool:
        """Report units whose last write is not ordered before this access; return whether there are any."""
        writers = self.writer[places]
        wrong = (writers >= 0) & (writers != actors) & (self.written[places] > self.seen(actors, writers))
        if is_strong:
            wrong &= ~self.is_strong[places]
        if wrong.any():
            wrong[wrong] = ~self.alike.are_writers(places[wrong], actors[wrong])
        if is_race := bool(wrong.any()):
            self.add_at("race", places, actors, wrong, self.write_at, mine)
        self._check_flying(places, actors, mine)
        return is_race

    def seen(self, actors: Array, others: Array) -> Array:
        seen: Array = self.clocks.known(SEEN, actors, others)
        return seen

    def _check_flying(self, places: Array, actors: Array, mine: Access) -> None:
        """Report accesses of units that a running cp.async will write."""
        flying = self.flying[places] > 0
        if flying.any():
            self.add_at("race", places, actors, flying, self._flying_at, mine)

    def _writes(self, places: Array, actors: Array, how: str, one: Semantics, threads: Array) -> None:
        pc = self.machine.pc
        mine = Access("atomic access" if how == "a" else "write", pc, 0)
        is_alone = self.grain == 1 or bool(one.scope) or one.is_of_warps
        self._check_readers(places, actors, mine, self.read, None if is_alone else threads)
        if not one.scope:
            self._check_readers(places, actors, mine, self.strong)
        self._check_flying(places, actors, mine)
        self.gates.written(places, actors, mine)
        writers = self.writer[places]
        doubt = (writers >= 0) & (writers != actors) & (self.written[places] > self.seen(actors, writers))
        if one.scope:
            doubt &= ~self.is_strong[places]
        if self.grain > 1 and (how == "a" or not is_alone):
            lanes = self.lanes.have_written(places, actors, threads, bool(one.scope))
            if how == "a" and lanes.any():
                own = Access("another lane's atomic access", pc, 0)
                self.add_at("race", places, actors, lanes, self.write_at, own)
            doubt |= lanes
        if doubt.any() and how == "w":  # no race if the write changes nothing
            first = int(np.flatnonzero(doubt)[0])
            before = self.write_at(int(places[first]))
            mine = Access("another lane's write", pc, 0) if int(actors[first]) == before.actor else mine
            self._doubt(places, actors, doubt, before, mine)
        self._written(places, actors, pc, True)
        self.is_strong[places] = bool(one.scope)
        last = self.writer[places]
        if how == "w" and (doubt.any() or (last != actors).any()):
            self.alike.wrote(places, actors, np.where(last != actors, last, np.where(doubt, writers, -1)))
        else:
            self.alike.changed(places)

    def _written(self, places: Array, actors: Array, pc: int, is_generic: bool) -> None:
        self.writer[places], self.write_pc[places] = actors, pc
        self.written[places] = self.clocks.now(actors)
        self.is_generic[places], self.flying[places], self.is_strong[places] = is_generic, 0, False

    def _check_readers(
        self, places: Array, actors: Array, mine: Access, reads: Reads | None = None, threads: Array | None = None
    ) -> None:
        """Check that the last reads of each unit are ordered before a write. threads: the threads that write; None if
        other lanes of their warps need no check."""
        reads = self.read if reads is None else reads
        for row in range(self.rows if reads.is_used else 0):
            times = reads.times(row, places)
            if times is None:
                continue
            readers = self._first_warp(places) + row
            wrong = (times > self.seen(actors, readers)) & (readers != actors)
            # If the reader also wrote this unit, a write that changes nothing is no race.
            if wrong.any() and mine.what == "write":
                own = wrong & ((self.writer[places] == readers) | self.alike.are_writers(places, readers))
                if own.any():
                    self._doubt(places, actors, own, self.read_at(reads, int(places[own][0]), row), mine)
                    wrong &= ~own
            if wrong.any():
                self.add_at("race", places, actors, wrong, lambda at, r=row: self.read_at(reads, at, r), mine)
            own = (readers == actors) & (times == self.clocks.now(actors)) if threads is not None else wrong
            if threads is not None and own.any():
                self.lanes.check_write(row, np.flatnonzero(own), places, actors, threads, mine)
        if reads is self.read:
            self.flights.check(places, actors, mine)

    def stored(self, g: Group, index: Array, unit: int, values: Array) -> None:
        """Check the values of a write: if warps write different values to one location by one instruction, it is a
        race."""
        self._settle_doubts()
        if not self._meaning("w").scope and (
            pair := self.written_differently(self.memory.shared, g, index, unit, values)
        ):
            first, second = (Access("write", self.machine.pc, actor) for actor in pair[:2])
            self.add(Conflict("race", first, second, pair[2] % self.memory.shared_bytes))

    def written_differently(
        self, store: Store, g: Group, index: Array, unit: int, values: Array
    ) -> tuple[int, int, int] | None:
        """Find two actors that have just written different values to one location; return them and its byte index.
        store: the memory after the write."""
        wrong = (store.read(index, unit, len(values)) != np.asarray(list(values))).any(0)
        if not wrong.any():
            return None
        actors, lane = g.numbers // self.grain, int(np.flatnonzero(wrong)[0])
        same = np.flatnonzero((index == index[lane]) & (np.arange(len(index)) != lane))
        return (int(actors[lane]), int(actors[same[0]]), int(index[lane])) if len(same) else None

    # --- asynchronous copies -------------------------------------------------------------------

    def copying(self, g: Group, index: Array, size: int) -> None:
        """Check and record the start of cp.async."""
        numbers = g.numbers
        places = self.places(index[numbers - g.s.start], size)
        actors = np.repeat(numbers // self.grain, places.shape[1])
        places, mine = places.reshape(-1), Access("copy", self.machine.pc, 0)
        self.lanes.recent.note(self.machine.pc, numbers, index[numbers - g.s.start], size)
        self.check_writer(places, actors, mine)
        self._check_readers(places, actors, mine)
        self.flying[places] = self.machine.pc + 1
        self.writer[places] = np.maximum(self.writer[places], 0)

    def landed(self, threads: Array, index: Array, size: int) -> None:
        """Record that copies of cp.async by these threads have landed."""
        places = self.places(index, size)
        actors, places = np.repeat(threads // self.grain, places.shape[1]), places.reshape(-1)
        pcs = self.flying[places] - 1
        self.alike.changed(places)
        self._written(places, actors, 0, False)
        self.write_pc[places] = pcs
        if self.grain > 1:
            self.lanes.written(places, np.repeat(threads, len(places) // len(threads)))

    def bulk_write(self, thread: int, index: Array, size: int, barrier: int) -> None:
        """Check and record a bulk copy to shared memory. The copy belongs to the actor of its mbarrier's copies, and is
        ordered after the earlier accesses of its thread."""
        places, warp = self.places(index, size).reshape(-1), thread // self.grain
        actor = self._copies_for(("mbarrier", barrier))
        self.clocks.tell(actor, self.clocks.one(warp))
        actors, mine = np.full(len(places), actor), Access("bulk copy", self.machine.pc, 0)
        self.check_writer(places, actors, mine)
        self._check_readers(places, actors, mine)
        self.clocks.tick(actor)
        self.alike.changed(places)
        self._written(places, actors, mine.pc, False)

    # --- tcgen05 -----------------------------------------------------------------------------

    def core_of(self, thread: int) -> int:
        """Return the actor number of the tensor core of a thread's CTA."""
        return self.warps + int(self.machine.cta[thread])

    # --- findings ----------------------------------------------------------------------------

    def write_at(self, place: int) -> Access:
        actor = int(self.writer[place])
        return Access("write" if actor < self.warps else "bulk copy", int(self.write_pc[place]), actor)

    def _flying_at(self, place: int) -> Access:
        return Access("copy that has not landed", int(self.flying[place]) - 1, -1)

    def read_at(self, reads: Reads, place: int, row: int) -> Access:
        what = "read" if reads is self.read else "atomic access"
        return Access(what, reads.pc(row, place), int(self._first_warp(place)) + row)

    def _first_warp(self, places: Any) -> Any:
        """Return the first warp of the cluster that owns this shared memory."""
        return places * self.unit // self.memory.shared_bytes // self.machine.geometry.cluster_size * self.rows

    def add_at(self, kind: str, places: Array, actors: Array, wrong: Array, first: Any, mine: Access) -> None:
        at = int(np.flatnonzero(wrong)[0])
        self.add(self._made(kind, int(places[at]), int(actors[at]), first(int(places[at])), mine))

    def _made(self, kind: str, place: int, actor: int, first: Access, mine: Access) -> Conflict:
        second = Access(mine.what, mine.pc, actor)
        return Conflict(kind, first, second, int(place) * self.unit % self.memory.shared_bytes)

    def add_conflict(self, kind: str, first: tuple[str, int, int], second: tuple[str, int, int], at: int) -> None:
        self.add(Conflict(kind, Access(*first), Access(*second), at))

    def add(self, found: Conflict) -> None:
        key = found.kind, found.first.pc, found.second.pc
        if len(self.conflicts) < MOST:
            self.conflicts.setdefault(key, found)

    def _bytes(self, places: Array) -> Array:
        return self.memory.shared.data.reshape(-1, self.unit)[places].copy()

    def _doubt(self, places: Array, actors: Array, wrong: Array, first: Access, mine: Access) -> None:
        """Record a race that is reported only if the write changes bytes."""
        where, actor = places[wrong], int(actors[wrong][0])
        self._doubts.append((self._made("race", int(where[0]), actor, first, mine), where, self._bytes(where)))

    def _settle_doubts(self) -> None:
        """Report the recorded races whose write has changed bytes."""
        for conflict, places, before in self._doubts:
            if (self._bytes(places) != before).any():
                self.add(conflict)
        self._doubts.clear()
