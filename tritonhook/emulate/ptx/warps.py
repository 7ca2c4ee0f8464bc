"""What the lanes of a warp do together: shuffles, votes, reductions, matrices through shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.memory import SHARED
from tritonhook.emulate.ptx.site import KINDS, Site, opcode
from tritonhook.emulate.tensor_core.fragments import loaded, loaded_bytes, stored

_ALL = 0xFFFF_FFFF


def converging(site: Site, operand: int) -> Callable[[Group], None]:
    """Wait until the lanes that an operand names are there."""
    row = site.row(operand, "u32")
    return lambda g: None if g.mask is None else g.converge(row[g.s])


def watched(site: Site, kind: str) -> Step:
    """A step that only tells who watches shared memory that a group of reads ends, or is waited for."""
    memory, pending = site.machine.memory, 0 if site.name.endswith("commit_group") else site.integer(0)

    def step(g: Group) -> None:
        if memory.watch is None:
            return
        if site.name.endswith("commit_group"):
            memory.watch.commit(g, kind)
        else:
            memory.watch.wait_reads(g, kind, pending)

    return step


@opcode("shfl.sync")
def shuffle(site: Site) -> Step:
    how = site.known("up", "down", "bfly", "idx", "b32")
    name, valid = site.two(0)
    target, source, b, c = site.target(name, "b32"), site.row(1, "b32"), site.row(2, "u32"), site.row(3, "u32")
    inside = None if valid == "_" else site.target(valid, "pred")
    converge, lanes = converging(site, 4), site.machine.lane.astype(np.int64)
    (kind,) = how - {"b32"}

    def step(g: Group) -> None:
        converge(g)
        lane, by = lanes[g.s], (b[g.s] & np.uint32(31)).astype(np.int64)
        segment, clamp = (
            (c[g.s] >> np.uint32(8) & np.uint32(31)).astype(np.int64),
            (c[g.s] & np.uint32(31)).astype(np.int64),
        )
        most = (lane & segment) | (clamp & ~segment)
        if kind == "up":
            other = lane - by
            good = other >= most
        else:
            other = {"down": lane + by, "bfly": lane ^ by, "idx": (lane & segment) | (by & ~segment)}[kind]
            good = other <= most
        place = np.arange(g.size) - lane + np.where(good, other, lane)
        g.put(target, source[g.s][place])
        if inside is not None:
            g.put(inside, good)

    return step


@opcode("vote.sync")
def vote(site: Site) -> Step:
    how = site.known("all", "any", "uni", "ballot", "pred", "b32")
    (kind,) = how - {"pred", "b32"}
    target, value = site.target(0, "b32" if kind == "ballot" else "pred"), site.predicate(1)
    members, converge = site.row(2, "u32"), converging(site, 2)

    def step(g: Group) -> None:
        converge(g)
        true = lanes_of(value(g) & g.active)
        asked = members[g.s][::WARP] & lanes_of(g.active)
        true = true & asked
        found = {"ballot": true, "all": true == asked, "any": true != 0, "uni": (true == asked) | (true == 0)}[kind]
        g.put(target, np.repeat(found, WARP))

    return step


@opcode("activemask")
def active_mask(site: Site) -> Step:
    site.known("b32")
    target = site.target(0, "b32")
    return lambda g: g.put(target, np.repeat(lanes_of(g.active), WARP))


@opcode("match.sync", "match.any.sync", "match.all.sync")
def match(site: Site) -> Step:
    kind, _ = site.typed("b32 b64")
    name, second = site.two(0)
    target, source, members = site.target(name, "b32"), site.row(1, kind), site.row(2, "u32")
    equal = None if second == "_" else site.target(second, "pred")
    converge, every = converging(site, 2), "all" in site.name

    def step(g: Group) -> None:
        converge(g)
        values = source[g.s].reshape(-1, WARP)
        asked = lanes_of(g.active) & members[g.s][::WARP]
        same = values[:, :, None] == values[:, None, :]
        weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        masks = (same * weights).sum(2, dtype=np.uint32) & asked[:, None]
        if every:
            good = masks == asked[:, None]
            masks = np.where(good, masks, np.uint32(0))
            if equal is not None:
                g.put(equal, good.reshape(-1))
        g.put(target, masks.reshape(-1))

    return step


@opcode("redux.sync")
def reduction(site: Site) -> Step:
    kind, how = site.typed("s32 u32 b32", "add", "min", "max", "and", "or", "xor")
    (name,) = how
    functions: dict[str, tuple[np.ufunc, int]] = {
        "add": (np.add, 0),
        "min": (np.minimum, 0x7FFF_FFFF if kind == "s32" else _ALL),
        "max": (np.maximum, -(1 << 31) if kind == "s32" else 0),
        "and": (np.bitwise_and, -1 if kind == "s32" else _ALL),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }
    function, neutral = functions[name]
    dtype = KINDS[kind]
    target, source = site.target(0, kind), site.row(1, kind)
    members, converge, lane = site.row(2, "u32"), converging(site, 2), site.machine.lane

    def step(g: Group) -> None:
        converge(g)
        asked = (members[g.s] >> lane[g.s] & np.uint32(1)).astype(bool) & g.active
        values = np.where(asked, source[g.s], dtype(neutral)).reshape(-1, WARP)
        g.put(target, np.repeat(function.reduce(values, axis=1, dtype=dtype), WARP))

    return step


@opcode("elect.sync")
def elect(site: Site) -> Step:
    site.known()
    name, chosen = site.two(0)
    target, leader = site.target(name, "b32"), site.target(chosen, "pred")
    members, converge, lane = site.row(1, "u32"), converging(site, 1), site.machine.lane

    def step(g: Group) -> None:
        converge(g)
        asked = lanes_of(g.active) & members[g.s][::WARP]
        lowest = asked & (~asked + np.uint32(1))
        first = np.repeat(lowest, WARP)
        mine = np.uint32(1) << lane[g.s]
        g.put(leader, mine == first)
        g.put(target, np.log2(np.maximum(first, 1)).astype(np.uint32))

    return step


# --- matrices of 8 by 8 numbers of 16 bits -------------------------------------------------------


def _matrices(site: Site) -> tuple[int, bool]:
    how = site.known("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    if "m8n8" not in how or "b16" not in how:
        raise site.refuse()
    return next(int(one[1]) for one in how if one in ("x1", "x2", "x4")), "trans" in how


@opcode("ldmatrix")
def load_matrices(site: Site) -> Step:
    """Lane 8 m + r has the address of row r of matrix m."""
    if "m16n16" in site.modifiers:
        return _load_bytes(site)
    count, transposed = _matrices(site)
    targets, address, memory = site.targets(0, "b32"), site.address(1, SHARED), site.machine.memory
    if len(targets) != count:
        raise site.refuse()
    gives = site.machine.lane < 8 * count

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        words = np.ascontiguousarray(memory.read(inner, SHARED, address(g), 4, 4).T)
        rows = words.view(np.uint16).reshape(-1, 4, 8, 8)[:, :count]
        for target, register in zip(targets, loaded(rows, transposed), strict=True):
            g.put(target, register)

    return step


def _load_bytes(site: Site) -> Step:
    """Matrices of 16 rows of 16 bytes, transposed: lane 16 m + r has the address of row r."""
    how = site.known("sync", "aligned", "m16n16", "x1", "x2", "trans", "shared", "shared::cta", "b8")
    count = 2 if "x2" in how else 1
    targets, address, memory = site.targets(0, "b32"), site.address(1, SHARED), site.machine.memory
    if not how >= {"trans", "b8"} or len(targets) != 2 * count:
        raise site.refuse()
    gives = site.machine.lane < 16 * count

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        words = np.ascontiguousarray(memory.read(inner, SHARED, address(g), 4, 4).T)
        rows = words.view(np.uint8).reshape(-1, 2, 16, 16)[:, :count]
        for target, register in zip(targets, loaded_bytes(rows), strict=True):
            g.put(target, register)

    return step


@opcode("stmatrix")
def store_matrices(site: Site) -> Step:
    """The inverse of ldmatrix."""
    count, transposed = _matrices(site)
    sources, address, memory = site.rows(1, "b32"), site.address(0, SHARED), site.machine.memory
    if len(sources) != count:
        raise site.refuse()
    gives = site.machine.lane < 8 * count

    def step(g: Group) -> None:
        g.converge(_ALL)
        inner = g.under(gives[g.s])
        assert inner is not None
        rows = np.zeros((g.size // WARP, 4, 8, 8), np.uint16)
        rows[:, :count] = stored(np.stack([source[g.s] for source in sources]), transposed)
        memory.write(inner, SHARED, address(g), 4, rows.view(np.uint32).reshape(-1, 4).T)

    return step


@opcode("movmatrix")
def transpose(site: Site) -> Step:
    how = site.known("sync", "aligned", "m8n8", "trans", "b16")
    if "trans" not in how:
        raise site.refuse()
    target, source = site.target(0, "b32"), site.row(1, "b32")

    def step(g: Group) -> None:
        g.converge(_ALL)
        g.put(target, loaded(stored(source[g.s][None], True), False)[0])

    return step
