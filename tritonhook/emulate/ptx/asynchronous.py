"""Steps of mbarrier, of bulk copies, TMA and TMA descriptors, and of setmaxnreg."""

from __future__ import annotations

import re

import numpy as np

from tritonhook.capture.launches.tensor_bits import BYTES
from tritonhook.emulate import bulk, tma
from tritonhook.emulate.atomics import OPERATIONS, combination
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.memory import CLUSTER, GENERIC, GLOBAL, RANK_SHIFT, SHARED, UNSIGNED
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.ptx.kernel import SIZES, list_of
from tritonhook.emulate.ptx.memory import SPACES, VECTORS, drop_hints, take_space
from tritonhook.emulate.ptx.site import Array, Reader, Site, opcode

_SCOPES = ("release", "acquire", "relaxed", "cta", "cluster", "b64")
_SHARED = ("shared", "shared::cta", "shared::cluster")


@opcode("mbarrier.init", "mbarrier.expect_tx", "mbarrier.complete_tx")
def change(site: Site) -> Step:
    space = take_space(site)
    site.known(*(["b64"] if site.name == "mbarrier.init" else ["relaxed", "cta", "cluster", "b64"]))
    address, numbers, barriers = site.address(0), site.row(1, "u32"), site.machine.shared_barriers
    functions = {"init": barriers.init, "expect_tx": barriers.expect, "complete_tx": barriers.completed}
    function = functions[site.name.rpartition(".")[2]]
    return lambda g: function(g, space, address(g), numbers[g.s])


@opcode("mbarrier.inval")
def invalidate(site: Site) -> Step:
    space = take_space(site)
    site.known("b64")
    address, barriers = site.address(0), site.machine.shared_barriers
    return lambda g: barriers.invalidate(g, space, address(g))


@opcode("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(site: Site) -> Step:
    space = take_space(site)
    how = site.known(*_SCOPES, "expect_tx", "noComplete")
    has_state = not site.operands[0].startswith("[")
    first = int(has_state)
    target = site.target(0, "b64") if has_state else None
    address, barriers = site.address(first), site.machine.shared_barriers
    given = site.row(first + 1, "u32") if len(site.operands) > first + 1 else None
    expects, drops = "expect_tx" in how, site.name.endswith("drop")
    if expects and given is None:
        raise site.refuse("operands")

    def step(g: Group) -> None:
        number = None if given is None else given[g.s]
        counts = 1 if expects or number is None else number
        states = barriers.arrive(g, space, address(g), counts, number if expects else None, drops)
        if target is not None:
            g.put(target, states)

    return step


@opcode("mbarrier.test_wait", "mbarrier.try_wait")
def wait(site: Site) -> Step:
    """Make the step of a wait: try_wait waits for the phase, test_wait tests once and lets other threads run."""
    space = take_space(site)
    by_parity = "parity" in site.known(*_SCOPES, "parity")
    target, address = site.target(0, "pred"), site.address(1)
    state = site.row(2, "u32" if by_parity else "b64")
    barriers, waits = site.machine.shared_barriers, site.name.endswith("try_wait")

    def step(g: Group) -> None:
        test = barriers.try_wait if waits else barriers.is_complete
        found = test(g, space, address(g), state[g.s], by_parity)
        g.put(target, found)
        if not found[g.active].all():
            g.give_way()

    return step


@opcode("cp.async.mbarrier.arrive")
def arrive_after_copies(site: Site) -> Step:
    """Make the step that completes the thread's copies (cp.async) and then arrives. Without noinc, the step need not
    count the arrival, because PTX first adds one to the missing arrivals."""
    space = take_space(site)
    noinc = "noinc" in site.known("noinc", "b64")
    address, barriers, copies = site.address(0), site.machine.shared_barriers, site.machine.copies

    def step(g: Group) -> None:
        copies.wait(g, None)
        if noinc:
            barriers.arrive(g, space, address(g))

    return step


@opcode("cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "wgmma.commit_group", "wgmma.wait_group")
def groups(site: Site) -> Step:
    """Make a step that only informs the sanitizer that a group ends, or that threads wait for groups. Copies and
    products complete at once."""
    is_read = "read" in site.known("read", "sync", "aligned")
    kind, commits = site.name.split(".")[0].replace("cp", "bulk"), site.name.endswith("commit_group")
    memory, pending = site.machine.memory, 0 if commits else site.integer(0)

    def step(g: Group) -> None:
        if memory.watch is not None and commits:
            memory.watch.flights.commit(g, kind)
        elif memory.watch is not None:
            memory.watch.flights.wait(g, kind, pending)
            if kind == "bulk" and not is_read:
                memory.watch.world.landed(memory.watch, g, pending)

    return step


@opcode("setmaxnreg", "cp.async.bulk.prefetch")
def nothing(site: Site) -> Step:
    """Make a step without effect."""
    site.known("inc", "dec", "sync", "aligned", "u32", "L2", "global", "tensor", "tile", *_DIMENSIONS)
    return lambda g: None


# --- bulk copies ---------------------------------------------------------------------------------

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_COMPLETION = "mbarrier::complete_tx::bytes"
_COORDINATES = re.compile(r"\[\s*([^,\s]+)\s*,\s*(\{.*\})\s*\]", re.DOTALL)


def _receivers(site: Site, thread: int, target: int, mask: int | None, is_cluster: bool) -> list[int]:
    """Return the indices, in the machine, of the CTAs to whose shared memory a copy writes. target: shared address.
    mask: bit mask of ranks, for multicast. is_cluster: the address has the rank of its CTA."""
    if mask is None and not is_cluster:
        return [int(site.machine.cta[thread])]
    return site.machine.ctas_of(thread, 1 << (target >> RANK_SHIFT) if mask is None else mask)


@opcode("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def copy_by_descriptor(site: Site) -> Step:
    drop_hints(site)
    how, reduces = site.modifiers, site.name.startswith("cp.reduce")
    operations = OPERATIONS if reduces else (_COMPLETION, "multicast::cluster")
    site.known(*_DIMENSIONS, *_SHARED, "global", "tile", "bulk_group", *operations)
    operation = only(site, (one for one in how if one in OPERATIONS)) if reduces else ""
    spaces = [one for one in how if one in (*_SHARED, "global")]
    if spaces[-1] == "global":
        return _load_by_descriptor(site, spaces[0], "multicast::cluster" in how)
    (descriptor, places), source, memory = _box(site, 0), site.address(1), site.machine.memory

    def step(g: Group) -> None:
        where, at = descriptor(g), source(g)
        for lane in np.flatnonzero(g.active):
            thread = g.s.start + int(lane)
            begin = [int(row[thread]) for row in places]
            tensor = tma.map_at(memory, int(where[lane]))
            tma.store_tile(memory, tensor, begin, int(site.machine.cta[thread]), int(at[lane]), thread, operation)

    return step


def _box(site: Site, operand: int) -> tuple[Reader, list[Array]]:
    """Return the reader of the descriptor's address, and the registers of the coordinates, of an operand such as
    `[%rd1, {%r2, %r3}]`."""
    text = _COORDINATES.match(site.operands[operand])
    if text is None:
        raise site.refuse("operands")
    return site.address(f"[{text[1]}]"), [site.row(one, "s32") for one in list_of(text[2])]


def _load_by_descriptor(site: Site, space: str, multicast: bool) -> Step:
    (descriptor, places), target, barrier = _box(site, 1), site.address(0), site.address(2)
    masks = site.row(3, "b16") if multicast else None
    memory = site.machine.memory
    is_cluster = space == "shared::cluster" and site.decoder.kernel.major >= 9

    def step(g: Group) -> None:
        where, at = descriptor(g), target(g)
        for lane in np.flatnonzero(g.active):
            thread = g.s.start + int(lane)
            tensor, begin = tma.map_at(memory, int(where[lane])), [int(row[thread]) for row in places]
            mask = None if masks is None else int(masks[thread])
            for cta in _receivers(site, thread, int(at[lane]), mask, is_cluster):
                place = (int(barrier(g)[lane]) & (1 << RANK_SHIFT) - 1) + cta * memory.shared_bytes
                size = tma.load_tile(memory, tensor, begin, cta, int(at[lane]), thread, place)
                site.machine.shared_barriers.complete(place, size)

    return step


@opcode("cp.async.bulk", "cp.reduce.async.bulk")
def copy_in_bulk(site: Site) -> Step:
    """Make the step of a bulk copy of adjacent bytes, or of a bulk reduction."""
    drop_hints(site)
    how, combine = [*site.modifiers], None
    if site.name.startswith("cp.reduce"):
        *how, operation, kind = (one for one in how if one != "noftz")
        if "noftz" in site.modifiers and "16" not in kind:
            raise site.refuse(".noftz")
        if operation not in OPERATIONS or operation in ("cas", "exch") or kind not in SIZES or how[1][:6] != "shared":
            raise site.refuse()
        combine, site.modifiers = (combination(operation, kind, False), SIZES[kind]), tuple(how)
    site.known(*_SHARED, "global", _COMPLETION, "bulk_group", "multicast::cluster")
    spaces = [one for one in how if one in (*_SHARED, "global")]
    if len(spaces) != 2 or "multicast::cluster" in how:
        raise site.refuse()
    to, of = (SPACES[one] for one in spaces)
    target, source, sizes = site.address(0), site.address(1), site.row(2, "u32")
    barrier = site.address(3) if _COMPLETION in how else None

    def step(g: Group) -> None:
        for lane in np.flatnonzero(g.active):
            size = int(sizes[g.s][lane])
            if size % bulk.PIECE:
                raise site.refuse(f"{size} bytes")
            gate = None if barrier is None else barrier(g)
            bulk.copy(g, int(lane), (to, target(g)), (of, source(g)), size, gate, combine)

    return step


@opcode("st.async", "red.async")
def store_elsewhere(site: Site) -> Step:
    """Make the step of a store (st.async) or reduction (red.async) in another CTA, which also counts its bytes at an
    mbarrier."""
    space, reduces = take_space(site), site.name == "red.async"
    more = ("relaxed", "cluster", *OPERATIONS) if reduces else ("weak", *VECTORS)
    kind, how = site.typed("b32 b64 u32 u64 s32 s64 f32 f64", _COMPLETION, *more)
    named = how & {*OPERATIONS}
    if space != CLUSTER or _COMPLETION not in how or len(named) != reduces or (reduces and kind[0] == "f"):
        raise site.refuse()
    combine = [combination(one, kind, False) for one in named]
    address, rows, barrier, unit = site.address(0), site.rows(1, kind), site.address(2), SIZES[kind]
    if len(rows) != next((number for name, number in VECTORS.items() if name in how), 1):
        raise site.refuse("operands")
    memory, barriers, unsigned = site.machine.memory, site.machine.shared_barriers, UNSIGNED[unit]

    def step(g: Group) -> None:
        values = [row[g.s].view(unsigned) for row in rows]
        if combine:
            memory.atomic(g, space, address(g), unit, combine[0], *values)
        else:
            bulk.store_elsewhere(g, address(g), barrier(g), unit, values)
        barriers.completed(g, space, barrier(g), np.full(g.size, unit * len(rows)))

    return step


@opcode("mbarrier.pending_count")
def pending(site: Site) -> Step:
    """Make the step that reads the number of missing arrivals from a phase's state."""
    site.known("b64")
    return site.compute(lambda state: (state >> np.uint64(32)).astype(np.uint32), "u32", "b64")


# Fields of a TMA descriptor, by name: type; list of (first bit in the descriptor, number of bits, right shift of the
# value, distance in bits between two ordinals); number that is first subtracted from the value.
_FIELDS = {
    "global_address": ("b64", ((0, 32, 0, 0), (32, 32, 32, 0)), 0),
    "rank": ("b32", ((68, 3, 0, 0),), 0),
    "elemtype": ("b32", ((71, 4, 0, 0),), 0),
    "interleave_layout": ("b32", ((75, 2, 0, 0),), 0),
    # The second entry clears bit 86, which selects swizzles of larger atoms.
    "swizzle_mode": ("b32", ((77, 2, 0, 0), (86, 1, 63, 0)), 0),
    "fill_mode": ("b32", ((79, 1, 0, 0),), 0),
    "global_stride": ("b64", ((96, 32, 4, 32), (224, 4, 36, 4)), 0),
    "global_dim": ("b32", ((256, 32, 0, 32),), 1),
    "element_stride": ("b32", ((416, 3, 0, 3),), 1),
    "box_dim": ("b32", ((440, 8, 0, 8),), 1),
}


@opcode("tensormap.replace")
def replace(site: Site) -> Step:
    """Make the step that writes one field of a TMA descriptor. Layout: see capture/launches/tensor_bits.py."""
    space, how = take_space(site), site.known("tile", "b1024", "b32", "b64", *_FIELDS)
    fields = [one for one in _FIELDS if one in how]
    kind, parts, less = _FIELDS["".join(fields[:1]) or "rank"]
    if len(fields) != 1 or how != {"tile", "b1024", kind, *fields}:
        raise site.refuse()
    site.count(3 if parts[-1][3] else 2)
    ordinal = site.integer(1) if parts[-1][3] else 0
    address, values, memory = site.address(0), site.row(len(site.operands) - 1, kind), site.machine.memory
    if fields == ["elemtype"]:
        if (element := site.integer(1)) > 12:
            raise site.refuse(f"type {element}")
        if element > 10:  # TF32 is float32 with a flag
            values, parts = values - np.uint32(4), (*parts, (80, 1, 0, 0)) if element == 11 else (*parts, (80, 1, 3, 0))

    def step(g: Group) -> None:
        begin, value = address(g), values[g.s].astype(np.uint64) - np.uint64(less)
        for bit, bits, shift, apart in parts:
            word, at = divmod(bit + ordinal * apart, 32)
            mask, where = np.uint32((1 << bits) - 1 << at), begin + begin.dtype.type(4 * word)
            new = (value >> np.uint64(shift)).astype(np.uint32) << np.uint32(at) & mask
            memory.write(g, space, where, 4, memory.read(g, space, where, 4) & ~mask | new)

    return step


@opcode("tensormap.cp_fenceproxy")
def publish(site: Site) -> Step:
    """Make the step that copies a TMA descriptor from shared to global memory: each lane copies four bytes, as in the
    code that ptxas writes."""
    site.known("global", *_SHARED, "tensormap::generic", "release", "cta", "cluster", "gpu", "sys", "sync", "aligned")
    site.count(3)
    if site.integer(2) != BYTES:
        raise site.refuse()
    target, source, memory = site.address(0), site.address(1), site.machine.memory

    def step(g: Group) -> None:
        g.converge(0xFFFF_FFFF)
        if memory.watch is not None:
            memory.watch.together(g)
        begin, at = source(g), 4 * site.machine.lane[g.s]
        words = memory.read(g, SHARED, begin + at.astype(begin.dtype), 4)[0]
        memory.atomic(g, GLOBAL, target(g) + at, 4, combination("exch", "b32", ftz=False), words)

    return step


@opcode("st.bulk")
def clear(site: Site) -> Step:
    space = take_space(site)
    site.known("weak")
    if space not in (SHARED, GENERIC) or site.integer(2):
        raise site.refuse()
    site.count(3)
    address, sizes = site.address(0), site.row(1, "u64")
    return lambda g: bulk.clear(g, space, address, lambda one: sizes[one.s] // 8)
