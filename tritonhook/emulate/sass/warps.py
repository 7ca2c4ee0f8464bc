"""Decode instructions in which lanes of a warp exchange values: shuffles, votes, reductions, matches, ldmatrix."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.lanes import ALL, Matrices, elected, extreme, matched, reduced, shuffled, transposed, voted
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.sass.site import Site, opcode
from tritonhook.emulate.words import REDUCTIONS


@opcode("SHFL")
def shuffle(site: Site) -> Step:
    how = site.known("UP", "DOWN", "BFLY", "IDX")
    kind = only(site, how)
    inside, put, read, by_, mask = site.take("PRiii.")

    def step(g: Group) -> None:
        found, good = shuffled(g, kind.lower(), read(g), by_(g), mask(g))
        put(g, found)
        inside(g, good)

    return step


@opcode("VOTE", "VOTEU")
def vote(site: Site) -> Step:
    how = site.known("ANY", "ALL", "EQ")
    kind = only(site, how)
    put = site.target() if site.next_is(r"U?R(\d+|Z)") else None
    flag = site.target_flag() if site.next_is(r"U?P(\d|T)") and len(site.given) > 1 else None
    read = site.predicate()
    site.done()

    def step(g: Group) -> None:
        values = read(g)
        if put is not None:
            put(g, voted(g, values, "ballot"))
        if flag is not None:
            flag(g, voted(g, values, {"EQ": "uni"}.get(kind, kind.lower())))

    return step


@opcode("REDUX", "CREDUX")
def reduction(site: Site) -> Step:
    how = site.known(*map(str.upper, REDUCTIONS), "SUM", "S32", "U32", "F32", "MINABS", "MAXABS", "NAN")
    kind = np.int32 if "S32" in how else np.uint32
    if ("NAN" in how or "ABS" in "".join(how)) and "F32" not in how:
        raise site.refuse()
    name = only(site, how - {"S32", "U32", "F32", "NAN"} or {"AND"})
    put, read = site.take("Ri.")
    if "F32" in how:
        return lambda g: put(g, extreme(read(g), name[:3] == "MIN", "ABS" in name, "NAN" in how, g.active))
    name = {"SUM": "add"}.get(name, name.lower())
    return lambda g: put(g, reduced(read(g).view(kind), name, g.active).view(np.uint32))


@opcode("MATCH")
def match(site: Site) -> Step:
    how = site.known("ANY", "ALL", "U64")
    flag = site.target_flag() if "ALL" in how else None
    put, read = site.target(), site.wide() if "U64" in how else site.integer()
    site.done()

    def step(g: Group) -> None:
        masks, good = matched(g, read(g), flag is not None)
        if flag is not None:
            flag(g, good)
        put(g, masks)

    return step


@opcode("ELECT")
def elect(site: Site) -> Step:
    """Decode ELECT, which chooses the lowest active lane."""
    site.known()
    flag = site.target_flag()
    put = site.target()
    if site.given:
        site.text()
    site.done()

    def step(g: Group) -> None:
        first, mine = elected(g, g.active)
        flag(g, mine)
        put(g, first)

    return step


# --- matrices through shared memory ----------------------------------------------------------------


def _matrices(site: Site) -> Matrices:
    how = site.known("16", "M88", "MT88", "8", "MT1616", "2", "4", "1")
    count, of_bytes = int(next((one for one in ("4", "2") if one in how), "1")), how >= {"8", "MT1616"}
    shape, numbers = how & {"8", "16", "M88", "MT88", "MT1616"}, how & {"1", "2", "4"}
    known = shape == {"8", "MT1616"} if of_bytes else shape in ({"16", "M88"}, {"16", "MT88"})
    if not known or len(numbers) > 1 or (of_bytes and (count == 4 or site.base == "STSM")):
        raise site.refuse()
    return Matrices(site.machine, count, "MT88" in how, of_bytes)


@opcode("LDSM")
def load_matrices(site: Site) -> Step:
    matrices = _matrices(site)
    puts = site.targets(matrices.count * (1 + matrices.of_bytes))
    address = site.address(32)
    site.done()

    def step(g: Group) -> None:
        g.converge(ALL)
        for put, value in zip(puts, matrices.load(g, address(g)), strict=True):
            put(g, value)

    return step


@opcode("STSM")
def store_matrices(site: Site) -> Step:
    matrices, address = _matrices(site), site.address(32)
    rows = site.rows(matrices.count)
    site.done()

    def step(g: Group) -> None:
        g.converge(ALL)
        matrices.store(g, address(g), np.stack([row[g.s] for row in rows]))

    return step


@opcode("MOVM")
def transpose(site: Site) -> Step:
    how = site.known("16", "MT88")
    if how != {"16", "MT88"}:
        raise site.refuse()
    put, read = site.take("Ri.")

    def step(g: Group) -> None:
        g.converge(ALL)
        put(g, transposed(read(g)))

    return step
