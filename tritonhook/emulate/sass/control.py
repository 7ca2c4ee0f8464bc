"""Decode branches, convergence, calls, barriers of a CTA, and opcodes without effect in the emulator."""

from __future__ import annotations

import re

import numpy as np

from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.emulate.errors import Fault
from tritonhook.emulate.lanes import ALL
from tritonhook.emulate.machine import WARP, Group, Step, lanes_of
from tritonhook.emulate.opcodes import nothing, only
from tritonhook.emulate.sass.site import Array, Site, opcode

# Memory order, cache control and scheduling: without effect, because each access completes at once.
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
    flag = site.predicate() if site.given else None  # a second condition besides the guard, as in `@P0 EXIT P1`
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
    """Decode a branch. If it has predicates as operands (BRA P0, UP1, ...), all must be true.

    .DIV would branch to code for diverged lanes; here, lanes wait for each other instead. .ANY: all lanes of a warp
    branch if the guard is true in one of them (see `any_of_warp`).
    """
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
    """Whether the collective part of the code for diverged lanes does no work. If so, the lanes may wait at different
    instructions."""
    code = [one.opcode for one in site.decoder.kernel.sass.instructions[begin : begin + 8]]
    together = code[: code.index("ENDCOLLECTIVE")] if "ENDCOLLECTIVE" in code else ["?"]
    return not set(together) - {"MOV", "UMOV", "IMAD.U32", "WARPSYNC.COLLECTIVE", "NOP"}


@opcode("BRX", "JMX", "BRXU", moves=True)
def branch_by_register(site: Site) -> Step:
    """Decode a branch to a register plus an offset, relative to the next instruction."""
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


@opcode("CALL", "RET", moves=True)
def call(site: Site) -> Step:
    """Decode a call or a return. The code before a call has put the return address into a register.

    Both can jump to an address in a register, which is relative to the kernel's start; an optional offset is added.
    """
    if site.known("REL", "NOINC", "NODEC", "ABS") != {"REL", "NOINC" if site.base == "CALL" else "NODEC"}:
        raise site.refuse()
    words = re.split(r"[\s,]+", " ".join(site.given))
    if site.base == "CALL" and len(words) == 1:
        target = site.decoder.index(site, words[0])
        return lambda g: g.jump(target)
    row = site.register(words[0])
    offset = int(words[1].strip("`()"), 16) if len(words) > 1 and words[1].strip("`()").startswith("0x") else 0
    count = len(site.decoder.kernel.sass.instructions)

    def step(g: Group) -> None:
        places = (row[g.s].astype(np.int64) + offset) // INSTRUCTION_BYTES
        if (places[g.active] >= count).any():
            raise Fault("a jump beyond the last instruction", int(g.numbers[0]))
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
    """Decode BREAK, which removes lanes from a convergence barrier so that no lane waits for them. If it has a
    predicate, only lanes where it is true are removed."""
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
    """Decode WARPSYNC, a barrier of the lanes in a mask. .COLLECTIVE: only these lanes execute the code up to
    ENDCOLLECTIVE, and then go on at the address in the operand."""
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
        raise site.refuse("no ENDCOLLECTIVE before the target")

    def step(g: Group) -> None:
        lanes = read(g)
        g.converge(lanes)
        if (np.repeat(lanes_of(g.active), WARP) & ~lanes)[g.active].any():
            raise site.refuse("lanes with different masks")

    return step


# --- barriers ------------------------------------------------------------------------------------


@opcode("BAR", "UBAR", moves=True)
def barrier(site: Site) -> Step:
    """Decode a barrier of the CTA. B2R.RESULT reads the result of BAR.RED."""
    how = site.known("SYNC", "ARV", "RED", "DEFER_BLOCKING", "POPC", "AND", "OR")
    barriers, vote, waits = site.machine.barriers, None, "ARV" not in how
    if "RED" in how:
        kind = only(site, (one for one in ("POPC", "AND", "OR") if one in how)).lower()
        vote = kind, site.decoder.predicate(site, site.given.pop()), site.decoder.row(False, 255)
    # One register for both operands: it holds the barrier's number, and from bit 16 on the count of threads.
    is_packed = len(site.given) == 2 and site.given[0] == site.given[1]
    numbers = site.integer()
    count = site.integer() if site.given else None
    site.done()

    def step(g: Group) -> None:
        number, counts = numbers(g), None if count is None else count(g)
        if is_packed:
            counts = number >> np.uint32(16) if (number >> np.uint32(16))[g.active].any() else None  # 0 means all
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
