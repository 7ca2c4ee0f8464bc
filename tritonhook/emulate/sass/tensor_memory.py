"""Decode instructions for tensor memory of sm_100: LDTM, STTM, UTCHMMA, UTCQMMA, UTCOMMA, UTCCP, UTCBAR, UTCATOMSWS.

The meaning of operands was derived from pairs of PTX and machine code (ptxas 12.8 to 13.5). All except LDTM and STTM
have uniform registers and are executed once per warp.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tritonhook.emulate.lanes import ALL, first_lanes
from tritonhook.emulate.machine import WARP, Group, Machine, Step
from tritonhook.emulate.opcodes import nothing
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode
from tritonhook.emulate.tensor_core.tcgen05 import FORMATS, Kind, copy_to_tensor_memory, multiply_in_tensor_memory
from tritonhook.emulate.tensor_memory import UNIT, Fragment

_LOWER, _UPPER = "16dp32bit_t0_t15", "16dp32bit_t16_t31"  # the two halves of PTX's shape 16x32bx2
_PAIR_BARRIER, _PAIR_PHASE = 0x58, 0x60  # byte offsets in reserved shared memory, see `_reserve`
_PACKING = {"LDTM": "PACK16BIT", "STTM": "EXPAND16BIT"}
_COUNTS = {f"x{1 << number}": 1 << number for number in range(8)}


def _bracketed(site: Site, *kinds: str) -> tuple[str, Reader, str]:
    """Take an operand such as `tmem[UR4+0x20]`: return its kind ("tmem"), a reader of the address, and the register."""
    match = re.fullmatch(r"(\w*)\[(UR(?:\d+|Z))(?:\+(0x[0-9a-f]+))?\]", text := site.text())
    if match is None or match[1] not in kinds:
        raise site.refuse(f"operand {text}")
    row, offset = site.register(match[2]), np.uint32(int(match[3] or "0", 16))
    return match[1], lambda g: row[g.s] + offset, match[2]


@opcode("LDTM", "STTM")
def move(site: Site) -> Step:
    """Decode LDTM and STTM, which move data between registers and the warp's lanes of tensor memory. For shapes of 16
    lanes, one half of the warp does it."""
    how = site.known(*_COUNTS, _LOWER, _UPPER, packing := _PACKING[site.base])
    count = next((_COUNTS[one] for one in how if one in _COUNTS), 1)
    halves = {_LOWER: slice(0, 16), _UPPER: slice(16, WARP)}
    half = next((halves[one] for one in how if one in halves), None)
    fragment = Fragment.of_lanes(count) if half is None else Fragment.of_halves(count)
    fragment = replace(fragment, packed=packing in how)
    loads, memory = site.base == "LDTM", site.machine.tensor_memory
    puts = site.targets(count) if loads else []
    _, address, _ = _bracketed(site, "tmem")
    rows = [] if loads else site.rows(count)
    site.done()
    if loads:
        lanes = site.machine.lane

        def load(g: Group) -> None:
            g.converge(ALL)
            values = memory.load(g, address(g), fragment)
            inner = g if half is None else g.under((lanes[g.s] >= half.start) & (lanes[g.s] < half.stop))
            assert inner is not None
            for put, value in zip(puts, values, strict=True):
                put(inner, value)

        return load

    def store(g: Group) -> None:
        g.converge(ALL)
        memory.store(g, address(g), fragment, np.stack([row[g.s] for row in rows]), half or slice(None))

    return store


_FORMATS = {  # number formats without and with scale factors of blocks
    "UTCHMMA": ({**FORMATS["f16"], **FORMATS["tf32"]}, {}),
    "UTCQMMA": (FORMATS["f8f6f4"], FORMATS["mxf8f6f4"]),
    "UTCOMMA": ({}, FORMATS["mxf4"]),
}


@opcode(*_FORMATS)
def multiply(site: Site) -> Step:
    """Decode a product of tensor cores.

    Operands in order: A, B and D; the metadata of a sparse A (0: A is dense); the instruction descriptor; either the
    scale factors of A and B, or four registers with a bit for each lane of D to leave out; whether to add to D. A
    sparse A and lanes to leave out are not understood.
    """
    how = site.known("2CTA", *(("4X",) if site.base == "UTCOMMA" else ()))
    near, a_at, name = _bracketed(site, "gdesc", "tmem")
    a = a_at if near == "tmem" else site.pair(name)
    b = site.pair(_bracketed(site, "gdesc")[2])
    (_, d, _), (_, sparse, _), (_, bits, _) = (_bracketed(site, one) for one in ("tmem", "tmem", "idesc"))
    is_scaled = site.next_is(r"tmem\[.*")
    scales = _bracketed(site, "tmem")[2] if is_scaled else ""
    mask = site.text() if site.next_is(r"UR(\d+|Z)") else "URZ"
    without = [site.register(mask, number) for number in range(4)]
    factors = [site.register(scales, number) for number in range(2)] if is_scaled else []
    adds, machine = site.predicate(), site.machine
    site.done()
    number = (4 if "4X" in how else 2 if site.base == "UTCOMMA" else 1) if is_scaled else 0
    kind = Kind(_FORMATS[site.base][is_scaled], number, 1 + ("2CTA" in how), near == "tmem")

    def step(g: Group) -> None:
        words, lanes = (d(g), a(g), b(g), bits(g), *(row[g.s] for row in factors)), first_lanes(g)
        refused = np.bitwise_or.reduce([sparse(g), *(row[g.s] for row in without)])
        if (refused[lanes] != 0).any():
            raise site.refuse("a sparse A, or lanes to leave out")
        multiply_in_tensor_memory(machine, g, lanes, words, adds(g), kind)

    return step


_COPIES = {"4x32dp128bit": "32x128b", "128dp128bit": "128x128b", "": "128x256b"}


@opcode("UTCCP")
def copy(site: Site) -> Step:
    """Decode a copy from shared memory to tensor memory."""
    how = site.known("T", "S", "2CTA", *filter(None, _COPIES))
    shape = next((_COPIES[one] for one in how if one in _COPIES), _COPIES[""])
    (_, target, _), (_, _, name) = _bracketed(site, "tmem"), _bracketed(site, "gdesc")
    source, machine, ctas = site.pair(name), site.machine, 1 + ("2CTA" in how)
    site.done()
    return lambda g: copy_to_tensor_memory(machine, g, first_lanes(g), target(g), source(g), shape, ctas)


@opcode("UTCBAR")
def commit(site: Site) -> Step:
    """Decode UTCBAR: arrive at an mbarrier once the warp's products are done; here they already are. MULTICAST: arrive
    in all CTAs of a mask."""
    how = site.known("2CTA", "MULTICAST")
    _, address, _ = _bracketed(site, "")
    if site.text() != "URZ":
        raise site.refuse()
    masks, barriers = site.register(site.text()) if "MULTICAST" in how else None, site.machine.shared_barriers
    site.done()
    return lambda g: barriers.commit(g, address(g), first_lanes(g), None if masks is None else masks[g.s])


@opcode("UTCATOMSWS")
def allocation(site: Site) -> Step:
    """Decode UTCATOMSWS, which allocates columns of tensor memory in units.

    FIND_AND_SET: allocate as many units as the operand says, and return the number of the first. AND: free the units
    whose bits are 0 in the lower half of the operand; bits of the upper half mark the first units of allocations.
    """
    how, memory, machine = site.known("2CTA", "FIND_AND_SET", "ALIGN", "AND"), site.machine.tensor_memory, site.machine
    ctas, how = 1 + ("2CTA" in how), how - {"2CTA"}
    if how not in ({"FIND_AND_SET", "ALIGN"}, {"AND"}):
        raise site.refuse()
    if ctas == 2:
        _reserve(machine)
    flag = None if how == {"AND"} else site.target_flag()
    put, read = site.take("Ri.")

    def step(g: Group) -> None:
        words = read(g)
        found, good = np.zeros(g.size, np.uint32), np.zeros(g.size, bool)
        for lane in np.flatnonzero(first_lanes(g)):
            cta, word, warp = int(machine.cta[g.s.start + lane]), int(words[lane]), slice(lane // WARP * WARP, None)
            if flag is None:
                memory.allocated[cta] &= _columns_of(word)
                continue
            begin = memory.allocate(machine.ctas_together(g.s.start + lane, ctas), word * UNIT)
            found[warp], good[warp] = (begin or 0) // UNIT, begin is not None
        put(g, found)
        if flag is not None:
            flag(g, good)

    return step


def _reserve(machine: Machine) -> None:
    """Set the initial contents of reserved shared memory for allocations by a pair of CTAs: an mbarrier of one arrival,
    and the phase of this mbarrier for which each CTA waits. The first CTA continues at once, the second one waits."""
    size = machine.memory.shared_bytes
    for cta in range(len(machine.geometry.ctas)):
        machine.shared_barriers.make(_PAIR_BARRIER + cta * size, 1)
        machine.memory.shared.data[_PAIR_PHASE + cta * size] = 1 - cta % 2


def _columns_of(bits: int) -> Array:
    """Return a mask of the columns whose units have a 1 in the lower 16 bits."""
    return np.repeat(bits >> np.arange(16) & 1, UNIT).astype(bool)


@opcode("UVIRTCOUNT")
def relinquish(site: Site) -> Step:
    """Decode UVIRTCOUNT (PTX: tcgen05.relinquish_alloc_permit), which has no effect here."""
    if site.known("DEALLOC", "SMPOOL") != {"DEALLOC", "SMPOOL"}:
        raise site.refuse()
    return nothing(site)
