"""What the lanes of a warp do together: shuffles, votes, reductions, matrices through shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate.lanes import ALL, Matrices, matched, shuffled
from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.memory import SHARED
from tritonhook.emulate.ptx.site import KINDS, Site, opcode
from tritonhook.emulate.tensor_core.fragments import loaded, stored


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
    target, source, by, mask = site.target(name, "b32"), site.row(1, "b32"), site.row(2, "u32"), site.row(3, "u32")
    inside = None if valid == "_" else site.target(valid, "pred")
    converge = converging(site, 4)
    (kind,) = how - {"b32"}

    def step(g: Group) -> None:
        converge(g)
        found, good = shuffled(g, kind, source[g.s], by[g.s], mask[g.s])
        g.put(target, found)
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
        masks, good = matched(source[g.s], lanes_of(g.active) & members[g.s][::WARP], every)
        g.put(target, masks)
        if every and equal is not None:
            g.put(equal, good)

    return step


@opcode("redux.sync")
def reduction(site: Site) -> Step:
    kind, how = site.typed("s32 u32 b32", "add", "min", "max", "and", "or", "xor")
    (name,) = how
    functions: dict[str, tuple[np.ufunc, int]] = {
        "add": (np.add, 0),
        "min": (np.minimum, 0x7FFF_FFFF if kind == "s32" else ALL),
        "max": (np.maximum, -(1 << 31) if kind == "s32" else 0),
        "and": (np.bitwise_and, -1 if kind == "s32" else ALL),
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


# --- matrices through shared memory --------------------------------------------------------------


def _matrices(site: Site) -> Matrices:
    how = site.known(
        "sync", "aligned", "m8n8", "m16n16", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16", "b8"
    )
    count = next(int(one[1]) for one in how if one in ("x1", "x2", "x4"))
    of_bytes = how >= {"m16n16", "b8", "trans"} and count < 4 and site.name == "ldmatrix"
    if not of_bytes and not how >= {"m8n8", "b16"}:
        raise site.refuse()
    return Matrices(site.machine, count, "trans" in how, of_bytes)


@opcode("ldmatrix")
def load_matrices(site: Site) -> Step:
    matrices, targets, address = _matrices(site), site.targets(0, "b32"), site.address(1, SHARED)
    if len(targets) != matrices.count * (1 + matrices.of_bytes):
        raise site.refuse()

    def step(g: Group) -> None:
        g.converge(ALL)
        for target, register in zip(targets, matrices.load(g, address(g)), strict=True):
            g.put(target, register)

    return step


@opcode("stmatrix")
def store_matrices(site: Site) -> Step:
    matrices, sources, address = _matrices(site), site.rows(1, "b32"), site.address(0, SHARED)
    if len(sources) != matrices.count:
        raise site.refuse()

    def step(g: Group) -> None:
        g.converge(ALL)
        matrices.store(g, address(g), np.stack([source[g.s] for source in sources]))

    return step


@opcode("movmatrix")
def transpose(site: Site) -> Step:
    how = site.known("sync", "aligned", "m8n8", "trans", "b16")
    if "trans" not in how:
        raise site.refuse()
    target, source = site.target(0, "b32"), site.row(1, "b32")

    def step(g: Group) -> None:
        g.converge(ALL)
        g.put(target, loaded(stored(source[g.s][None], True), False)[0])

    return step
