"""The machine: groups of threads that part, meet, wait and converge, with steps made by hand."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.emulate.machine import Code, Geometry, Group, Instruction, Machine, lanes_of  # noqa: E402
from tritonhook.emulate.memory import GENERIC, GLOBAL, SHARED, SHARED_WINDOW, Memory  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


def machine_of(threads=64, ctas=1, memory=None, **options):
    geometry = Geometry((ctas, 1, 1), (threads, 1, 1), tuple(range(ctas)))
    return Machine(geometry, memory or Memory(1024), **options)


def code_of(*steps, targets=()):
    """Instructions of steps; a pair (step, True) may move threads."""
    made = [one if isinstance(one, tuple) else (one, False) for one in steps]
    instructions = [Instruction(step, f"step {n}", n + 1, ends) for n, (step, ends) in enumerate(made)]
    return Code(instructions, frozenset(targets))


def leave(group: Group) -> None:
    group.exit()


def test_a_branch_parts_threads_and_they_meet_again():
    machine = machine_of()
    register, sizes = machine.registers(1, np.int64)[0], []

    def branch(group):
        if (part := group.part(machine.tid[0][group.s] % 2 == 1)) is not None:
            part.jump(2)

    def add(number):
        return lambda group: group.put(register, register[group.s] + number)

    def together(group):
        sizes.append(int(group.active.sum()))

    machine.run(code_of((branch, True), add(1), add(10), together, (leave, True), targets=[2]))
    assert register.tolist() == [11, 10] * 32
    assert sizes == [64]
    assert not machine.live.any()


def test_padded_lanes_do_nothing():
    machine = machine_of(threads=40)
    register = machine.registers(1, np.int64)[0]
    machine.run(code_of(lambda group: group.put(register, 1), (leave, True)))
    assert register.tolist() == [1] * 40 + [0] * 24


@pytest.mark.parametrize("what", ["lane", "warp"])
def test_each_thread_goes_to_a_place_of_its_own(what):
    machine = machine_of(128)
    register, skipped = machine.registers(1, np.int64)[0], getattr(machine, what).astype(np.int64) % 3

    def scatter(group):
        group.scatter(1 + skipped[group.s])

    def add(group):
        group.put(register, register[group.s] + 1)

    machine.run(code_of((scatter, True), add, add, (leave, True), targets=[1, 2, 3]))
    assert (register == 2 - skipped).all()


def test_lanes_converge_before_the_step_runs():
    machine = machine_of(threads=32)
    seen = []

    def branch(group):
        if (part := group.part(machine.lane[group.s] < 8)) is not None:
            part.jump(2)

    def jump_ahead(group):
        group.jump(3)

    def meet(group):
        group.converge(0xFFFF_FFFF)
        seen.append(int(lanes_of(group.active)[0]))

    # Lanes 8 to 31 arrive at 3 from behind, lanes 0 to 7 from 2; 3 is no target of a branch for those.
    machine.run(code_of((branch, True), (jump_ahead, True), lambda group: None, meet, (leave, True), targets=[2]))
    assert seen == [0xFFFF_FFFF]


def test_lanes_that_have_ended_are_not_waited_for():
    machine = machine_of(threads=32)
    seen = []

    def half_ends(group):
        part = group.part(machine.lane[group.s] >= 16)
        part.exit()

    def meet(group):
        group.converge(0xFFFF_FFFF)
        seen.append(int(group.active.sum()))

    machine.run(code_of((half_ends, True), meet, (leave, True)))
    assert seen == [16]


def test_waiting_threads_go_on_when_what_they_wait_for_is_there():
    machine = machine_of(ctas=2)
    open_for = np.zeros(machine.threads, bool)
    order = []

    def branch(group):
        if (part := group.part(machine.warp[group.s] == 0)) is not None:
            part.jump(2)

    def wait(group):
        group.wait(lambda: open_for)

    def release(group):
        order.append("released")
        open_for[:] = True

    def note(group):
        order.append(int(group.active.sum()))

    machine.run(code_of((branch, True), (wait, True), release, note, (leave, True), targets=[2]))
    assert order[0] == "released" and order[-1] == 64 and sum(o for o in order if o != "released") == 128


def test_threads_that_wait_for_ever_are_a_hang_with_its_line():
    machine = machine_of()
    with pytest.raises(Hang, match="line 1"):
        machine.run(code_of((lambda group: group.wait(lambda: False), True), (leave, True)))


def test_a_loop_without_end_is_a_hang():
    machine = machine_of(most_steps=1000)
    with pytest.raises(Hang, match="1,000 steps"):
        machine.run(code_of((lambda group: group.jump(0), True), targets=[0]))


def test_who_gives_way_lets_others_on():
    machine = machine_of()
    done = []

    def branch(group):
        if (part := group.part(machine.warp[group.s] == 1)) is not None:
            part.jump(3)

    def poll(group):
        group.give_way()

    def again(group):
        if not done:
            group.jump(1)

    machine.run(
        code_of((branch, True), poll, (again, True), lambda group: done.append(1), (leave, True), targets=[1, 3])
    )
    assert done


def test_what_is_not_understood_has_its_line():
    def unknown(group):
        raise NotUnderstood("frob.b32")

    with pytest.raises(NotUnderstood, match=r"line 2: frob\.b32"):
        machine_of().run(code_of(lambda group: None, unknown))


def test_threads_know_their_places():
    """Two clusters of 2 x 1 x 2 CTAs of 6 x 4 x 2 threads, in a grid of 4 x 3 x 2; each padded to two warps."""
    grid, block, cluster, ctas = (4, 3, 2), (6, 4, 2), (2, 1, 2), (6, 7, 18, 19, 0, 1, 12, 13)
    machine = Machine(Geometry(grid, block, ctas, cluster), Memory())
    assert machine.threads == 8 * 64 and machine.registers(3, np.uint16).shape == (3, 512)
    assert machine.registers(1, np.uint16).dtype == np.uint16
    found = {name: row.tolist() for name, row in machine.specials.items()}
    assert {row.dtype for row in machine.specials.values()} == {np.dtype(np.uint32)}
    plain = "%tid", "%ctaid", "%ntid", "%nctaid", "%clusterid", "%nclusterid"
    names = {f"{name}.{axis}" for name in plain for axis in "xyz"}
    names |= {f"%cluster_{name}.{axis}" for name in ("ctaid", "nctaid") for axis in "xyz"}
    names |= {"%nwarpid", "%cluster_nctarank", "%laneid", "%warpid", "%cluster_ctarank"}
    assert set(found) == names | {f"%lanemask_{name}" for name in ("eq", "lt", "le", "gt", "ge")}
    for thread in range(512):
        cta, inside = divmod(thread, 64)
        lane, number = inside % 32, ctas[cta]
        place = number % 4, number // 4 % 3, number // 12
        assert machine.live[thread] == (inside < 48) and machine.cta[thread] == cta
        wanted = {
            "%laneid": lane, "%warpid": inside // 32, "%nwarpid": 2, "%cluster_ctarank": cta % 4,
            "%cluster_nctarank": 4,
            "%lanemask_eq": 1 << lane, "%lanemask_lt": (1 << lane) - 1, "%lanemask_le": (2 << lane) - 1,
            "%lanemask_gt": (1 << 32) - (2 << lane), "%lanemask_ge": (1 << 32) - (1 << lane),
        }  # fmt: skip
        for n, axis in enumerate("xyz"):
            wanted[f"%tid.{axis}"] = (inside % 6, inside // 6 % 4, inside // 24)[n]
            wanted[f"%ctaid.{axis}"], wanted[f"%ntid.{axis}"], wanted[f"%nctaid.{axis}"] = place[n], block[n], grid[n]
            wanted[f"%clusterid.{axis}"], wanted[f"%cluster_ctaid.{axis}"] = divmod(place[n], cluster[n])
            wanted[f"%nclusterid.{axis}"], wanted[f"%cluster_nctaid.{axis}"] = grid[n] // cluster[n], cluster[n]
        assert {name: row[thread] for name, row in found.items()} == wanted
    assert machine.ctas_of(64 * 6 + 3, 0b1011) == [4, 5, 7] and machine.ctas_of(0, 0) == []
    assert machine.ctas_together(64 * 5, 1) == (5,) and machine.ctas_together(64 * 5, 2) == (4, 5)
    assert machine.ctas_together(64 * 2, 2) == (2, 3)
    with pytest.raises(Fault, match="a pair") as caught:
        machine_of(ctas=3).ctas_together(70, 2)
    assert caught.value.thread == 70


def test_a_group_takes_the_warps_that_it_needs():
    machine = machine_of(128)
    active = np.isin(np.arange(96), [33, 64])
    assert machine.shaped(active, 32)[0] == slice(64, 128)
    assert np.flatnonzero(machine.shaped(active, 32)[1]).tolist() == [1, 32]
    assert machine.shaped(np.arange(96) >= 32, 0) == (slice(32, 96), None)
    group = Group(machine, slice(32, 96), np.arange(64) > 3, 5)
    assert group.size == 64 and group.numbers.tolist() == list(range(36, 96)) and group.frozen().pc == 5
    assert group.under(np.arange(64) < 4) is None
    inner = group.under(np.arange(64) < 6)
    assert inner.numbers.tolist() == [36, 37] and inner.pc == 5
    every = Group(machine, slice(32, 96), None, 0)
    assert every.under(np.ones(64, bool)) is every and every.under(np.arange(64) == 2).numbers.tolist() == [34]
    row = np.zeros(128, np.int32)
    inner.put(row, 7)
    every.put(row[::-1], np.arange(64))
    assert row[36] == 127 - 32 - 36 and lanes_of(np.arange(64) % 32 == 5).tolist() == [32, 32]


# --- memory --------------------------------------------------------------------------------------


def in_one_step(machine, act):
    machine.run(code_of(act, (leave, True)))


def addresses_of(machine, allocation, step=4):
    return np.uint64(allocation.address) + np.arange(machine.threads).astype(np.uint64) * np.uint64(step)


def test_global_memory_is_read_and_written_by_address():
    memory = Memory()
    source, target = memory.allocate(bytes(range(256)) * 4), memory.allocate(1024)
    machine = machine_of(memory=memory)

    def copy(group):
        values = memory.read(group, GLOBAL, addresses_of(machine, source, 16), 4, 4)
        memory.write(group.under(machine.tid[0] < 32), GENERIC, addresses_of(machine, target, 16), 4, values)

    in_one_step(machine, copy)
    assert memory.contents(target) == bytes(range(256)) * 2 + bytes(512)


@pytest.mark.parametrize(
    "size, step, text", [(252, 4, "0 bytes beyond the end of x"), (1024, 5, "misaligned"), (128, 4, "128 bytes")]
)
def test_an_access_outside_of_a_buffer_is_a_fault(size, step, text):
    memory = Memory()
    one = memory.allocate(size, "x")
    machine = machine_of(memory=memory)
    with pytest.raises(Fault, match=text) as caught:
        in_one_step(machine, lambda group: memory.read(group, GLOBAL, addresses_of(machine, one, step), 4))
    assert caught.value.line == 1


def test_lanes_that_are_not_active_access_nothing():
    memory = Memory()
    one = memory.allocate(128)
    machine = machine_of(memory=memory)

    def write(group):
        inner = group.under(machine.tid[0] < 32)
        memory.write(inner, GLOBAL, addresses_of(machine, one), 4, np.ones((1, 64), np.uint32))

    in_one_step(machine, write)
    assert memory.contents(one) == b"\1\0\0\0" * 32


def test_shared_memory_is_the_ctas_own_and_generic_addresses_reach_it():
    machine = machine_of(threads=32, ctas=2)
    found = []

    def act(group):
        address = machine.lane[group.s] * np.uint32(4)
        machine.memory.write(group, SHARED, address, 4, (machine.ctaid[0] * 100 + machine.lane)[None])
        generic = np.uint64(SHARED_WINDOW) + (machine.lane[group.s] ^ np.uint32(1)) * np.uint64(4)
        found.append(machine.memory.read(group, GENERIC, generic, 4)[0])

    in_one_step(machine, act)
    assert found[0][:4].tolist() == [1, 0, 3, 2] and found[0][32:36].tolist() == [101, 100, 103, 102]


def test_atomics_on_one_address_come_one_after_the_other():
    orders = []
    for seed in (1, 1, 2):
        memory = Memory()
        one = memory.allocate(4)
        machine = machine_of(memory=memory, seed=seed)

        def act(group, machine=machine, memory=memory, one=one):
            where = np.full(group.size, one.address, np.uint64)
            ones = np.ones(group.size, np.uint32)
            orders.append(memory.atomic(group, GLOBAL, where, 4, np.add, ones).tolist())

        in_one_step(machine, act)
        assert memory.contents(one) == (64).to_bytes(4, "little")
    assert sorted(orders[0]) == list(range(64))
    assert orders[0] == orders[1] != orders[2]
