"""tcgen05: tensor memory, and products whose sums lie there."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.lanes import ALL, first_lanes
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import nothing
from tritonhook.emulate.ptx.asynchronous import alone, space_of
from tritonhook.emulate.ptx.kernel import list_of
from tritonhook.emulate.ptx.site import Site, opcode
from tritonhook.emulate.tensor_core.tcgen05 import FORMATS, multiply_in_tensor_memory
from tritonhook.emulate.tensor_memory import COLUMNS, UNIT, Fragment

opcode("tcgen05.relinquish_alloc_permit", "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")(
    nothing
)


@opcode("tcgen05.alloc")
def allocate(site: Site) -> Step:
    """Once for a warp. What no other CTA can hold here is free at once, or never."""
    space = space_of(site)
    site.known("cta_group::1", "sync", "aligned", "b32")
    address, columns, machine = site.address(0, space), site.row(1, "u32"), site.machine

    def step(g: Group) -> None:
        g.converge(ALL)
        for lane in np.flatnonzero(first_lanes(g)):
            thread = g.s.start + int(lane)
            count = int(columns[thread])
            if not UNIT <= count <= COLUMNS or count & count - 1:
                raise site.refuse(f"{count} columns")
            begin = machine.tensor_memory.allocate(int(machine.cta[thread]), count)
            if begin is None:
                raise site.refuse("an allocation that has to wait")
            machine.memory.write(alone(g, int(lane)), space, address(g), 4, [np.uint32(begin)])

    return step


@opcode("tcgen05.dealloc")
def free(site: Site) -> Step:
    site.known("cta_group::1", "sync", "aligned", "b32")
    begin, columns, machine = site.row(0, "u32"), site.row(1, "u32"), site.machine

    def step(g: Group) -> None:
        g.converge(ALL)
        for lane in np.flatnonzero(first_lanes(g)):
            thread = g.s.start + int(lane)
            machine.tensor_memory.free(thread, int(begin[thread]), int(columns[thread]))

    return step


def _fragment(site: Site, registers: int, apart: int) -> Fragment:
    """What each thread has. registers, apart: the operands that say how many, and how far apart halves lie."""
    shape, count, *_ = site.modifiers[2:]
    site.known("sync", "aligned", "b32", shape, count)
    number = len(list_of(site.operands[registers]))
    if shape not in ("32x32b", "16x32bx2") or count != f"x{number}":
        raise site.refuse(f".{shape}.{count} of {number} registers")
    site.count(2 if shape == "32x32b" else 3)
    return Fragment.of_lanes(number) if shape == "32x32b" else Fragment.of_halves(number, site.integer(apart))


@opcode("tcgen05.ld")
def load(site: Site) -> Step:
    fragment, memory = _fragment(site, 0, 2), site.machine.tensor_memory
    targets, address = site.targets(0, "b32"), site.address(1)

    def step(g: Group) -> None:
        g.converge(ALL)
        memory.start(g, targets, memory.load(g, address(g), fragment))

    return step


@opcode("tcgen05.st")
def store(site: Site) -> Step:
    fragment, memory = _fragment(site, -1, 1), site.machine.tensor_memory
    address, sources = site.address(0), site.rows(-1, "b32")

    def step(g: Group) -> None:
        g.converge(ALL)
        memory.store(g, address(g), fragment, np.stack([row[g.s] for row in sources]))

    return step


@opcode("tcgen05.wait::ld", "tcgen05.wait::st")
def wait(site: Site) -> Step:
    """What was loaded arrives. What was stored is there at once; but who watches wants to know."""
    site.known("sync", "aligned")
    machine = site.machine
    if site.name.endswith("ld"):
        return machine.tensor_memory.wait
    return lambda g: None if machine.memory.watch is None else machine.memory.watch.tensor_stored(g)


@opcode("tcgen05.mma")
def multiply(site: Site) -> Step:
    how = site.known("cta_group::1", *(f"kind::{kind}" for kind in FORMATS))
    site.count(5)
    formats, machine = FORMATS[max(how).removeprefix("kind::")], site.machine
    a_is_near = site.operands[1].startswith("[")
    d, bits, b, adds = site.address(0), site.row(3, "b32"), site.row(2, "b64"), site.predicate(4)
    row = None if a_is_near else site.row(1, "b64")
    near = site.address(1) if a_is_near else None

    def step(g: Group) -> None:
        a = near(g) if near is not None else row[g.s]  # type: ignore[index]
        words = d(g), a, b[g.s], bits[g.s]
        multiply_in_tensor_memory(machine, g, g.active, words, adds(g), formats, a_is_near)

    return step


@opcode("tcgen05.commit")
def commit(site: Site) -> Step:
    """Arrive when the products are done: they are. Triton gives an address of shared memory where PTX asks for a
    generic one: the lower half is the same."""
    site.known("cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64")
    site.count(1)
    address, barriers = site.address(0), site.machine.shared_barriers

    return lambda g: barriers.commit(g, address(g), g.active)
