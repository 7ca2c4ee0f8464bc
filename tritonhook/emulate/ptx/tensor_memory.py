"""Steps of tcgen05: tensor memory, and matrix products that are accumulated there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tritonhook.emulate.bulk import alone
from tritonhook.emulate.lanes import ALL, first_lanes
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import nothing
from tritonhook.emulate.ptx.kernel import list_of
from tritonhook.emulate.ptx.memory import take_space
from tritonhook.emulate.ptx.site import Site, opcode
from tritonhook.emulate.tensor_core import tcgen05
from tritonhook.emulate.tensor_memory import COLUMNS, UNIT, Fragment

opcode("tcgen05.relinquish_alloc_permit", "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")(
    nothing
)


_GROUPS = {"cta_group::1": 1, "cta_group::2": 2}  # number of CTAs that execute the instruction together


def _together(site: Site) -> int:
    found = [_GROUPS[one] for one in site.modifiers if one in _GROUPS]
    if len(found) != 1:
        raise site.refuse()
    return found[0]


@opcode("tcgen05.alloc")
def allocate(site: Site) -> Step:
    """Make the step of an allocation, once per warp. In a pair of CTAs, each CTA allocates its own columns. If too few
    columns are free, a GPU waits; the emulator raises NotUnderstood."""
    space = take_space(site)
    site.known(*_GROUPS, "sync", "aligned", "b32")
    address, columns, machine = site.address(0), site.row(1, "u32"), site.machine

    def step(g: Group) -> None:
        g.converge(ALL)
        for lane in np.flatnonzero(first_lanes(g)):
            thread = g.s.start + int(lane)
            count = int(columns[thread])
            if not UNIT <= count <= COLUMNS or count & count - 1:
                raise site.refuse(f"{count} columns")
            begin = machine.tensor_memory.allocate([int(machine.cta[thread])], count)
            if begin is None:
                raise site.refuse(f"fewer than {count} columns are free; a GPU would wait")
            machine.memory.write(alone(g, int(lane)), space, address(g), 4, [np.uint32(begin)])

    return step


@opcode("tcgen05.dealloc")
def free(site: Site) -> Step:
    site.known(*_GROUPS, "sync", "aligned", "b32")
    begin, columns, machine = site.row(0, "u32"), site.row(1, "u32"), site.machine

    def step(g: Group) -> None:
        g.converge(ALL)
        for lane in np.flatnonzero(first_lanes(g)):
            thread = g.s.start + int(lane)
            machine.tensor_memory.free(thread, int(begin[thread]), int(columns[thread]))

    return step


def _fragment(site: Site, registers: int, apart: int, packing: str) -> Fragment:
    """Return the cells that each thread accesses. registers: number of the operand with the registers. apart: number of
    the operand with the distance of the halves of 16x32bx2. packing: the modifier for two columns in a register."""
    shape, count, *_ = site.modifiers[2:]
    packed = packing in site.known("sync", "aligned", "b32", shape, count, packing)
    number = len(list_of(site.operands[registers]))
    if shape not in ("32x32b", "16x32bx2") or count != f"x{number}":
        raise site.refuse(f".{shape}.{count} of {number} registers")
    site.count(2 if shape == "32x32b" else 3)
    found = Fragment.of_lanes(number) if shape == "32x32b" else Fragment.of_halves(number, site.integer(apart))
    return replace(found, packed=packed)


@opcode("tcgen05.ld")
def load(site: Site) -> Step:
    fragment, memory = _fragment(site, 0, 2, "pack::16b"), site.machine.tensor_memory
    targets, address = site.targets(0, "b32"), site.address(1)

    def step(g: Group) -> None:
        g.converge(ALL)
        for row, value in zip(targets, memory.load(g, address(g), fragment), strict=True):
            g.put(row, value)

    return step


@opcode("tcgen05.st")
def store(site: Site) -> Step:
    fragment, memory = _fragment(site, -1, 1, "unpack::16b"), site.machine.tensor_memory
    address, sources = site.address(0), site.rows(-1, "b32")

    def step(g: Group) -> None:
        g.converge(ALL)
        memory.store(g, address(g), fragment, np.stack([row[g.s] for row in sources]))

    return step


@opcode("tcgen05.wait::ld", "tcgen05.wait::st")
def wait(site: Site) -> Step:
    """Make a step that only informs the sanitizer: loads and stores complete at once. Loaded registers are valid even
    without this wait, because ptxas waits before they are read. PTX requires the wait before tensor memory is accessed
    again."""
    site.known("sync", "aligned")
    machine, writes = site.machine, site.name.endswith("st")

    def step(g: Group) -> None:
        if machine.memory.watch is not None:
            machine.memory.watch.tensor.done(g, writes)

    return step


@opcode("tcgen05.mma")
def multiply(site: Site) -> Step:
    """Make the step of a product. A product with scale factors of blocks has two more operands: the addresses of the
    factors."""
    vectors = {f"scale_vec::{number}X": number for number in (1, 2, 4)}
    how = site.known(*_GROUPS, *(f"kind::{kind}" for kind in tcgen05.FORMATS), *vectors, "block_scale")
    name = next((one.removeprefix("kind::") for one in how if one.startswith("kind::")), "")
    counts, given = tcgen05.FACTORS.get(name, ()), [vectors[one] for one in how if one in vectors]
    factors = next(iter(given or counts), 0)
    if name not in tcgen05.FORMATS or ("block_scale" in how) != bool(counts) or (factors and factors not in counts):
        raise site.refuse()
    site.count(7 if factors else 5)
    a_is_near = site.operands[1].startswith("[")
    kind, machine = tcgen05.Kind(tcgen05.FORMATS[name], factors, _together(site), a_is_near), site.machine
    d, bits, b, adds = site.address(0), site.row(3, "b32"), site.row(2, "b64"), site.predicate(-1)
    row = None if a_is_near else site.row(1, "b64")
    near = site.address(1) if a_is_near else None
    scales = [site.address(number) for number in (4, 5)] if factors else []

    def step(g: Group) -> None:
        a = near(g) if near is not None else row[g.s]  # type: ignore[index]
        words = d(g), a, b[g.s], bits[g.s], *(scale(g) for scale in scales)
        tcgen05.multiply_in_tensor_memory(machine, g, g.active, words, adds(g), kind)

    return step


@opcode("tcgen05.cp")
def copy(site: Site) -> Step:
    shape = next((one for one in site.modifiers if one in tcgen05.COPIES), "")
    if not shape or ("warpx4" in site.known(*_GROUPS, shape, "warpx4")) != (shape == "32x128b"):
        raise site.refuse()
    site.count(2)
    ctas, machine, target, source = _together(site), site.machine, site.address(0), site.row(1, "b64")
    return lambda g: tcgen05.copy_to_tensor_memory(machine, g, g.active, target(g), source[g.s], shape, ctas)


@opcode("tcgen05.commit")
def commit(site: Site) -> Step:
    """Make the step that arrives at an mbarrier at once, because products complete at once. PTX requires a generic
    address; Triton passes a shared one, which has the same lower 32 bits."""
    how = site.known(*_GROUPS, "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64")
    site.count(2 if "multicast::cluster" in how else 1)
    address, barriers = site.address(0), site.machine.shared_barriers
    masks = site.row(1, "b16") if "multicast::cluster" in how else None

    return lambda g: barriers.commit(g, address(g), g.active, None if masks is None else masks[g.s])
