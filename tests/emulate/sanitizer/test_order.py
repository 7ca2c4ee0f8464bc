"""Which accesses are ordered: accesses, barriers and copies by hand, of two CTAs of four warps each."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import SHARED, Memory  # noqa: E402
from tritonhook.emulate.sanitizer.accesses import Access, Conflict  # noqa: E402
from tritonhook.emulate.sanitizer.order import Order  # noqa: E402

BYTES = 2048


class Watched:
    """A machine that is watched. Each act has the number of an instruction; warps are those of the whole machine."""

    def __init__(self, threads=128, unit=4):
        self.machine = Machine(Geometry((2, 1, 1), (threads, 1, 1), (0, 1)), Memory(BYTES))
        self.order = self.machine.memory.watch = Order(self.machine, self.machine.memory, unit)
        self.grain = self.order.grain

    def at(self, pc):
        self.machine._running = pc + 1, 0, iter(())

    def group(self, warp):
        mask = np.zeros(self.machine.threads, bool)
        mask[warp * self.grain : (warp + 1) * self.grain] = True
        return Group(self.machine, *self.machine.shaped(mask, 0), 0)

    def access(self, how, pc, warp, address=64, value=0):
        self.at(pc)
        g = self.group(warp)
        where = np.full(g.size, address, np.uint32)
        if how == "read":
            self.machine.memory.read(g, SHARED, where, 4)
        elif how == "write":
            self.machine.memory.write(g, SHARED, where, 4, np.full((1, g.size), value, np.uint32))
        else:
            self.machine.memory.atomic(g, SHARED, where, 4, np.add, np.ones(g.size, np.uint32))

    def threads(self, *warps):
        return np.concatenate([np.arange(w * self.grain, (w + 1) * self.grain) for w in warps])

    def hand_over(self, first, second, place=("mbarrier", 8)):
        """The second warp knows what the first one has done."""
        self.order.arrive(place, self.threads(first), False)
        self.order.open(place)
        self.order.wait(place, self.threads(second), True)

    @property
    def found(self):
        self.order._settle_doubts()
        return list(self.order.conflicts.values())


@pytest.fixture
def w():
    return Watched()


def race(first, second, at=64, kind="race"):
    return Conflict(kind, Access(*first), Access(*second), at)


def test_an_access_behind_a_write_of_another_warp_is_a_race(w):
    w.access("write", 3, 5, 68)
    w.access("read", 4, 6, 68)
    w.access("read", 5, 5, 68)  # its own, which each lane wrote
    w.access("read", 6, 1, 68)  # of the other CTA's memory
    assert w.found == [race(("write", 3, 5), ("read", 4, 6), 68)] and w.order.unwritten == {6}
    w.access("write", 7, 7, 68, 9)
    readers = [race(("read", 4, 6), ("write", 7, 7), 68), race(("read", 5, 5), ("write", 7, 7), 68)]
    assert w.found[1:] == [*readers, race(("write", 3, 5), ("write", 7, 7), 68)]


def test_what_a_barrier_hands_over_is_in_order(w):
    w.access("write", 1, 0)
    w.hand_over(0, 1)
    w.access("read", 2, 1)
    w.access("read", 3, 2)
    assert w.found == [race(("write", 1, 0), ("read", 3, 2))]
    w.hand_over(1, 3, ("mbarrier", 16))  # what it knew of the first one, too
    w.access("write", 4, 3, value=1)
    assert w.found[1:] == [race(("read", 3, 2), ("write", 4, 3))]
    w.access("write", 5, 0, value=2)  # later than what was handed over
    assert race(("write", 4, 3), ("write", 5, 0)) in w.found


def test_a_write_behind_the_arrival_is_not_handed_over(w):
    w.order.arrive(("mbarrier", 8), w.threads(0), False)
    w.access("write", 1, 0)
    w.order.open(("mbarrier", 8))
    w.order.wait(("mbarrier", 8), w.threads(1), True)
    w.access("read", 2, 1)
    assert w.found == [race(("write", 1, 0), ("read", 2, 1))]


def test_those_that_wait_know_when_it_opens(w):
    w.access("write", 1, 0)
    w.order.wait(("cluster", 0), w.threads(1, 2), False)
    w.order.arrive(("cluster", 0), w.threads(0), True)
    w.access("read", 2, 1)
    w.order.open(("cluster", 0))
    w.access("read", 3, 2)
    w.order.open(("cluster", 0))  # nobody has arrived
    w.access("write", 4, 2, 128)
    w.order.open(("barrier", 3))
    w.access("read", 5, 0, 128)
    assert w.found == [race(("write", 1, 0), ("read", 2, 1)), race(("write", 4, 2), ("read", 5, 0), 128)]


def test_writes_that_change_nothing_are_no_race_but_atomics_and_others_are(w):
    w.access("write", 1, 0, value=5)
    w.access("write", 2, 1, value=5)
    assert w.found == []
    w.access("write", 3, 2, value=6)
    assert w.found == [race(("write", 2, 1), ("write", 3, 2))]
    other = Watched()
    other.access("atomic", 1, 0)
    other.access("atomic", 2, 1)
    assert other.found == [] and other.order.unwritten == {1}
    other.order.together(other.group(1))
    other.access("read", 3, 1)  # behind the atomic access of its own warp, but not behind that of the other one
    other.access("read", 4, 2)
    assert other.found == [race(("atomic access", 1, 0), ("read", 3, 1)), race(("write", 2, 1), ("read", 4, 2))]
    other.access("atomic", 5, 3)
    reads = [race(("read", pc, warp), ("atomic access", 5, 3)) for pc, warp in ((3, 1), (4, 2))]
    assert other.found[2:] == reads
    other.access("write", 6, 0, value=77)
    assert other.found[-1] == race(("atomic access", 5, 3), ("write", 6, 0))


def test_warps_of_one_instruction_that_write_different_values(w):
    w.at(4)
    g = Group(w.machine, slice(128, 256), None, 0)
    same = np.full((1, 128), 7, np.uint32)
    w.machine.memory.write(g, SHARED, np.full(128, 32, np.uint32), 4, same)
    assert w.found == []
    same[0, 40] = 8
    w.machine.memory.write(g, SHARED, np.full(128, 36, np.uint32), 4, same)
    (one,) = w.found
    assert one.kind == "race" and one.at == 36 and {one.first.what, one.second.what} == {"write"}
    assert {one.first.pc, one.second.pc} == {4} and one.first.actor != one.second.actor


@pytest.mark.parametrize(("unit", "races"), [(4, 1), (1, 0)])
def test_bytes_beside_one_another_are_told_apart_by_the_unit(unit, races):
    w = Watched(unit=unit)
    for pc, (warp, address) in enumerate([(0, 64), (1, 65)]):
        w.at(pc)
        g = w.group(warp)
        w.machine.memory.write(
            g, SHARED, np.full(g.size, address, np.uint32), 1, np.full((1, g.size), pc + 1, np.uint8)
        )
    assert len(w.found) == races


def test_lanes_are_told_apart_where_a_cta_is_one_warp():
    w = Watched(32)
    assert w.grain == 1 and w.order.warps == 64
    w.access("write", 1, 33)
    w.access("read", 2, 34)
    assert w.found == [race(("write", 1, 33), ("read", 2, 34))]
    w.access("write", 3, 33, 128)
    w.order.together(Group(w.machine, slice(32, 64), None, 0))
    w.access("read", 4, 34, 128)
    assert len(w.found) == 1
    w.access("write", 5, 33, 128, 9)  # behind it: nothing orders that
    assert len(w.found) == 2


def test_copies_are_on_their_way_until_they_land(w):
    g = w.group(4)
    index = np.full(g.size, BYTES + 256)
    w.access("write", 1, 5, 256)
    w.at(2)
    w.order.copying(g, index, 16)
    assert w.found == [race(("write", 1, 5), ("copy", 2, 4), 256)]
    w.access("read", 3, 4, 268)
    w.access("write", 4, 4, 264)
    flying = "copy that has not landed", 2, -1
    assert w.found[1:] == [race(flying, ("read", 3, 4), 268), race(flying, ("write", 4, 4), 264)]
    w.order.landed(w.threads(4), np.full(32, BYTES + 256), 16)
    w.access("read", 5, 4, 256)
    w.access("read", 6, 6, 260)
    assert w.found[3:] == [race(("write", 2, 4), ("read", 6, 6), 260)]
    w.access("read", 7, 6, 272)  # behind the copy
    assert len(w.found) == 4 and w.order.unwritten == {7}


def test_bulk_copies_are_done_when_their_mbarrier_says_so(w):
    index = BYTES + 512 + np.arange(0, 64, 4)
    w.access("read", 1, 6, 512)
    w.at(2)
    w.order.bulk_write(4 * 32, index, 4, BYTES + 8)
    copies = w.order.warps + 2
    assert w.order.clocks.owners == [0, 1, 1]
    assert w.found == [race(("read", 1, 6), ("bulk copy", 2, copies), 512)]
    w.order.copied(("mbarrier", BYTES + 8))
    w.access("read", 3, 5, 572)
    assert w.found[1:] == [race(("bulk copy", 2, copies), ("read", 3, 5), 572)]
    w.order.open(("mbarrier", BYTES + 8))
    w.order.wait(("mbarrier", BYTES + 8), w.threads(7), True)
    w.access("read", 4, 7, 568)
    assert len(w.found) == 2
    w.at(5)
    w.order.bulk_write(4 * 32, index, 4, BYTES + 16)  # another mbarrier: an actor of its own
    assert w.order.clocks.owners == [0, 1, 1, 1]
    assert race(("bulk copy", 2, copies), ("bulk copy", 5, copies + 1), 512) in w.found


def test_what_is_known_stays_known_when_more_mbarriers_have_copies(w):
    w.access("write", 1, 4)
    w.hand_over(4, 5, ("mbarrier", BYTES + 8))
    for place in range(BYTES + 1024, BYTES + 1184, 8):
        w.order.copied(("mbarrier", place))
    w.access("read", 2, 5)
    assert w.found == []
    w.access("read", 3, 6)
    assert w.found == [race(("write", 1, 4), ("read", 3, 6))]


@pytest.mark.parametrize(("kind", "text"), [("bulk", "read of a bulk store"), ("wgmma", "read of wgmma")])
def test_what_the_asynchronous_proxy_reads_is_fenced_and_lasts_until_it_is_waited_for(w, kind, text):
    warps = range(128, 256, 32) if kind == "wgmma" else [128]
    index = BYTES + np.arange(64, 128, 16)
    w.access("write", 1, 4, 64)
    w.at(2)
    w.order.flights.read(kind, warps, index, 16)
    proxy = race(("write", 1, 4), (text, 2, 4), kind="proxy")
    assert w.found[0] == proxy and w.order.unwritten == {2}
    assert [one.kind for one in w.found[1:]] == ["race"] * (kind == "wgmma")  # its other warps do not know of the write
    w.access("write", 3, 4, 68, 1)
    reads = race(("asynchronous read", 2, 4), ("write", 3, 4), 68)
    assert w.found[-1] == reads
    count = len(w.found)
    w.order.flights.commit(w.group(4), kind)
    w.order.flights.wait(w.group(4), kind, 1)
    w.access("write", 4, 4, 72)
    assert w.found[count:] == [race(("asynchronous read", 2, 4), ("write", 4, 4), 72)]
    w.order.flights.wait(w.group(4), kind, 0)
    w.access("write", 5, 4, 76)
    assert len(w.found) == count + 1
    w.access("write", 6, 5, 80)  # it does not know that these are done
    assert w.found[count + 1 :] == [race(("asynchronous read", 2, 4), ("write", 6, 5), 80)]
    assert len(w.order.flights.open[kind]) == (kind == "wgmma")
    for warp in (5, 6, 7):
        w.order.flights.commit(w.group(warp), kind)
        w.order.flights.wait(w.group(warp), kind, 0)
    assert w.order.flights.open[kind].size == 0


def test_a_fence_orders_what_its_warp_knows(w):
    w.access("write", 1, 4, 64)
    w.order.fence(w.group(4))
    w.access("write", 2, 4, 80)  # behind the fence
    w.hand_over(4, 5)
    w.at(3)
    w.order.flights.read("bulk", [160], BYTES + np.array([64]), 4)
    assert w.found == []
    w.order.flights.read("bulk", [160], BYTES + np.array([80]), 4)
    assert w.found == [race(("write", 2, 4), ("read of a bulk store", 3, 5), 80, "proxy")]


def test_columns_of_tensor_memory(w):
    order, core, lanes = w.order, w.order.warps + 1, np.arange(32)
    w.at(1)
    order.tensor.by_warp(128, lanes, np.arange(8, 16), True)
    w.at(2)
    order.tensor.by_warp(160, lanes + 32, np.arange(8, 16), False)  # other lanes
    order.tensor.by_core(128, 1, np.arange(128), np.arange(12, 20), False)
    wrote = "write of tensor memory", 1, 4
    assert w.found == [race(wrote, ("read of tcgen05.mma", 2, core), 12, "tensor")]
    order.tensor.done(w.group(4), True)
    w.hand_over(4, 5)
    w.at(3)
    order.tensor.by_core(160, 1, np.arange(128), np.arange(8, 12), True)
    assert w.found[1:] == [race(("read of tensor memory", 2, 5), ("product", 3, core), 8, "tensor")]
    w.at(4)
    order.tensor.by_warp(128, lanes, np.arange(0, 9), False)
    assert w.found[2:] == [race(("write of tensor memory", 3, core), ("read", 4, 4), 8, "tensor")]
    order.flights.commit_products(("mbarrier", BYTES + 8), 160)
    order.open(("mbarrier", BYTES + 8))
    order.wait(("mbarrier", BYTES + 8), w.threads(6), True)
    w.at(5)
    order.tensor.by_warp(192, lanes, np.arange(8, 12), False)
    assert len(w.found) == 3


def test_products_read_shared_memory_until_their_commit(w):
    w.access("write", 1, 4, 64)
    w.order.fence(w.group(4))
    w.at(2)
    w.order.flights.read("tcgen05", [128], BYTES + np.array([64]), 4)
    w.order.flights.commit_products(("mbarrier", BYTES + 8), 160)  # of another warp
    assert len(w.order.flights.open["tcgen05"]) == 1
    w.order.flights.commit_products(("mbarrier", BYTES + 8), 128)
    assert w.order.flights.open["tcgen05"].size == 0
    w.access("write", 3, 4, 64, 1)
    assert w.found == [race(("asynchronous read", 2, 4), ("write", 3, 4))]
    w.order.open(("mbarrier", BYTES + 8))
    w.order.wait(("mbarrier", BYTES + 8), w.threads(4), True)
    w.access("write", 4, 4, 64, 2)
    assert len(w.found) == 1


def test_so_many_are_kept(w):
    for pc in range(40):
        w.access("write", 2 * pc, 0, 4 * pc, 1)
        w.access("read", 2 * pc + 1, 1, 4 * pc)
    assert len(w.found) == 32
