"""Memory: the bytes that an address of each space is, of each width; what is outside or misaligned; atomics."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.capture.launches.record import Pointer  # noqa: E402
from tritonhook.emulate import memory as spaces  # noqa: E402
from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.launch import element_of  # noqa: E402
from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import (  # noqa: E402
    CLUSTER,
    CONSTANT,
    GENERIC,
    GLOBAL,
    GLOBAL_BASE,
    GUARD_BYTES,
    LOCAL,
    LOCAL_WINDOW,
    SHARED,
    SHARED_WINDOW,
    Memory,
)
from tritonhook.errors import NotUnderstood  # noqa: E402

PATTERN = bytes(n * 7 % 251 for n in range(4096))
THREADS, CTAS = 32, 4  # two clusters of two
SHARED_BYTES, LOCAL_BYTES = 2048, 64


class Fixture:
    """A machine of four CTAs in two clusters with a pattern in each memory."""

    def __init__(self, seed=0):
        self.memory = Memory(SHARED_BYTES - 3, LOCAL_BYTES - 1, PATTERN[:100])
        self.first = self.memory.allocate(PATTERN[:1024], "first")
        self.second = self.memory.allocate(100)
        self.machine = Machine(Geometry((4, 1, 1), (THREADS, 1, 1), tuple(range(CTAS)), (2, 1, 1)), self.memory, seed)
        self.memory.shared.data[:] = np.resize(np.frombuffer(PATTERN, np.uint8), SHARED_BYTES * CTAS)
        self.memory.local.data[:] = np.resize(np.frombuffer(PATTERN, np.uint8)[::-1], LOCAL_BYTES * THREADS * CTAS)
        self.all = Group(self.machine, slice(0, THREADS * CTAS), None, 0)

    def some(self, begin, stop, where):
        """The lanes of a slice of which `where`, by their number in it, is true."""
        return Group(self.machine, slice(begin, stop), np.array([where(n) for n in range(stop - begin)]), 0)

    def bytes_at(self, thread, space, address, size):
        """The bytes that an address is, by the space's definition."""
        memory = self.memory
        if space == GENERIC:
            window = address >> 32
            space = {SHARED_WINDOW >> 32: CLUSTER, LOCAL_WINDOW >> 32: LOCAL}.get(window, GLOBAL)
            address = address if space == GLOBAL else address & 0xFFFF_FFFF
        cta, offset = thread // THREADS, address & (1 << 24) - 1
        store, begin = {
            GLOBAL: (memory.global_, address - GLOBAL_BASE),
            SHARED: (memory.shared, cta * SHARED_BYTES + offset),
            CLUSTER: (memory.shared, (cta // 2 * 2 + (address >> 24)) * SHARED_BYTES + offset),
            LOCAL: (memory.local, thread * LOCAL_BYTES + address),
            CONSTANT: (memory.constant, address),
        }[space]
        return bytes(store.data[begin : begin + size])


@pytest.fixture
def at():
    return Fixture()


def places(at, space, size):
    """An address of each lane, aligned; and the type that the space has."""
    lane, rank = at.machine.lane.astype(np.int64), at.machine.rank.astype(np.int64)
    turned = (lane * 5 + rank) % 32 * size
    if space == GLOBAL:
        return (turned + at.first.address).astype(np.uint64)
    if space == GENERIC:
        shared = SHARED_WINDOW + ((1 - rank) << 24) + 512 + turned
        local = LOCAL_WINDOW + turned % (LOCAL_BYTES // size * size)
        return np.choose(lane % 3, [turned + at.first.address, shared, local]).astype(np.uint64)
    found = {
        SHARED: (3 << 24) + 512 + turned,  # the rank does not matter
        CLUSTER: ((1 - rank) << 24) + 512 + turned,
        LOCAL: turned % (LOCAL_BYTES // size * size),
        CONSTANT: turned % (96 // size * size),
    }[space]
    return found.astype(np.uint32)


WIDTHS = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (4, 4), (8, 2), (1, 4), (2, 8)]


@pytest.mark.parametrize(("unit", "count"), WIDTHS)
@pytest.mark.parametrize("space", [GLOBAL, SHARED, CLUSTER, LOCAL, CONSTANT, GENERIC])
def test_each_width_of_each_space_is_read(at, space, unit, count):
    size = unit * count
    where = places(at, space, size)
    found = at.memory.read(at.all, space, where, unit, count)
    assert found.shape == (count, THREADS * CTAS) and found.dtype == f"u{unit}"
    for thread, address in enumerate(where.tolist()):
        assert found[:, thread].tobytes() == at.bytes_at(thread, space, address, size)
    group = at.some(32, 96, lambda n: n % 5 == 1)
    some = at.memory.read(group, space, where[32:96], unit, count)
    assert (some[:, group.mask] == found[:, 32:96][:, group.mask]).all()


@pytest.mark.parametrize(("unit", "count"), WIDTHS)
@pytest.mark.parametrize("space", [GLOBAL, SHARED, CLUSTER, LOCAL, GENERIC])
def test_active_lanes_write_their_values_and_nothing_else(at, space, unit, count):
    where = places(at, space, unit * count)[32:96]
    group = at.some(32, 96, lambda n: n % 7 in (0, 3) and n < 32)
    values = np.random.default_rng(0).integers(0, 1 << 8 * unit, (count, 64), f"u{unit}", endpoint=False)
    stores = at.memory.global_, at.memory.shared, at.memory.local
    before = [one.data.copy() for one in stores]
    at.memory.write(group, space, where, unit, values)
    changed = 0
    for thread in np.flatnonzero(group.mask).tolist():
        expected = values[:, thread].tobytes()
        assert at.bytes_at(32 + thread, space, int(where[thread]), unit * count) == expected
        changed += len(expected)
    assert sum(int((one.data != old).sum()) for one, old in zip(stores, before, strict=True)) <= changed


def test_a_wide_address_of_shared_memory_is_its_lower_half(at):
    narrow = places(at, CLUSTER, 4)
    wide = narrow.astype(np.uint64) + np.uint64(SHARED_WINDOW)
    for space in (SHARED, CLUSTER):
        assert (at.memory.read(at.all, space, wide, 4) == at.memory.read(at.all, space, narrow, 4)).all()


@pytest.mark.parametrize(
    ("space", "address", "size", "words"),
    [
        (SHARED, SHARED_BYTES - 4, 8, "outside of shared"),
        (SHARED, SHARED_BYTES, 1, "outside of shared"),
        (CLUSTER, 2 << 24, 4, "outside of shared::cluster"),
        (CLUSTER, SHARED_BYTES, 4, "outside of shared::cluster"),
        (LOCAL, LOCAL_BYTES, 4, "outside of local"),
        (CONSTANT, 100, 4, "outside of const"),
        (CONSTANT, 98, 4, "outside of const"),
        (SHARED, 2, 4, "misaligned read of 4 bytes"),
        (CLUSTER, 8, 16, "misaligned read of 16 bytes"),
        (GLOBAL, GLOBAL_BASE, 4, "16,384 bytes before the start of first"),
        (GLOBAL, GLOBAL_BASE + GUARD_BYTES + 1024, 4, r"0 bytes beyond the end of first \(1,024 bytes\)"),
        (GLOBAL, GLOBAL_BASE + GUARD_BYTES + 1021, 4, "from 3 bytes before the end of first"),
        (GLOBAL, GLOBAL_BASE + 2 * GUARD_BYTES + 1024 + 101, 1, "1 bytes beyond the end of buffer 1"),
        (GLOBAL, GLOBAL_BASE + 2 * GUARD_BYTES + 1023, 1, "1 bytes before the start of buffer 1"),
        (GLOBAL, GLOBAL_BASE - 8, 8, "before the start of first"),
    ],
)
def test_what_lies_outside_is_a_fault_of_the_first_thread_there(at, space, address, size, words):
    dtype = np.uint64 if space == GLOBAL else np.uint32
    good = {GLOBAL: at.first.address, CONSTANT: 0}.get(space, 0)
    where = np.where(np.isin(np.arange(64), [9, 11]), address, good).astype(dtype)
    unit = min(size, 8)
    with pytest.raises(Fault, match=words) as caught:
        at.memory.read(Group(at.machine, slice(32, 96), None, 0), space, where, unit, size // unit)
    assert caught.value.thread == 32 + 9
    with pytest.raises(Fault, match=words) as caught:
        at.memory.read(at.some(32, 96, lambda n: n in (2, 11)), space, where, unit, size // unit)
    assert caught.value.thread == 32 + 11
    quiet = at.some(32, 96, lambda n: n not in (9, 11))
    assert at.memory.read(quiet, space, where, unit, size // unit).shape == (size // unit, 64)


@pytest.mark.parametrize("space", [SHARED, LOCAL, CONSTANT])
def test_the_last_bytes_are_inside(at, space):
    last = {SHARED: SHARED_BYTES - 4, LOCAL: LOCAL_BYTES, CONSTANT: 100}[space] - 4
    at.memory.read(at.all, space, np.full(THREADS * CTAS, last, np.uint32), 4)


def test_accesses_of_several_buffers_are_checked_each(at):
    begins = np.array([at.first.address + 1020, at.second.address + 96] * 64, np.uint64)
    assert at.memory.read(at.all, GLOBAL, begins, 4)[0][:2].tolist() == [
        int.from_bytes(PATTERN[1020:1024], "little"),
        0,
    ]
    with pytest.raises(Fault, match=r"beyond the end of buffer 1 \(100 bytes\)") as caught:
        at.memory.read(at.all, GLOBAL, begins + np.array([0, 0, 0, 4] * 32, np.uint64), 4)
    assert caught.value.thread == 3


def test_one_access_or_atomic_of_several_kinds_of_memory(at):
    where = np.array([at.first.address, SHARED_WINDOW] * 64, np.uint64)
    group = Group(at.machine, slice(32, 128), None, 0)
    with pytest.raises(NotUnderstood, match="different state spaces"):  # a GPU would do it
        at.memory.locate(group, GENERIC, where[:96], 4, "r")
    before = at.memory.read(group, GENERIC, where[:96], 4)[0]
    old = at.memory.atomic(group, GENERIC, where[:96], 4, np.add, np.ones(96, np.uint32))
    found = at.memory.read(group, GENERIC, where[:96], 4)[0] - before
    assert (found[::2] == 48).all() and sorted((old - before)[::2].tolist()) == list(range(48))
    clusters = at.machine.cta[32:128][1::2] // at.machine.geometry.cluster_size  # rank 0 of each
    assert (found[1::2] == [(clusters == one).sum() for one in clusters]).all()


@pytest.mark.parametrize("space", [GLOBAL, SHARED, CLUSTER, GENERIC])
@pytest.mark.parametrize("unit", [2, 4, 8])
def test_atomics_combine_each_lane_once(at, space, unit):
    """Half of the lanes add to one of three places; each gets what was there before, in some order."""
    base = places(at, {GENERIC: CLUSTER}.get(space, space), 8)
    where = (base[:1] + (np.arange(128) % 3 * 8).astype(base.dtype)).astype(base.dtype)
    where = where.astype(np.uint64) + np.uint64(SHARED_WINDOW) if space == GENERIC else where
    group = at.some(0, 128, lambda n: n % 2 == 1 and n < 64)
    before = [at.bytes_at(n, space, int(where[n]), unit) for n in range(3)]
    operands = (np.arange(128) * 3 + 1).astype(f"u{unit}")
    old = at.memory.atomic(group, space, where, unit, np.add, operands)
    lanes = np.flatnonzero(group.mask)
    assert old.dtype == f"u{unit}" and old.shape == (128,) and not old[~group.mask].any()
    rows = {}
    for lane in lanes.tolist():
        cta = 0 if space != SHARED else lane // THREADS
        rank = lane // THREADS if space in (SHARED,) else 0
        rows.setdefault((lane % 3, cta, rank), []).append(lane)
    for (place, _, rank), mine in rows.items():
        start = (
            int.from_bytes(before[place], "little")
            if not rank
            else int.from_bytes((PATTERN * 2)[SHARED_BYTES * rank + 512 + place * 8 :][:unit], "little")
        )
        seen = start
        left = {lane: int(old[lane]) for lane in mine}
        for _ in mine:  # each lane continues from what another one left
            lane = next(one for one, value in left.items() if value == seen % (1 << 8 * unit))
            del left[lane]
            seen += int(operands[lane])
        assert at.bytes_at(mine[0], space, int(where[mine[0]]), unit) == (seen % (1 << 8 * unit)).to_bytes(
            unit, "little"
        )


def test_buffers_lie_apart_and_keep_their_names():
    memory = Memory()
    sizes = [1, 512, 513, 0]
    made = [memory.allocate(bytes(size) if size % 2 else size) for size in sizes]
    assert [one.name for one in made] == [f"buffer {n}" for n in range(4)] and [one.size for one in made] == sizes
    begins = [GUARD_BYTES, 2 * GUARD_BYTES + 512, 3 * GUARD_BYTES + 1024, 4 * GUARD_BYTES + 2048]
    assert [one.begin for one in made] == begins and made[1].address == GLOBAL_BASE + begins[1]
    assert memory.outside("read", 0).endswith(", 16,384 bytes before the start of buffer 0 (1 bytes)")
    assert Memory().outside("read", 5) == f"read outside of all buffers, at address {GLOBAL_BASE + 5:#x}"
    assert memory.outside("read", begins[1] - 10).endswith(", 10 bytes before the start of buffer 1 (512 bytes)")
    assert memory.outside("read", begins[0] + 30).endswith(", 29 bytes beyond the end of buffer 0 (1 bytes)")


def test_sizes_are_rounded_and_memory_begins_as_it_is_told():
    memory = Memory(1025, 17, b"abc", garbage=0x7F)
    assert (memory.shared_bytes, memory.local_bytes, memory.constant_bytes) == (2048, 32, 3)
    machine = Machine(Geometry((2, 1, 1), (40, 1, 1), (0, 1)), memory)
    assert len(memory.shared.data) == 4096 and set(memory.shared.data.tolist()) == {0x7F}
    assert len(memory.local.data) == 32 * machine.threads == 32 * 128 and not memory.local.data.any()
    assert bytes(memory.constant.data[:4]) == b"abc\0"
    assert len(spaces.Store.of_size(0).data) == 64 == len(spaces.Store.of_size(64).data)
    assert len(spaces.Store.of_size(65).data) == 128


@pytest.mark.parametrize(
    ("space", "address", "unit", "count", "how", "said"),
    [
        (SHARED, 2047, 2, 1, "r", "read of 2 bytes outside of shared memory at 0x7ff"),
        (SHARED, 2048, 1, 1, "w", "write of 1 bytes outside of shared memory at 0x800"),
        (SHARED, 5, 2, 2, "w", "misaligned write of 4 bytes of shared memory at 0x1005"),  # of the third CTA
        (SHARED, (7 << 24) + 2, 4, 1, "a", "misaligned atomic access of 4 bytes of shared memory at 0x1002"),
        (CLUSTER, 2 << 24, 4, 1, "r", "read of 4 bytes outside of shared::cluster memory at -0x1"),
        (CLUSTER, (1 << 24) + 2048, 4, 1, "b", "mbarrier of 4 bytes outside of shared::cluster memory at -0x1"),
        (CLUSTER, (1 << 24) + 1, 2, 1, "a", "misaligned atomic access of 2 bytes of shared::cluster memory at 0x1801"),
        (LOCAL, 61, 4, 1, "r", "read of 4 bytes outside of local memory at 0x3d"),
        (LOCAL, 3, 4, 1, "w", "misaligned write of 4 bytes of local memory at 0x1043"),  # of thread 65
        (CONSTANT, 97, 4, 1, "r", "read of 4 bytes outside of const memory at 0x61"),
        (CONSTANT, 90, 4, 1, "c", "misaligned copy of 4 bytes of const memory at 0x5a"),
        (GENERIC, SHARED_WINDOW + 2048, 4, 1, "r", "read of 4 bytes outside of shared::cluster memory at -0x1"),
        (GENERIC, LOCAL_WINDOW + 64, 4, 1, "a", "atomic access of 4 bytes outside of local memory at 0x40"),
        (
            GLOBAL, GLOBAL_BASE + GUARD_BYTES + 1022, 4, 1, "r",
            "read of 4 bytes outside of all buffers, from 2 bytes before the end of first (1,024 bytes)",
        ),
        (
            GENERIC, GLOBAL_BASE + GUARD_BYTES - 1, 4, 1, "w",
            "write of 4 bytes outside of all buffers, 1 bytes before the start of first (1,024 bytes)",
        ),
        (GLOBAL, GLOBAL_BASE + GUARD_BYTES + 1022, 2, 1, "r", ""),
        (GLOBAL, GLOBAL_BASE + GUARD_BYTES + 2, 4, 1, "r", "misaligned read of 4 bytes of global memory at 0x4002"),
        (SHARED, 2032, 4, 2, "r", ""),
        (CLUSTER, (1 << 24) + 2016, 4, 4, "r", ""),
        (LOCAL, 48, 8, 2, "w", ""),
        (CONSTANT, 99, 1, 1, "r", ""),
        (GLOBAL, GLOBAL_BASE + 2 * GUARD_BYTES + 1024 + 96, 4, 1, "a", ""),
    ],
)  # fmt: skip
def test_what_is_said_of_an_access_that_is_refused(at, space, address, unit, count, how, said):
    """Of one lane: thread 65, the second one of the third CTA."""
    group = at.some(64, 128, lambda n: n == 1)
    where = np.full(64, address, np.uint64 if space in (GLOBAL, GENERIC) else np.uint32)
    if not said:
        store, index = at.memory.locate(group, space, where, unit * count, how)
        size = unit * count
        assert bytes(store.data[index[1] : index[1] + size]) == at.bytes_at(65, space, address, size)
        return
    with pytest.raises(Fault) as caught:
        at.memory.locate(group, space, where, unit * count, how)
    assert (caught.value.text, caught.value.thread, caught.value.pc) == (said, 65, None)


@pytest.mark.parametrize("active", [None, lambda n: n != 1])
@pytest.mark.parametrize(("windows", "kinds"), [
    ([GLOBAL_BASE + GUARD_BYTES, LOCAL_WINDOW], "local"),
    ([GLOBAL_BASE + GUARD_BYTES, SHARED_WINDOW], "shared"),
    ([LOCAL_WINDOW, SHARED_WINDOW], "shared and local"),
])  # fmt: skip
def test_generic_addresses_of_two_kinds(at, windows, kinds, active):
    """One store of all lanes to two kinds of memory, and a load; without lane 1, where that is not active."""
    lanes = np.arange(THREADS)
    where = (np.resize(np.array(windows, np.uint64), THREADS) + (lanes // 2 % 8 * 4).astype(np.uint64)).astype(
        np.uint64
    )
    group = at.some(0, THREADS, active or (lambda n: True)) if active else Group(at.machine, slice(0, THREADS), None, 0)
    values = (lanes // 2 % 8 * 1000 + lanes % 2 + 1).astype(np.uint32)[None]
    at.memory.write(group, GENERIC, where, 4, values)
    found = at.memory.read(group, GENERIC, where, 4)
    assert found.dtype == np.uint32 and found[:, group.active].tolist() == values[:, group.active].tolist()
    for lane in np.flatnonzero(group.active).tolist():
        assert at.bytes_at(lane, GENERIC, int(where[lane]), 4) == values[0, lane].tobytes()


def test_buffers_hold_their_contents_and_zeros_around_them(at):
    assert at.memory.contents(at.first) == PATTERN[:1024] and at.memory.contents(at.second) == bytes(100)
    everything = bytes(at.memory.global_.data)
    assert everything == bytes(GUARD_BYTES) + PATTERN[:1024] + bytes(GUARD_BYTES + 512 + GUARD_BYTES)


@pytest.mark.parametrize(
    ("shape", "stride", "byte", "name"),
    [
        ((4, 64), (64, 1), 4 * (3 * 64 + 6), "x[3, 6] of (4, 64)"),
        ((4, 64), None, 4 * 70, "x[1, 6] of (4, 64)"),
        ((4, 64), (1, 4), 4 * (5 * 4 + 3), "x[3, 5] of (4, 64)"),
        ((4, 64), (64, 1), 4 * 256, "x[4, 0] of (4, 64)"),  # behind the end
        ((4, 2), (8, 2), 4, ""),  # between elements
        (None, None, 4, ""),
    ],
)
def test_elements_are_named_by_row_and_column(shape, stride, byte, name):
    assert element_of(Pointer("x", 0, 16, "float32", shape, stride), 16 + byte) == name
