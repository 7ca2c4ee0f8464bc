"""Barriers of a CTA, of a cluster, and in shared memory (mbarrier): count arrivals, release waiting threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import Fault
from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.memory import CLUSTER
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine

NUMBERS = 16  # a CTA has barriers 0 to 15
_PARITY = np.uint64(1)
# A reduction at a barrier: "popc", "and" or "or"; the function that reads each thread's predicate; the register that
# gets the result.
Vote = tuple[str, Callable[["Group"], Array], Array]


class Barriers:
    """The barriers of a machine's CTAs and clusters. A barrier's key: index of its CTA * NUMBERS + its number."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        ctas = len(machine.geometry.ctas)
        self._arrived = machine.keep(np.zeros(ctas * NUMBERS, np.int64))
        self._generation = np.zeros(ctas * NUMBERS, np.int64)
        self._whole: set[int] = set()  # barriers that wait for all threads of their CTA
        self._counts: dict[int, int] = {}  # threads that a barrier waits for, if its instruction has a count
        # By barrier: number of true predicates, and number of votes, of a reduction.
        self._sums: dict[int, tuple[int, int]] = {}
        self._targets: dict[int, list[tuple[Array, Array, str]]] = {}
        clusters = ctas // machine.geometry.cluster_size
        self._cluster = machine.cta // machine.geometry.cluster_size
        self._cluster_arrived = machine.keep(np.zeros(clusters, np.int64))
        self._cluster_generation = np.zeros(clusters, np.int64)
        self._cluster_seen = np.zeros(machine.threads, np.int64)

    def arrive(self, g: Group, numbers: Array, counts: Array | None, waits: bool, vote: Vote | None = None) -> None:
        """Arrive at barriers of the CTA. numbers, counts: one per thread of the slice; counts None: wait for all
        threads of the CTA. waits: True for bar.sync, False for bar.arrive."""
        keys = self._keys(g, numbers)
        before = self._generation[keys]
        watch, is_plain = self.machine.memory.watch, vote is None and counts is None and not self._sums
        if is_plain and watch is None:
            self._arrive_all(keys[g.active])
        elif is_plain and waits and watch is not None and watch.can_meet() and self._are_whole(keys[g.active]):
            watch.meet(np.unique(keys[g.active]) // NUMBERS)
            self._arrive_all(keys[g.active])
        else:
            self._arrive_one_by_one(g, keys, counts, waits, vote, before)
        if waits and not bool((self._generation[keys] != before)[g.active].all()):
            self._wait_for(g, self._generation, keys, before)

    def _are_whole(self, keys: Array) -> bool:
        """Return True if, in each of these CTAs, all live threads arrive at one barrier at which no thread arrived
        before. keys: the barrier of each arriving thread."""
        came = np.bincount(keys, minlength=len(self._arrived))
        at = np.flatnonzero(came)
        return bool((came[at] == self._live[at // NUMBERS]).all() and not self._arrived[at].any())

    @property
    def _live(self) -> Array:
        """The number of threads of each CTA that have not ended."""
        count: Array = self.machine.live.reshape(-1, self.machine.geometry.padded_threads).sum(1)
        return count

    def _arrive_all(self, keys: Array) -> None:
        """Arrive at barriers that wait for all threads of their CTA. keys: the barrier of each arriving thread."""
        came = np.bincount(keys, minlength=len(self._arrived))
        self._arrived += came
        at = np.flatnonzero(came)
        is_open = self._arrived[at] >= self._live[at // NUMBERS]
        self._whole |= {*at[~is_open].tolist()}
        self._whole -= {*at[is_open].tolist()}
        self._arrived[at[is_open]] = 0
        self._generation[at[is_open]] += 1

    def _arrive_one_by_one(
        self, g: Group, keys: Array, counts: Array | None, waits: bool, vote: Vote | None, before: Array
    ) -> None:
        """Arrive at one barrier after another. If a barrier opens before all of these threads have arrived, arrive warp
        by warp. before: output array; gets the generation of the barrier at which each thread arrived."""
        for key, lanes in _each(keys, g.active):
            opens = counts is not None and int(counts[lanes[0]]) < self._arrived[key] + len(lanes)
            ends = np.flatnonzero(np.diff((lanes + g.s.start) // WARP)) + 1 if opens else []
            for some in np.split(lanes, ends):
                before[some] = self._generation[key]
                self._arrive_at(key, g, some, counts, waits, vote)

    def _arrive_at(
        self, key: int, g: Group, lanes: Array, counts: Array | None, waits: bool, vote: Vote | None
    ) -> None:
        if (watch := self.machine.memory.watch) is not None:
            watch.arrive(("barrier", key), lanes + g.s.start, waits)
        if vote is not None:
            kind, values, target = vote
            true, voted = self._sums.get(key, (0, 0))
            self._sums[key] = true + int(values(g)[lanes].sum()), voted + len(lanes)
            self._targets.setdefault(key, []).append((target, lanes + g.s.start, kind))
        self._arrived[key] += len(lanes)
        self._settle(key, None if counts is None else int(counts[lanes[0]]))

    def ended(self) -> None:
        """Open the barriers whose last missing threads have ended."""
        for key in list(self._whole):
            if self._arrived[key]:
                self._settle(key, None)

    def unmet(self) -> Iterator[str]:
        """Describe each barrier that waits for a fixed number of threads although threads of its CTA have ended."""
        live = self._live
        for key, count in self._counts.items():
            cta, number = divmod(key, NUMBERS)
            if ended := self.machine.geometry.block_threads - int(live[cta]):
                yield (
                    f"barrier {number} of CTA {self.machine.geometry.ctas[cta]} waits for {count} threads: "
                    f"{self._arrived[key]} have arrived, and {ended} threads of the CTA have ended"
                )

    def _keys(self, g: Group, numbers: Array) -> Array:
        if int(numbers[g.active].max()) >= NUMBERS:
            text = f"barrier {int(numbers[g.active].max())} does not exist: a CTA has barriers 0 to {NUMBERS - 1}"
            raise Fault(text, int(g.numbers[0]))
        return self.machine.cta[g.s] * NUMBERS + numbers.astype(np.int64) % NUMBERS

    def _settle(self, key: int, count: int | None) -> None:
        """Open a barrier if enough threads have arrived. count: threads to wait for; None: all live ones of the CTA."""
        if count is None:
            self._whole.add(key)
            padded, cta = self.machine.geometry.padded_threads, key // NUMBERS
            count = int(self.machine.live[cta * padded : (cta + 1) * padded].sum())
        else:
            if count % WARP:
                text = f"a barrier waits for {count} threads: must be a multiple of {WARP}"
                raise Fault(text, int(self.machine.first_thread))
            self._counts[key] = count
        if self._arrived[key] < count:
            return
        self._arrived[key] = 0
        self._generation[key] += 1
        self._whole.discard(key)
        self._counts.pop(key, None)
        if (watch := self.machine.memory.watch) is not None:
            watch.open(("barrier", key))
        true, voted = self._sums.pop(key, (0, 0))
        for target, threads, kind in self._targets.pop(key, []):
            target[threads] = {"popc": true, "and": true == voted, "or": true > 0}[kind]

    def _wait_for(self, g: Group, generations: Array, keys: Array, before: Array) -> None:
        every, seen = np.zeros(self.machine.threads, np.int64), np.full(self.machine.threads, -1, np.int64)
        every[g.s], seen[g.s] = keys, before
        g.wait(lambda: generations[every] != seen)

    def cluster_arrive(self, g: Group) -> None:
        clusters = self._cluster[g.s]
        g.put(self._cluster_seen, self._cluster_generation[clusters])
        watch = self.machine.memory.watch
        for one, lanes in _each(clusters, g.active):
            self._cluster_arrived[one] += len(lanes)
            if watch is not None:
                watch.arrive(("cluster", one), lanes + g.s.start, False)
            if self._cluster_arrived[one] == int(self.machine.live[self._cluster == one].sum()):
                self._cluster_arrived[one] = 0
                self._cluster_generation[one] += 1
                if watch is not None:
                    watch.open(("cluster", one))

    def cluster_wait(self, g: Group) -> None:
        if (watch := self.machine.memory.watch) is not None:
            for one, lanes in _each(self._cluster[g.s], g.active):
                is_open = self._cluster_generation[one] != self._cluster_seen[g.s.start + int(lanes[0])]
                watch.wait(("cluster", one), lanes + g.s.start, is_open)
        self._wait_for(g, self._cluster_generation, self._cluster[g.s], self._cluster_seen[g.s])


def _each(keys: Array, active: Array) -> Iterator[tuple[int, Array]]:
    """Yield each key of active lanes, with the lanes that have it."""
    lanes = np.flatnonzero(active)
    mine = keys[lanes]
    if (mine == mine[0]).all():
        yield int(mine[0]), lanes
        return
    order = np.argsort(mine, kind="stable")
    begins = np.flatnonzero(np.diff(mine[order])) + 1
    for some in np.split(order, begins):
        yield int(mine[some[0]]), lanes[some]


def _too_many(arriving: int, pending: int, thread: int) -> Fault:
    arrivals = "1 arrival" if arriving == 1 else f"{arriving} arrivals"
    return Fault(f"{arrivals} at an mbarrier that waits for {pending} more", thread)


@dataclass(slots=True)
class Phase:
    """One mbarrier. phase: number of completed phases. expected: arrivals that each phase waits for. pending: arrivals
    still missing in the current phase. transactions: bytes still missing."""

    expected: int
    pending: int
    phase: int = 0
    transactions: int = 0

    def settle(self) -> bool:
        """Begin the next phase if the current one is complete. Return True if so."""
        if self.pending or self.transactions:
            return False
        self.phase += 1
        self.pending = self.expected
        return True


class SharedBarriers:
    """The mbarriers of a machine. phases: one per mbarrier, by its byte index in the shared memory of all CTAs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.phases: dict[int, Phase] = {}

    def places(self, g: Group, space: str, addresses: Array) -> Array:
        """Return the index of each thread's mbarrier in shared memory, one per thread of the slice."""
        return self.machine.memory.locate(g, space, addresses, 8, "b")[1]

    def at(self, place: int) -> Phase:
        if place not in self.phases:
            raise Fault("access to an mbarrier that was not initialised", int(self.machine.first_thread))
        return self.phases[place]

    def init(self, g: Group, space: str, addresses: Array, counts: Array) -> None:
        for place, lanes in _each(self.places(g, space, addresses), g.active):
            self.make(place, int(counts[lanes[0]]))
            if (watch := self.machine.memory.watch) is not None:
                watch.gates.initialised(place, g.s.start + int(lanes[0]))

    def make(self, place: int, count: int) -> None:
        self.phases[place] = Phase(count, count)

    def invalidate(self, g: Group, space: str, addresses: Array) -> None:
        for place, _ in _each(self.places(g, space, addresses), g.active):
            self.phases.pop(place, None)
            if (watch := self.machine.memory.watch) is not None:
                watch.gates.invalidated(place)

    def arrive(
        self, g: Group, space: str, addresses: Array, counts: Array | int = 1, expect: Array | None = None,
        drop: bool = False,
    ) -> Array:  # fmt: skip
        """Expect `expect` more bytes, then arrive. Return the state before the arrival, for `is_complete`: the phase in
        bits 0 to 31, the number of missing arrivals in the bits above. drop: also subtract these arrivals from the
        number that later phases expect."""
        states = np.zeros(g.size, np.uint64)
        counts = np.broadcast_to(np.asarray(counts), (g.size,))
        for place, lanes in _each(self.places(g, space, addresses), g.active):
            one = self.at(place)
            one.transactions += 0 if expect is None else int(expect[lanes].astype(np.int64).sum())
            each = counts[lanes].astype(np.uint64)
            arriving = int(each.sum())
            states[lanes] = np.uint64(one.phase) | np.uint64(one.pending) + each - np.cumsum(each) << np.uint64(32)
            if drop:
                one.expected -= arriving
            if arriving > one.pending:
                raise _too_many(arriving, one.pending, int(g.numbers[0]))
            one.pending -= arriving
            if (watch := self.machine.memory.watch) is not None:
                watch.gates.uses(place, lanes + g.s.start)
                watch.arrive(("mbarrier", place), lanes + g.s.start, False)
            self._settle(place, one)
        return states

    def expect(self, g: Group, space: str, addresses: Array, sizes: Array) -> None:
        """Add to the bytes that the current phase waits for."""
        for place, lanes in _each(self.places(g, space, addresses), g.active):
            self.at(place).transactions += int(sizes[lanes].astype(np.int64).sum())

    def completed(self, g: Group, space: str, addresses: Array, sizes: Array) -> None:
        """Count bytes that have arrived. sizes: number of bytes at each thread's mbarrier."""
        places = self.places(g, space, addresses)
        for lane in np.flatnonzero(g.active):
            self.complete(int(places[lane]), int(sizes[lane]))

    def complete(self, place: int, size: int) -> None:
        """Count arrived bytes at one mbarrier."""
        one = self.at(place)
        one.transactions -= size
        if (watch := self.machine.memory.watch) is not None:
            watch.copied(("mbarrier", place))
        self._settle(place, one)

    def commit(self, g: Group, addresses: Array, lanes: Array, masks: Array | None = None) -> None:
        """Arrive once for each of these lanes, because its tcgen05 products are complete. addresses: where the
        mbarriers are. masks: bit masks of the ranks of the CTAs whose mbarrier gets the arrival; None: only the CTA of
        the address."""
        places, size = self.places(g, CLUSTER, addresses), self.machine.memory.shared_bytes
        for lane in np.flatnonzero(lanes):
            place, thread = int(places[lane]), g.s.start + int(lane)
            ctas = [place // size] if masks is None else self.machine.ctas_of(thread, int(masks[lane]))
            for cta in ctas:
                self._products_done(place % size + cta * size, thread)

    def _products_done(self, place: int, thread: int) -> None:
        one = self.at(place)
        if not one.pending:
            raise _too_many(1, 0, thread)
        one.pending -= 1
        if (watch := self.machine.memory.watch) is not None:
            watch.flights.commit_products(("mbarrier", place), thread)
        self._settle(place, one)

    def _settle(self, place: int, one: Phase) -> None:
        if one.settle() and (watch := self.machine.memory.watch) is not None:
            watch.open(("mbarrier", place))

    def is_complete(self, g: Group, space: str, addresses: Array, states: Array, by_parity: bool) -> Array:
        """Return True for each thread whose phase is complete. states: the states that `arrive` returned; with
        by_parity, the parities (0 or 1) of the phases."""
        found = self._are_complete(g, space, addresses, states, by_parity)
        if (watch := self.machine.memory.watch) is not None and found[g.active].any():
            for place, lanes in _each(self.places(g, space, addresses), g.active & found):
                watch.wait(("mbarrier", place), lanes + g.s.start, True)
        return found

    def _are_complete(self, g: Group, space: str, addresses: Array, states: Array, by_parity: bool) -> Array:
        found = np.zeros(g.size, bool)
        for place, lanes in _each(self.places(g, space, addresses), g.active):
            phase = np.uint64(self.at(place).phase)
            given = states[lanes].astype(np.uint64) & np.uint64(0xFFFF_FFFF)
            found[lanes] = ((given ^ phase) & _PARITY) != 0 if by_parity else given != phase
        return found

    def try_wait(self, g: Group, space: str, addresses: Array, states: Array, by_parity: bool) -> Array:
        """Wait until the phase is complete, and return True. Return False, like a GPU after its time limit, only if all
        threads of the machine would wait for ever."""
        if (watch := self.machine.memory.watch) is not None:
            for place, lanes in _each(self.places(g, space, addresses), g.active):
                watch.gates.uses(place, lanes + g.s.start)
        found = self.is_complete(g, space, addresses, states, by_parity)
        if g.timed_out or found[g.active].all():
            return found
        every = np.ones(self.machine.threads, bool)
        # Copies: threads that are released first may overwrite the registers that these arrays are views of.
        addresses, states = addresses.copy(), states.copy()

        def ready() -> Array:
            now = every.copy()
            now[g_slice] = self._are_complete(frozen, space, addresses, states, by_parity) | ~frozen.active
            return now

        g_slice, frozen = g.s, g.frozen()
        g.retry(ready)
        return found
