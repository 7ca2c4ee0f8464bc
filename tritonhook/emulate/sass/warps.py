"""What the lanes of a warp do together: shuffles, votes, reductions, matches, ldmatrix."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.memory import SHARED
from tritonhook.emulate.sass.site import Array, Site, opcode
from tritonhook.emulate.tensor_core import fragments

_ALL = 0xFFFF_FFFF


@opcode("SHFL")
def shuffle(site: Site) -> Step:
    how = site.known("UP", "DOWN", "BFLY", "IDX")
    (kind,) = how
    inside, put = site.target_flag(), site.target()
    read, by_, mask = site.integer(), site.integer(), site.integer()
    site.done()
    lanes = site.machine.lane.astype(np.int64)

    def step(g: Group) -> None:
        g.converge(_ALL)
        lane, by, c = lanes[g.s], (by_(g) & np.uint32(31)).astype(np.int64), mask(g).astype(np.int64)
        segment, clamp = c >> 8 & 31, c & 31
        most = (lane & segment) | (clamp & ~segment)
        if kind == "UP":
            other = lane - by
            good = other >= most
        else:
            other = {"DOWN": lane + by, "BFLY": lane ^ by, "IDX": (lane & segment) | (by & ~segment)}[kind]
            good = other <= most
        place = np.arange(g.size) - lane + np.where(good, other, lane)
        put(g, read(g)[place])
        inside(g, good)

    return step


@opcode("VOTE", "VOTEU")
def vote(site: Site) -> Step:
    how = site.known("ANY", "ALL", "EQ")
    (kind,) = how
    put = site.target() if site.next_is(r"U?R(\d+|Z)") else None
    flag = site.target_flag() if site.next_is(r"U?P(\d|T)") and len(site.given) > 1 else None
    read = site.predicate()
    site.done()

    def step(g: Group) -> None:
        active = lanes_of(g.active)
        true = lanes_of(read(g) & g.active)
        if put is not None:
            put(g, np.repeat(true, WARP))
        if flag is not None:
            found = {"ANY": true != 0, "ALL": true == active, "EQ": (true == active) | (true == 0)}[kind]
            flag(g, np.repeat(found, WARP))

    return step


_REDUCTIONS = {"SUM": (np.add, 0), "OR": (np.bitwise_or, 0), "XOR": (np.bitwise_xor, 0), "AND": (np.bitwise_and, -1)}


@opcode("REDUX", "CREDUX")
def reduction(site: Site) -> Step:
    how = site.known(*_REDUCTIONS, "MIN", "MAX", "S32", "U32")
    kind = np.int32 if "S32" in how else np.uint32
    (name,) = (how - {"S32", "U32"}) or {"AND"}
    info = np.iinfo(kind)
    function, neutral = {**_REDUCTIONS, "MIN": (np.minimum, info.max), "MAX": (np.maximum, info.min)}[name]
    put, read = site.target(), site.integer()
    site.done()
    zero = np.array(neutral).astype(kind)

    def step(g: Group) -> None:
        values = np.where(g.active, read(g).view(kind), zero).reshape(-1, WARP)
        put(g, np.repeat(function.reduce(values, axis=1, dtype=kind).view(np.uint32), WARP))

    return step


@opcode("MATCH")
def match(site: Site) -> Step:
    how = site.known("ANY", "ALL", "U64")
    flag = site.target_flag() if "ALL" in how else None
    put, read = site.target(), site.wide() if "U64" in how else site.integer()
    site.done()

    def step(g: Group) -> None:
        values = read(g).reshape(-1, WARP)
        asked = lanes_of(g.active)
        weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        masks = ((values[:, :, None] == values[:, None, :]) * weights).sum(2, dtype=np.uint32) & asked[:, None]
        if flag is not None:
            good = masks == asked[:, None]
            masks = np.where(good, masks, np.uint32(0))
            flag(g, good.reshape(-1))
        put(g, masks.reshape(-1))

    return step


@opcode("ELECT")
def elect(site: Site) -> Step:
    """The lowest active lane."""
    site.known()
    flag = site.target_flag()
    put = site.target()
    if site.given:
        site.text()
    site.done()

    def step(g: Group) -> None:
        first = g.active.reshape(-1, WARP).argmax(1)
        flag(g, np.arange(g.size) % WARP == np.repeat(first, WARP))
        put(g, np.repeat(first.astype(np.uint32), WARP))

    return step


# --- matrices through shared memory ----------------------------------------------------------------


def _matrices(site: Site) -> tuple[int, bool]:
    how = site.known("16", "M88", "MT88", "2", "4", "1")
    if not how & {"M88", "MT88"}:
        raise site.refuse()
    return int(next((one for one in ("4", "2") if one in how), "1")), "MT88" in how


@opcode("LDSM")
def load_matrices(site: Site) -> Step:
    if "MT1616" in site.modifiers:
        return _load_bytes(site)
    count, transposed = _matrices(site)
    name = site.text()
    puts = [site.writer(name, number) for number in range(count)]
    address, memory = site.address(32), site.machine.memory
    site.done()
    gives = site.machine.lane < 8 * count

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        words = np.ascontiguousarray(memory.read(inner, SHARED, address(g), 4, 4).T)  # (threads, 4)
        rows = words.view(np.uint16).reshape(-1, 4, 8, 8)[:, :count]
        for put, value in zip(puts, fragments.loaded(rows, transposed), strict=True):
            put(g, value)

    return step


def _load_bytes(site: Site) -> Step:
    """Matrices of 16 rows of 16 bytes, transposed."""
    how = site.known("8", "MT1616", "1", "2")
    count, name = 2 if "2" in how else 1, site.text()
    puts = [site.writer(name, number) for number in range(2 * count)]
    address, memory, gives = site.address(32), site.machine.memory, site.machine.lane < 16 * count
    site.done()

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        words = np.ascontiguousarray(memory.read(inner, SHARED, address(g), 4, 4).T)
        rows = words.view(np.uint8).reshape(-1, 2, 16, 16)[:, :count]
        for put, value in zip(puts, fragments.loaded_bytes(rows), strict=True):
            put(g, value)

    return step


@opcode("STSM")
def store_matrices(site: Site) -> Step:
    count, transposed = _matrices(site)
    address, memory = site.address(32), site.machine.memory
    name = site.text()
    rows = [site.register(name, number) for number in range(count)]
    site.done()
    gives = site.machine.lane < 8 * count

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        held = fragments.stored(np.stack([row[g.s] for row in rows]), transposed)
        full = np.zeros((held.shape[0], 4, 8, 8), np.uint16)
        full[:, :count] = held
        memory.write(inner, SHARED, address(g), 4, full.reshape(-1, 8).view(np.uint32).T)

    return step


@opcode("MOVM")
def transpose(site: Site) -> Step:
    how = site.known("16", "MT88")
    if how != {"16", "MT88"}:
        raise site.refuse()
    put, read = site.target(), site.integer()
    site.done()

    def step(g: Group) -> None:
        g.converge(_ALL)
        rows: Array = fragments.stored(read(g)[None], False)
        put(g, fragments.loaded(rows, True)[0])

    return step
