"""Barriers: when they open, for whom, and what threads get of a vote; of a CTA, of a cluster, in shared memory."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.emulate.machine import Code, Geometry, Group, Instruction, Machine  # noqa: E402
from tritonhook.emulate.memory import SHARED, Memory  # noqa: E402


def machine_of(threads=64, ctas=1, cluster=1):
    geometry = Geometry((ctas, 1, 1), (threads, 1, 1), tuple(range(ctas)), (cluster, 1, 1))
    return Machine(geometry, Memory(1024), most_steps=200_000)


def code_of(*steps):
    return Code([Instruction(step, f"step {n}", n + 1, True) for n, step in enumerate(steps)], frozenset())


def leave(group):
    group.exit()


def late(machine, lanes):
    """A step in which these threads go on later than all others: they pass another instruction again and again."""
    turns = iter(range(40))

    def step(group):
        part = group.part(lanes[group.s])
        if part is not None and next(turns, None) is not None:
            part.jump(0)
            part.give_way()

    return step


def seen_by(machine, *steps, lanes):
    """What threads see behind these steps of how many have written before them; these lanes come late."""
    written, seen = np.zeros(machine.threads, bool), np.full(machine.threads, -1)

    def write(group):
        written[group.numbers] = True

    def look(group):
        counts = np.array([int(written[machine.cta == cta].sum()) for cta in range(len(machine.geometry.ctas))])
        group.put(seen, counts[machine.cta[group.s]])

    machine.run(code_of(late(machine, lanes), write, *steps, look, leave))
    return seen


def arrive(machine, number, count=None, waits=True, vote=None):
    def step(group):
        numbers = np.full(group.size, number, np.uint32) if isinstance(number, int) else number[group.s]
        counts = None if count is None else np.full(group.size, count, np.uint32)
        machine.barriers.arrive(group, numbers, counts, waits, vote)

    return step


@pytest.mark.parametrize("count", [None, 64])
def test_all_threads_of_a_cta_are_waited_for(count):
    machine = machine_of(ctas=2)
    seen = seen_by(machine, arrive(machine, 3, count), lanes=np.arange(128) % 64 >= 32)
    assert seen.tolist() == [64] * 128
    machine = machine_of(ctas=2)
    assert seen_by(machine, lanes=np.arange(128) % 64 >= 32).min() == 32  # without a barrier


def test_a_barrier_of_some_threads_waits_for_no_others():
    machine = machine_of(96)
    numbers = np.where(np.arange(96) < 64, 1, 2).astype(np.uint32)

    def step(group):
        counts = np.where(machine.warp[group.s] < 2, 64, 32).astype(np.uint32)
        machine.barriers.arrive(group, numbers[group.s], counts, True)

    seen = seen_by(machine, step, lanes=np.arange(96) >= 64)
    assert seen.tolist() == [64] * 64 + [96] * 32


def test_who_only_arrives_goes_on():
    machine, first = machine_of(), np.arange(64) < 32

    def step(group):
        if (part := group.part(first[group.s])) is not None:
            machine.barriers.arrive(part, np.zeros(part.size, np.uint32), np.full(part.size, 64), False)
        else:
            machine.barriers.arrive(group, np.zeros(group.size, np.uint32), np.full(group.size, 64), True)

    machine.run(code_of(step, leave))
    assert not machine.live.any()


def test_threads_that_have_ended_are_not_waited_for():
    machine = machine_of(96)

    def some_end(group):
        if (part := group.part(np.arange(96)[group.s] >= 64)) is not None:
            part.exit()

    passed = []
    machine.run(code_of(some_end, arrive(machine, 0), lambda g: passed.extend(g.numbers), leave))
    assert sorted(passed) == list(range(64))


def test_too_few_threads_are_a_hang_and_too_high_a_number_a_fault():
    machine = machine_of()
    with pytest.raises(Hang, match="line 1"):
        machine.run(code_of(arrive(machine, 0, 96), leave))
    machine = machine_of()
    with pytest.raises(Fault, match="barrier 16") as caught:
        machine.run(code_of(arrive(machine, 16), leave))
    assert caught.value.thread == 0
    machine = machine_of()
    machine.run(code_of(arrive(machine, 15), leave))


@pytest.mark.parametrize(("kind", "wanted"), [("popc", [5, 64, 0]), ("and", [0, 1, 0]), ("or", [1, 1, 0])])
def test_votes_of_a_cta(kind, wanted):
    machine = machine_of(ctas=3)
    says = np.concatenate([np.arange(64) < 5, np.ones(64, bool), np.zeros(64, bool)])
    row = np.full(machine.threads, 77, np.uint32)
    vote = kind, lambda g: says[g.s], row
    seen = seen_by(machine, arrive(machine, 1, None, True, vote), lanes=np.arange(192) % 64 >= 32)
    assert row.tolist() == [one for one in wanted for _ in range(64)] and seen.tolist() == [64] * 192


def test_a_barrier_is_used_again():
    machine = machine_of()
    row = np.zeros(machine.threads, np.uint32)
    votes = [("popc", lambda g, n=n: np.arange(64)[g.s] < n, row) for n in (3, 8)]
    rounds = [
        step
        for vote in votes
        for step in (arrive(machine, 0, None, True, vote), lambda g: found.append(set(row.tolist())))
    ]
    found = []
    machine.run(code_of(*rounds, leave))
    assert found == [{3}, {8}]


def test_clusters_are_waited_for():
    machine = machine_of(32, ctas=4, cluster=2)
    written, seen = np.zeros(128, bool), np.full(128, -1)

    def write(group):
        written[group.numbers] = True

    def look(group):
        group.put(seen, np.array([written[:64].sum(), written[64:].sum()])[machine.cta[group.s] // 2])

    lanes = np.arange(128) % 64 >= 32
    barriers = machine.barriers
    rounds = [late(machine, lanes), write, barriers.cluster_arrive, barriers.cluster_wait, look]
    machine.run(code_of(*rounds, barriers.cluster_arrive, barriers.cluster_wait, leave))
    assert seen.tolist() == [64] * 128


# --- in shared memory ------------------------------------------------------------------------------


class Gate:
    """Two mbarriers in each of two CTAs; the whole machine as a group, or some of it."""

    def __init__(self):
        self.machine = machine_of(32, ctas=2)
        self.barriers = self.machine.shared_barriers
        self.addresses = np.where(np.arange(64) % 2 == 0, 8, 16).astype(np.uint32)

    def group(self, *threads):
        self.machine._now = Group(self.machine, slice(0, 64), np.isin(np.arange(64), threads), 0)
        return self.machine._now

    def phases(self):
        """(phase, pending, expected, bytes) of the four, those of the first CTA first."""
        found = [self.barriers.at(at) for at in (8, 16, 1032, 1040)]
        return [(one.phase, one.pending, one.expected, one.transactions) for one in found]


@pytest.fixture
def gate():
    made = Gate()
    made.barriers.init(made.group(0, 1, 32, 33), SHARED, made.addresses, np.where(np.arange(64) % 2 == 0, 3, 2))
    return made


def words(**by_thread):
    found = np.zeros(64, np.uint32)
    for name, value in by_thread.items():
        found[int(name[1:])] = value
    return found


def test_arrivals_are_counted_by_barrier(gate):
    assert gate.phases() == [(0, 3, 3, 0), (0, 2, 2, 0)] * 2
    states = gate.barriers.arrive(gate.group(0, 2, 3, 34), SHARED, gate.addresses)
    assert gate.phases() == [(0, 1, 3, 0), (0, 1, 2, 0), (0, 2, 3, 0), (0, 2, 2, 0)]
    assert [(int(states[lane]) & 0xFFFF_FFFF, int(states[lane]) >> 32) for lane in (0, 2, 3, 34)] == [
        (0, 3), (0, 2), (0, 2), (0, 3),
    ]  # fmt: skip
    gate.barriers.arrive(gate.group(1), SHARED, gate.addresses)
    gate.barriers.arrive(gate.group(32), SHARED, gate.addresses, words(t32=2))
    assert gate.phases() == [(0, 1, 3, 0), (1, 2, 2, 0), (1, 3, 3, 0), (0, 2, 2, 0)]
    states = gate.barriers.arrive(gate.group(0, 1, 32, 33), SHARED, gate.addresses)
    assert states.dtype == np.uint64 and (states & np.uint64(7))[[0, 1, 32, 33]].tolist() == [0, 1, 1, 0]
    gate.barriers.arrive(gate.group(33), SHARED, gate.addresses, 1, None, True)
    assert gate.phases() == [(1, 3, 3, 0), (1, 1, 2, 0), (1, 2, 3, 0), (1, 1, 1, 0)]
    with pytest.raises(Fault, match="4 arrivals at an mbarrier that waits for 3") as caught:
        gate.barriers.arrive(gate.group(2), SHARED, gate.addresses, 4)
    assert caught.value.thread == 2


def test_bytes_are_waited_for(gate):
    gate.barriers.arrive(gate.group(0), SHARED, gate.addresses, 3, words(t0=100))
    assert gate.phases()[0] == (0, 0, 3, 100)
    with pytest.raises(Fault, match="waits for 0"):  # of products of tcgen05
        gate.barriers.commit(gate.group(0), gate.addresses, np.arange(64) == 0)
    gate.barriers.expect(gate.group(2, 3), SHARED, gate.addresses, words(t2=28, t3=7))
    assert [one[3] for one in gate.phases()] == [128, 7, 0, 0]
    gate.barriers.completed(gate.group(4, 6), SHARED, gate.addresses, words(t4=64, t6=60))
    assert gate.phases()[0] == (0, 0, 3, 4)
    gate.barriers.completed(gate.group(4), SHARED, gate.addresses, words(t4=4))
    assert gate.phases()[0] == (1, 3, 3, 0) and gate.phases()[1] == (0, 2, 2, 7)


def test_a_phase_is_complete_by_its_state_or_its_parity(gate):
    def complete(states, by_parity):
        given = np.full(64, states, np.uint32)
        return gate.barriers.is_complete(gate.group(0, 1, 32, 33), SHARED, gate.addresses, given, by_parity)

    assert not complete(0, False).any() and not complete(0, True).any()
    assert np.flatnonzero(complete(1, True)).tolist() == [0, 1, 32, 33]  # the phase before the first one
    gate.barriers.arrive(gate.group(1), SHARED, gate.addresses, 2)
    for by_parity in (True, False):
        assert np.flatnonzero(complete(0, by_parity)).tolist() == [1]
    assert np.flatnonzero(complete(1, True)).tolist() == [0, 32, 33]
    gate.barriers.arrive(gate.group(1), SHARED, gate.addresses, 2)
    assert np.flatnonzero(complete(0, False)).tolist() == [1] and not complete(0, True).any()


def test_an_mbarrier_that_is_not_there(gate):
    gate.barriers.invalidate(gate.group(1), SHARED, gate.addresses)
    gate.barriers.invalidate(gate.group(1), SHARED, gate.addresses)
    for act in (
        lambda: gate.barriers.arrive(gate.group(3), SHARED, gate.addresses),
        lambda: gate.barriers.at(800),
    ):
        with pytest.raises(Fault, match="not initialised"):
            act()
    gate.barriers.arrive(gate.group(35), SHARED, gate.addresses)


def test_threads_wait_for_a_phase_and_give_up_where_none_comes():
    machine = machine_of(64)
    barriers, order = machine.shared_barriers, []
    where, zeros = (lambda g: np.full(g.size, 8, np.uint32)), (lambda g: np.zeros(g.size, np.uint32))

    def init(group):
        barriers.init(group, SHARED, where(group), np.ones(group.size))

    def part(group):
        if (other := group.part(machine.warp[group.s] == 1)) is not None:
            other.jump(4)

    def wait(group):
        found = barriers.try_wait(group, SHARED, where(group), zeros(group), True)
        order.append(("waited", group.numbers.tolist(), bool(found[group.active].all())))

    def arrives(group):
        if machine.warp[group.s][0] == 1:
            order.append(("arrives", group.numbers.tolist()))
            barriers.arrive(group.under(machine.lane[group.s] == 0), SHARED, where(group))

    machine.run(Code(code_of(init, part, wait, leave, arrives, leave).instructions, frozenset([4])))
    assert order == [("arrives", list(range(32, 64))), ("waited", list(range(32)), True)]
    machine = machine_of(32)
    barriers, order = machine.shared_barriers, []
    machine.run(code_of(init, wait, leave))
    assert order == [("waited", list(range(32)), False)]
