"""Tensor memory of sm_100: LDTM, STTM, UTCHMMA, UTCQMMA, UTCBAR, and UTCATOMSWS, which allocates it.

What operands mean was read from pairs of PTX and machine code (ptxas 12.8 to 13.5). All but LDTM and STTM are executed
once for a warp: their registers are uniform.
"""

from __future__ import annotations

import re

import numpy as np

from tritonhook.emulate.lanes import ALL, first_lanes
from tritonhook.emulate.machine import WARP, Group, Step
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode
from tritonhook.emulate.tensor_core.tcgen05 import FORMATS, multiply_in_tensor_memory
from tritonhook.emulate.tensor_memory import UNIT, Fragment

_LOWER, _UPPER = "16dp32bit_t0_t15", "16dp32bit_t16_t31"  # one half of a 16x32bx2
_COUNTS = {f"x{1 << number}": 1 << number for number in range(8)}


def _bracketed(site: Site, *kinds: str) -> tuple[str, Reader, str]:
    """Take `tmem[UR4+0x20]`: what it is, how to read the address, and the register."""
    match = re.fullmatch(r"(\w*)\[(UR(?:\d+|Z))(?:\+(0x[0-9a-f]+))?\]", text := site.text())
    if match is None or match[1] not in kinds:
        raise site.refuse(f"operand {text}")
    row, offset = site.register(match[2]), np.uint32(int(match[3] or "0", 16))
    return match[1], lambda g: row[g.s] + offset, match[2]


@opcode("LDTM", "STTM")
def move(site: Site) -> Step:
    """Between registers and the lanes of a warp; of 16 lanes, one half of the warp does it."""
    how = site.known(*_COUNTS, _LOWER, _UPPER)
    count = next((_COUNTS[one] for one in how if one in _COUNTS), 1)
    halves = {_LOWER: slice(0, 16), _UPPER: slice(16, WARP)}
    half = next((halves[one] for one in how if one in halves), None)
    fragment = Fragment.of_lanes(count) if half is None else Fragment.of_halves(count)
    loads, memory = site.base == "LDTM", site.machine.tensor_memory
    name = site.text() if loads else ""
    _, address, _ = _bracketed(site, "tmem")
    name = name or site.text()
    site.done()
    if loads:
        puts = [site.writer(name, number) for number in range(count)]
        lanes = site.machine.lane

        def load(g: Group) -> None:
            g.converge(ALL)
            values = memory.load(g, address(g), fragment)
            inner = g if half is None else g.under((lanes[g.s] >= half.start) & (lanes[g.s] < half.stop))
            assert inner is not None
            for put, value in zip(puts, values, strict=True):
                put(inner, value)

        return load
    rows = [site.register(name, number) for number in range(count)]

    def store(g: Group) -> None:
        g.converge(ALL)
        memory.store(g, address(g), fragment, np.stack([row[g.s] for row in rows]), half or slice(None))

    return store


@opcode("UTCHMMA", "UTCQMMA")
def multiply(site: Site) -> Step:
    """A, B, D, where a sparse A says which numbers it has (0: it is dense), the instruction descriptor, four registers
    with a bit for each lane of D that is left out (none is), and whether to add to D."""
    site.known()
    formats = FORMATS["f8f6f4"] if site.base == "UTCQMMA" else {**FORMATS["f16"], **FORMATS["tf32"]}
    kind, near, name = _bracketed(site, "gdesc", "tmem")
    a = near if kind == "tmem" else site.pair(name)
    b = site.pair(_bracketed(site, "gdesc")[2])
    (_, d, _), (_, sparse, _), (_, bits, _) = (_bracketed(site, one) for one in ("tmem", "tmem", "idesc"))
    mask = site.text() if site.next_is(r"UR(\d+|Z)") else "URZ"
    without = [site.register(mask, number) for number in range(4)]
    adds, machine = site.predicate(), site.machine
    site.done()

    def step(g: Group) -> None:
        words, lanes = (d(g), a(g), b(g), bits(g)), first_lanes(g)
        refused = np.bitwise_or.reduce([sparse(g), *(row[g.s] for row in without)])
        if (refused[lanes] != 0).any():
            raise site.refuse("a sparse A, or lanes that are left out")
        multiply_in_tensor_memory(machine, g, lanes, words, adds(g), formats, kind == "tmem")

    return step


@opcode("UTCBAR")
def commit(site: Site) -> Step:
    """Arrive at an mbarrier when the products of the warp are done: they are."""
    site.known()
    _, address, _ = _bracketed(site, "")
    if site.text() != "URZ":
        raise site.refuse()
    site.done()
    barriers = site.machine.shared_barriers

    return lambda g: barriers.commit(g, address(g), first_lanes(g))


@opcode("UTCATOMSWS")
def allocation(site: Site) -> Step:
    """FIND_AND_SET: take so many units of columns that are free, and give the number of the first one. AND: free those
    whose bits are 0; the upper 16 bits say where allocations begin."""
    how, memory, machine = site.known("FIND_AND_SET", "ALIGN", "AND"), site.machine.tensor_memory, site.machine
    if how not in ({"FIND_AND_SET", "ALIGN"}, {"AND"}):
        raise site.refuse()
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
            begin = memory.allocate(cta, word * UNIT)
            found[warp], good[warp] = (begin or 0) // UNIT, begin is not None
        put(g, found)
        if flag is not None:
            flag(g, good)

    return step


def _columns_of(bits: int) -> Array:
    """Which columns the lower 16 bits name."""
    return np.repeat(bits >> np.arange(16) & 1, UNIT).astype(bool)


@opcode("UVIRTCOUNT")
def relinquish(site: Site) -> Step:
    """tcgen05.relinquish_alloc_permit."""
    if site.known("DEALLOC", "SMPOOL") != {"DEALLOC", "SMPOOL"}:
        raise site.refuse()
    return lambda g: None
