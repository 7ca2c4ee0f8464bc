"""The machine: groups of threads that part, meet, wait and converge, with steps made by hand."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.emulate.machine import Code, Geometry, Group, Instruction, Machine, lanes_of  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
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


# --- memory --------------------------------------------------------------------------------------
