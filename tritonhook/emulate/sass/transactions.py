"""Decode asynchronous copies and mbarriers: LDGSTS, SYNCS, STAS, UTMALDG, UTMASTG, UTMAREDG, UBLKCP.

Bulk copies and copies of tiles complete at once.
"""

from __future__ import annotations

import re

import numpy as np

from tritonhook.emulate import bulk, tma
from tritonhook.emulate import memory as spaces
from tritonhook.emulate.atomics import OPERATIONS, combination
from tritonhook.emulate.lanes import first_lanes
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import nothing, only
from tritonhook.emulate.sass.memory import _NO_MATTER
from tritonhook.emulate.sass.site import Site, opcode
from tritonhook.emulate.words import joined


@opcode("LDGSTS")
def copy(site: Site) -> Step:
    """Decode LDGSTS, a copy from global to shared memory. It writes zeros where the predicate is false. ZFILL: the
    lowest bits of the address are the number of bytes to fill with zeros."""
    how = site.known("BYPASS", "64", "128", "ZFILL", *_NO_MATTER)
    size = next((int(one) // 8 for one in site.modifiers if one in ("64", "128")), 4)
    if site.given[0].startswith("[") and "][" in site.given[0]:  # for sm_80, no comma separates the addresses
        site.given[:1] = site.given[0].replace("][", "],[").split(",")
    to, source = site.address(32), site.address(64)
    flag = site.predicate() if site.given else None
    site.done()
    memory, copies = site.machine.memory, site.machine.copies

    def step(g: Group) -> None:
        at, wanted = source(g), np.full(g.size, size)
        if "ZFILL" in how:
            zeros = at & np.uint64(size - 1)
            at, wanted = at - zeros, size - zeros.astype(np.int64)
        values = copies.read(g, at, wanted if flag is None else np.where(flag(g), wanted, 0), size)
        store, index = memory.locate(g, spaces.SHARED, to(g), size, "c")
        copies.start(g, store, index, 4, values)

    return step


@opcode("LDGDEPBAR")
def commit(site: Site) -> Step:
    site.known()
    copies = site.machine.copies
    return copies.commit


@opcode("DEPBAR")
def wait(site: Site) -> Step:
    """Decode DEPBAR. `.LE SB0, n` waits until at most n groups of copies are pending; only SB0 counts copies. With a
    list of scoreboards, it waits for earlier accesses, which are already done here."""
    if site.known("LE") == frozenset() and "".join(site.given).startswith("{"):
        return nothing(site)
    if site.known("LE") != {"LE"} or not site.next_is(r"SB\d"):
        raise site.refuse()
    counts_copies = site.text() == "SB0"
    pending, copies = site.number(), site.machine.copies
    site.done()
    return lambda g: copies.wait(g, pending) if counts_copies else None


# --- mbarriers -----------------------------------------------------------------------------------

_COUNTS = 0x10_0000  # an mbarrier starts at this number minus the expected arrivals, and counts up to it


@opcode("SYNCS")
def phase(site: Site) -> Step:
    """Decode SYNCS, the operations on an mbarrier.

    EXCH initialises it. CCTL.IV invalidates it. PHASECHK tests whether the phase of a parity is complete. ARRIVE
    arrives: with A1T0 once; with ART0 as many times as the last operand says; otherwise once, after expecting as many
    bytes as the last operand says. ARRIVE with A0TR or A0T1 only expects bytes (A0T1: one byte), and with A0TX only
    counts bytes as arrived. RED: the mbarrier is in another CTA.
    """
    arriving = "ARRIVE", "TRANS64", "A1T0", "A0TR", "A1TR", "A0TX", "A0T1", "ART0", "RED", "OPTOUT", "TMASK"
    how = site.known("EXCH", "64", *arriving, "PHASECHK", "TRYWAIT", "CCTL", "IV")
    barriers = site.machine.shared_barriers
    if how == {"CCTL", "IV"}:
        where = site.address(32)
        site.done()
        return lambda g: barriers.invalidate(g, spaces.SHARED, where(g))
    if "EXCH" in how:
        return _initialise(site)
    if "PHASECHK" in how:
        return _phase_check(site, "TRYWAIT" in how)
    if "ARRIVE" not in how:
        raise site.refuse()
    put = site.target_pair()
    address, given, space = site.address(32), site.integer(), spaces.CLUSTER if "RED" in how else spaces.SHARED
    site.done()
    shift, drops = np.uint64(32), "OPTOUT" in how

    def step(g: Group) -> None:
        if how & {"A0TR", "A0T1"}:
            return barriers.expect(g, space, address(g), given(g) if "A0TR" in how else np.ones(g.size, np.uint32))
        if "A0TX" in how:
            return barriers.completed(g, space, address(g), given(g))
        counts, expects = (given(g), None) if "ART0" in how else (1, None if "A1T0" in how else given(g))
        states = barriers.arrive(g, space, address(g), counts, expects, drops)
        # Upper word: the phase's parity in bit 31; from bit 11 on the pending arrivals, encoded as in `_initialise`.
        put(g, (states & np.uint64(1)) << np.uint64(63) | (np.uint64(_COUNTS) - (states >> shift)) << np.uint64(43))

    return step


@opcode("ARRIVES")
def arrive_after_copies(site: Site) -> Step:
    """Decode ARRIVES, which arrives when the thread's copies are done. Here, the step completes the copies and then
    arrives.

    ARVCNT: the phase already expects this arrival. TRANSCNT: count it as the one byte that SYNCS.A0T1 expects. Without
    both, the phase expects one arrival more, so the count does not change.
    """
    how = site.known("LDGSTSBAR", "64", "ARVCNT", "TRANSCNT")
    address, barriers, copies = site.address(32), site.machine.shared_barriers, site.machine.copies
    site.done()

    def step(g: Group) -> None:
        copies.wait(g, None)
        if "ARVCNT" in how:
            barriers.arrive(g, spaces.SHARED, address(g))
        elif "TRANSCNT" in how:
            barriers.completed(g, spaces.SHARED, address(g), np.ones(g.size, np.uint32))

    return step


def _initialise(site: Site) -> Step:
    """Decode SYNCS.EXCH, which initialises an mbarrier. Its registers are uniform."""
    if site.text() != "URZ":
        raise site.refuse()
    address, value = site.address(32), site.wide()
    site.done()
    barriers = site.machine.shared_barriers

    def step(g: Group) -> None:
        word = value(g)
        low, high = word & np.uint64(0xFFFF_FFFF), word >> np.uint64(32)
        counts = np.uint64(_COUNTS) - (low >> np.uint64(1))
        if ((np.uint64(_COUNTS) - (high >> np.uint64(11))) != counts)[g.active].any():
            raise site.refuse("an initial mbarrier state whose two counts differ")
        barriers.init(g, spaces.SHARED, address(g), counts)

    return step


def _phase_check(site: Site, waits: bool) -> Step:
    put, address, parity = site.target_flag(), site.address(32), site.integer()
    site.done()
    barriers = site.machine.shared_barriers

    def step(g: Group) -> None:
        test = barriers.try_wait if waits else barriers.is_complete
        found = test(g, spaces.SHARED, address(g), parity(g) >> np.uint32(31), True)
        put(g, found)
        if not found[g.active].all():
            g.give_way()

    return step


@opcode("STAS", "REDAS")
def store(site: Site) -> Step:
    """Decode STAS and REDAS: store to another CTA's shared memory, or combine with its contents, and count the bytes at
    an mbarrier, all at once. A pair of registers holds the two addresses."""
    reduces = site.base == "REDAS"
    how = site.known("64", "S32", "S64", *map(str.upper, OPERATIONS)) if reduces else site.known("64", "128")
    count = 4 if "128" in how else 2 if how & {"64", "S64"} else 1
    kind = f"{'s' if how & {'S32', 'S64'} else 'u'}{32 * count}"
    combine = (
        combination(only(site, (one.lower() for one in how if one.lower() in OPERATIONS)), kind, False)
        if reduces
        else None
    )
    pair, rows, memory, barriers = site.text(), site.rows(count), site.machine.memory, site.machine.shared_barriers
    if (name := re.fullmatch(r"\[(R\d+)\.64\]", pair)) is None:
        raise site.refuse(f"operand {pair}")
    target, barrier = (site.register(name[1], number) for number in range(2))
    site.done()

    def step(g: Group) -> None:
        values = [row[g.s] for row in rows]
        if combine is None:
            bulk.store_elsewhere(g, target[g.s], barrier[g.s], 4, values)
        else:
            whole = values[0] if count == 1 else joined(*values)
            memory.atomic(g, spaces.CLUSTER, target[g.s], 4 * count, combine, whole)
        barriers.completed(g, spaces.CLUSTER, barrier[g.s], np.full(g.size, 4 * count))

    return step


# --- copies by descriptor --------------------------------------------------------------------------


@opcode("UTMALDG", "UTMASTG", "UTMAREDG")
def copy_tile(site: Site) -> Step:
    """Decode a copy of a tile, one per warp. Registers of the first operand: address of the tile in shared memory,
    mbarrier (loads only), coordinates. Registers of the second operand: address of the TMA descriptor."""
    loads, reduces = site.base == "UTMALDG", site.base == "UTMAREDG"
    how = site.known("1D", "2D", "3D", "4D", "5D", *(map(str.upper, OPERATIONS) if reduces else ()))
    name = only(site, (one for one in how if one[0].isdigit()))
    operation = only(site, (one.lower() for one in how if one != name)) if reduces else ""
    first, second = (re.fullmatch(r"(?:desc\[UR\d+\])?\[UR(\d+)\]", site.text()) for _ in range(2))
    if site.next_is(r"desc\[(UR\d+|URZ)\]"):
        site.text()  # cache policy, without effect here
    if first is None or second is None:
        raise site.refuse()
    site.done()
    begin = int(first[1])
    words = [site.register(f"UR{begin + number}") for number in range(loads + 1 + int(name[0]))]
    descriptor, machine = site.pair(f"UR{second[1]}"), site.machine

    def step(g: Group) -> None:
        where = descriptor(g)
        for lane in np.flatnonzero(first_lanes(g)):
            thread = g.s.start + int(lane)
            target, *at = (int(row[thread]) for row in words)
            barrier = at.pop(0) if loads else 0
            at = [value - (value >> 31 << 32) for value in at]
            tensor = tma.map_at(machine.memory, int(where[lane]))
            cta = int(machine.cta[thread])
            if not loads:
                tma.store_tile(machine.memory, tensor, at, cta, target, thread, operation)
                continue
            size = tma.load_tile(machine.memory, tensor, at, cta, target, thread)
            place = (barrier & (1 << spaces.RANK_SHIFT) - 1) + cta * machine.memory.shared_bytes
            machine.shared_barriers.complete(place, size)

    return step


_REDUCED = {one.upper(): one for one in ("f16", "bf16", "f32", "f64", "u64", "s32", "s64")}


@opcode("UBLKCP", "UBLKRED")
def copy_in_bulk(site: Site) -> Step:
    """Decode a bulk copy, one per warp. S.G copies from global to shared memory, G.S from shared to global memory, S.S
    to shared memory of another CTA.

    Registers of the first operand: for S.G and S.S the shared address and the mbarrier, for G.S the global address (a
    pair). The last operand is the number of 16-byte pieces.
    """
    near, reduces = site.modifiers[:2] == ("S", "S"), site.base == "UBLKRED"
    loads = near or site.modifiers[:2] == ("S", "G")
    how = site.known("S", "G", *(map(str.upper, OPERATIONS) if reduces else ()), *(_REDUCED if reduces else ()), "RN")
    names = [re.fullmatch(r"\[UR(\d+)\]", site.text()) for _ in range(2)]
    size = site.integer()
    site.done()
    if None in names or (not loads and site.modifiers[:2] != ("G", "S")) or (loads and reduces):
        raise site.refuse()
    to, of = (f"UR{name[1]}" for name in names if name)
    combine = None
    if reduces:
        operation = only(site, (one.lower() for one in how if one.lower() in OPERATIONS))
        kind = next((_REDUCED[one] for one in site.modifiers if one in _REDUCED), "u32")
        combine = combination(operation, kind, False), 2 if "16" in kind else 8 if "64" in kind else 4
    shared = site.register(to if loads else of)
    gate = site.register(f"UR{int(to[2:]) + 1}") if loads else None
    source = site.register(of)
    outside = (lambda g: source[g.s]) if near else site.pair(of if loads else to)
    kinds = (spaces.CLUSTER, spaces.SHARED) if near else (spaces.SHARED, spaces.GLOBAL)

    def step(g: Group) -> None:
        inside, far, pieces = (kinds[0], shared[g.s]), (kinds[1], outside(g)), size(g)
        for lane in np.flatnonzero(first_lanes(g)):
            count = bulk.PIECE * int(pieces[lane])
            if gate is not None:
                bulk.copy(g, int(lane), inside, far, count, gate[g.s])
            else:
                bulk.copy(g, int(lane), far, inside, count, None, combine)

    return step


@opcode("UTMACMDFLUSH", "UTMACCTL", "USETMAXREG")
def nothing_more(site: Site) -> Step:
    """Decode opcodes without effect here: the end of a group of stores, descriptor caches, register counts of a
    warp."""
    if site.base == "USETMAXREG" and "TRY_ALLOC" in site.modifiers:
        put = site.target_flag()
        return lambda g: put(g, True)
    return nothing(site)


@opcode("UMEMSETS")
def clear(site: Site) -> Step:
    if site.known("64") != {"64"} or site.text() != "URZ":
        raise site.refuse()
    address, counts = site.address(32), site.integer()
    site.done()
    return lambda g: bulk.clear(g, spaces.SHARED, address, counts)
