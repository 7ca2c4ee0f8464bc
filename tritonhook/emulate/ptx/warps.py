"""Steps of operations between the lanes of a warp: shuffles, votes, matches, reductions, ldmatrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate.lanes import (
    ALL,
    Matrices,
    absent,
    by_mask,
    elected,
    extreme,
    matched,
    reduced,
    shuffled,
    transposed,
    voted,
)
from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.ptx.site import Site, opcode
from tritonhook.emulate.words import REDUCTIONS


def converging(site: Site, operand: int) -> Callable[[Group], None]:
    """Return the function that waits until all lanes of a mask operand have arrived, and informs the sanitizer."""
    row, memory, reads_lanes = site.row(operand, "u32"), site.machine.memory, site.name.startswith("shfl")

    def converge(g: Group) -> None:
        if g.mask is not None:
            g.converge(row[g.s])
        if memory.watch is not None:
            memory.watch.collective(g)
            if not reads_lanes:
                memory.watch.members(g, row[g.s])

    return converge


@opcode("shfl.sync")
def shuffle(site: Site) -> Step:
    how = site.known("up", "down", "bfly", "idx", "b32")
    name, valid = site.two(0)
    target, source, by, mask = site.target(name, "b32"), site.row(1, "b32"), site.row(2, "u32"), site.row(3, "u32")
    inside = None if valid == "_" else site.target(valid, "pred")
    converge, members, memory = converging(site, 4), site.row(4, "u32"), site.machine.memory
    kind = only(site, how - {"b32"})

    def step(g: Group) -> None:
        converge(g)
        found, good = shuffled(g, kind, source[g.s], by[g.s], mask[g.s])
        if memory.watch is not None or memory.absent:
            lost = absent(g, kind, by[g.s], mask[g.s], members[g.s])
            if memory.absent:
                found = np.where(lost, np.uint32(memory.absent * 0x01010101), found)
            elif memory.watch is not None and lost.any():
                memory.watch.shuffled()
        g.put(target, found)
        if inside is not None:
            g.put(inside, good)

    return step


@opcode("vote.sync")
def vote(site: Site) -> Step:
    how = site.known("all", "any", "uni", "ballot", "pred", "b32")
    kind = only(site, how - {"pred", "b32"})
    target, value = site.target(0, "b32" if kind == "ballot" else "pred"), site.predicate(1)
    members, converge = site.row(2, "u32"), converging(site, 2)

    def step(g: Group) -> None:
        converge(g)
        g.put(target, voted(g, value(g), kind, members[g.s]))

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
        masks, good = matched(g, source[g.s], every, members[g.s])
        g.put(target, masks)
        if every and equal is not None:
            g.put(equal, good)

    return step


@opcode("redux.sync")
def reduction(site: Site) -> Step:
    kind, how = site.typed("s32 u32 b32 f32", *REDUCTIONS, "abs", "NaN")
    name = only(site, how - {"abs", "NaN"})
    if name not in ("min", "max") if kind == "f32" else how & {"abs", "NaN"}:
        raise site.refuse()
    target, source = site.target(0, kind), site.row(1, kind)
    members, converge = site.row(2, "u32"), converging(site, 2)

    def step(g: Group) -> None:
        converge(g)
        values = source[g.s]
        for inner in by_mask(g, members[g.s]):
            if kind == "f32":
                inner.put(target, extreme(values, name == "min", "abs" in how, "NaN" in how, inner.active))
            else:
                inner.put(target, reduced(values, name, inner.active))

    return step


@opcode("elect.sync")
def elect(site: Site) -> Step:
    site.known()
    name, chosen = site.two(0)
    target, leader = site.target(name, "b32"), site.target(chosen, "pred")
    members, converge = site.row(1, "u32"), converging(site, 1)

    def step(g: Group) -> None:
        converge(g)
        for inner in by_mask(g, members[g.s]):
            first, mine = elected(inner, inner.active)
            inner.put(leader, mine)
            inner.put(target, first)

    return step


# --- matrices through shared memory --------------------------------------------------------------


def _matrices(site: Site) -> Matrices:
    how = site.known(
        "sync", "aligned", "m8n8", "m16n16", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16", "b8"
    )
    count = only(site, (int(one[1]) for one in how if one in ("x1", "x2", "x4")))
    of_bytes = how >= {"m16n16", "b8", "trans"} and count < 4 and site.name == "ldmatrix"
    if {"m8n8", "b16", "m16n16", "b8"} & how != ({"m16n16", "b8"} if of_bytes else {"m8n8", "b16"}):
        raise site.refuse()
    return Matrices(site.machine, count, "trans" in how, of_bytes)


@opcode("ldmatrix")
def load_matrices(site: Site) -> Step:
    matrices, targets, address = _matrices(site), site.targets(0, "b32"), site.address(1)
    if len(targets) != matrices.count * (1 + matrices.of_bytes):
        raise site.refuse()

    def step(g: Group) -> None:
        g.converge(ALL)
        for target, register in zip(targets, matrices.load(g, address(g)), strict=True):
            g.put(target, register)

    return step


@opcode("stmatrix")
def store_matrices(site: Site) -> Step:
    matrices, sources, address = _matrices(site), site.rows(1, "b32"), site.address(0)
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
        g.put(target, transposed(source[g.s]))

    return step
