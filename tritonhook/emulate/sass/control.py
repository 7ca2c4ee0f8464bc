"""Branches, convergence, calls, barriers of a CTA; and what has no effect where each access is done at once."""

from __future__ import annotations

import re

import numpy as np

from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.emulate.errors import Fault
from tritonhook.emulate.lanes import ALL
from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.opcodes import nothing, only
from tritonhook.emulate.sass.site import Array, Site, opcode

# What orders accesses or schedules.
opcode(
    *("NOP", "CCTL", "CCTLL", "CCTLT", "ERRBAR", "CGAERRBAR"),
    *("MEMBAR", "FENCE", "YIELD", "ACQBULK", "PREEXIT", "ENDCOLLECTIVE", "UBLKPF"),
)(nothing)


@opcode("NANOSLEEP")
def sleep(site: Site) -> Step:
    site.known("SYNCS")
    return lambda g: g.give_way()


@opcode("EXIT", moves=True)
def leave(site: Site) -> Step:
    site.known()
    flag = site.predicate() if site.given else None  # one more condition
    site.done()

    def step(g: Group) -> None:
        if (part := g.part(None if flag is None else flag(g))) is not None:
            part.exit()

    return step


@opcode("KILL", "BPT", moves=True)
def trap(site: Site) -> Step:
    def step(g: Group) -> None:
        raise Fault("trap", int(g.numbers[0]))

    return step


@opcode("BRA", moves=True)
def branch(site: Site) -> Step:
    """Make the step of a branch; with predicates as operands (BRA P0, UP1 ...) all must be true. .DIV leads to code for
    lanes that are apart: here they are waited for instead. .ANY: all lanes of a warp go if one does (`any_of_warp`)."""
    how = site.known("U", "DIV", "CONV", "ANY", "ALL")
    if "ALL" in how or ("ANY" in how and len(site.given) > 1):
        raise site.refuse()
    if "DIV" in how:
        row = site.integer() if len(site.given) > 1 else None
        begin = site.decoder.index(site, site.text())
        if row and _only_waits(site, begin):
            return lambda g: g.meet(row(g))
        return (lambda g: g.converge(row(g))) if row else lambda g: g.converge(ALL)
    flags = [site.predicate() for _ in site.given[:-1]]
    target = site.decoder.index(site, site.text())
    if not flags:
        return lambda g: g.jump(target)

    def step(g: Group) -> None:
        where = np.logical_and.reduce([read(g) for read in flags])
        if (part := g.part(where)) is not None:
            part.jump(target)

    return step


def _only_waits(site: Site, begin: int) -> bool:
    """Whether the code for lanes that are apart does nothing together: they may wait in several places."""
    code = [one.opcode for one in site.decoder.kernel.sass.instructions[begin : begin + 8]]
    together = code[: code.index("ENDCOLLECTIVE")] if "ENDCOLLECTIVE" in code else ["?"]
    return not set(together) - {"MOV", "UMOV", "IMAD.U32", "WARPSYNC.COLLECTIVE", "NOP"}


@opcode("BRX", "JMX", "BRXU", moves=True)
def branch_by_register(site: Site) -> Step:
    """To an address beside this instruction's."""
    site.known("NODEC")
    match = re.fullmatch(r"(U?R\d+)\s*,?\s*(-?0x[0-9a-f]+)?.*", ",".join(site.given))
    if match is None or site.base == "JMX":
        raise site.refuse()
    row, offset = site.register(match[1]), int(match[2] or "0", 16)
    allowed = sorted(at // INSTRUCTION_BYTES for at in site.decoder.kernel.sass.indirect_targets)
    begin = site.one.offset + INSTRUCTION_BYTES + offset

    def step(g: Group) -> None:
        places = (row[g.s].view(np.int32).astype(np.int64) + begin) // INSTRUCTION_BYTES
        if not np.isin(places[g.active], allowed).all():
            raise site.refuse("a target that the image does not list")
        g.scatter(places)

    return step


@opcode("CALL", moves=True)
def call(site: Site) -> Step:
    """Make the step of a call. The return address is already in a register. With a register, it is as `back`."""
    how = site.known("REL", "NOINC", "ABS")
    if how != {"REL", "NOINC"}:
        raise site.refuse()
    if len(words := re.split(r"[\s,]+", " ".join(site.given))) > 1:
        return _to_address(site, words)
    target = site.decoder.index(site, site.given[-1])
    return lambda g: g.jump(target)


@opcode("RET", moves=True)
def back(site: Site) -> Step:
    how = site.known("REL", "NODEC", "ABS")
    if how != {"REL", "NODEC"}:
        raise site.refuse()
    return _to_address(site, re.split(r"[\s,]+", " ".join(site.given)))


def _to_address(site: Site, words: list[str]) -> Step:
    """Make a jump to the address in a register, counted from the kernel's begin or from an offset."""
    row = site.register(words[0])
    offset = int(words[1].strip("`()"), 16) if len(words) > 1 and words[1].strip("`()").startswith("0x") else 0
    count = len(site.decoder.kernel.sass.instructions)

    def step(g: Group) -> None:
        places = (row[g.s].astype(np.int64) + offset) // INSTRUCTION_BYTES
        if (places[g.active] >= count).any():
            raise Fault("a jump to no instruction", int(g.numbers[0]))
        g.scatter(places)

    return step


# --- convergence ---------------------------------------------------------------------------------


def _barrier(site: Site, text: str) -> Array:
    if not re.fullmatch(r"B\d+", text):
        raise site.refuse(f"operand {text}")
    return site.decoder.convergence[int(text[1:])]


@opcode("BSSY")
def begin(site: Site) -> Step:
    site.known("RECONVERGENT", "RELIABLE")
    row = _barrier(site, site.text())
    return lambda g: g.put(row, np.repeat(lanes_of(g.active), WARP))


@opcode("BSYNC")
def end(site: Site) -> Step:
    site.known("RECONVERGENT", "RELIABLE")
    row = _barrier(site, site.text())
    return lambda g: g.converge(row[g.s])


@opcode("BREAK")
def drop_out(site: Site) -> Step:
    """Drop these lanes, or those whose predicate is true, from the barrier: nobody waits for them there."""
    site.known("RELIABLE")
    row = _barrier(site, site.text())
    flag = site.predicate() if site.given else None
    site.done()

    def step(g: Group) -> None:
        leaving = g.active if flag is None else g.active & flag(g)
        row[g.s] &= ~np.repeat(lanes_of(leaving), WARP)
        g.machine.ask_again()

    return step


@opcode("BMOV")
def move_barrier(site: Site) -> Step:
    site.known("32", "CLEAR", "PQUAD")
    target, source = site.text(), site.text()
    if target.startswith("B"):
        row, read = _barrier(site, target), site.register(source)
        return lambda g: g.put(row, read[g.s])
    put, row = site.writer(target), _barrier(site, source)
    return lambda g: put(g, row[g.s])


@opcode("WARPSYNC")
def warp_barrier(site: Site) -> Step:
    """Make the step of a warp barrier. .COLLECTIVE: these lanes alone execute what comes until ENDCOLLECTIVE, then go
    on at the address."""
    how = site.known("ALL", "EXCLUSIVE", "COLLECTIVE")
    if len(how) > 1:
        raise site.refuse()
    if "ALL" in how:
        site.done()
        return lambda g: g.converge(ALL)
    read = site.integer()
    if "COLLECTIVE" not in how:
        site.done()
        return lambda g: g.converge(read(g))
    code, index = site.decoder.kernel.sass.instructions, site.decoder.index(site, site.text())
    site.done()
    if not site.one.offset < code[index].offset or code[index - 1].opcode != "ENDCOLLECTIVE":
        raise site.refuse("a block that ends elsewhere")

    def step(g: Group) -> None:
        lanes = read(g)
        g.converge(lanes)
        if (np.repeat(lanes_of(g.active), WARP) & ~lanes)[g.active].any():
            raise site.refuse("lanes of several masks")

    return step


# --- barriers ------------------------------------------------------------------------------------


@opcode("BAR", "UBAR", moves=True)
def barrier(site: Site) -> Step:
    """RED: its result is read by B2R.RESULT."""
    how = site.known("SYNC", "ARV", "RED", "DEFER_BLOCKING", "POPC", "AND", "OR")
    barriers, vote, waits = site.machine.barriers, None, "ARV" not in how
    if "RED" in how:
        kind = only(site, (one for one in ("POPC", "AND", "OR") if one in how)).lower()
        vote = kind, site.decoder.predicate(site, site.given.pop()), site.decoder.row(False, 255)
    is_packed = len(site.given) == 2 and site.given[0] == site.given[1]  # the number below, the count from bit 16 on
    numbers = site.integer()
    count = site.integer() if site.given else None
    site.done()

    def step(g: Group) -> None:
        number, counts = numbers(g), None if count is None else count(g)
        if is_packed:
            counts = number >> np.uint32(16) if (number >> np.uint32(16))[g.active].any() else None  # else all threads
            number = number & np.uint32(15)
        barriers.arrive(g, number, counts, waits, vote)

    return step


@opcode("B2R")
def barrier_to_register(site: Site) -> Step:
    how = site.known("RESULT")
    if not how:
        raise site.refuse()
    put = site.target()
    flag = site.target_flag() if site.given else None
    result = site.decoder.row(False, 255)

    def step(g: Group) -> None:
        put(g, result[g.s])
        if flag is not None:
            flag(g, result[g.s] != 0)

    return step


@opcode("UCGABAR_ARV", "UCGABAR_WAIT", moves=True)
def cluster_barrier(site: Site) -> Step:
    barriers = site.machine.barriers
    return barriers.cluster_arrive if site.base.endswith("ARV") else barriers.cluster_wait
