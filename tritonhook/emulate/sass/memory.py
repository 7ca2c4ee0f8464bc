"""Decode loads, stores, atomics, constants and special registers."""

from __future__ import annotations

import numpy as np

from tritonhook.cubin.resources import SHARED_UNIT
from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.emulate import memory as spaces
from tritonhook.emulate.atomics import OPERATIONS, combination
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.sass.site import _CONSTANT, Array, Reader, Site, Writer, of_first_lane, opcode

_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
# Cache hints and memory scopes. They have no effect here: all threads see each access at once.
_NO_MATTER = (
    *("E", "CONSTANT", "STRONG", "WEAK", "SM", "CTA", "GPU", "SYS", "EF", "EL", "LU", "EU", "NA", "PRIVATE", "MMIO"),
    *("LTC64B", "LTC128B", "LTC256B", "CI", "CV", "IL"),
)
_SPACES = {"G": spaces.GLOBAL, "S": spaces.SHARED, "L": spaces.LOCAL, "": spaces.GENERIC}


def _size(site: Site) -> tuple[int, int, bool]:
    """Return (bytes of an element, number of elements, is signed)."""
    named = [one for one in site.modifiers if one in _SIZES]
    if len(named) > 1:
        raise site.refuse()
    size = _SIZES[named[0]] if named else 4
    return min(size, 4), max(1, size // 4), bool(named) and named[0].startswith("S")


def _polls(how: frozenset[str]) -> bool:
    """Whether a load may belong to a loop that waits for another CTA: it is strong, and its scope exceeds the CTA."""
    return "STRONG" in how and bool(how & {"GPU", "SYS", "SM"})


@opcode("LDG", "LDS", "LDL", "LD")
def load(site: Site) -> Step:
    how = site.known(*_SIZES, *_NO_MATTER)
    space = _SPACES[site.base[2:]]
    unit, count, signed = _size(site)
    if site.next_is(r"U?P(\d|T)"):
        raise site.refuse("a predicate is written")
    puts = site.targets(count)
    address = site.address(32 if space in (spaces.SHARED, spaces.LOCAL) else 64)
    if site.given and site.next_is("P(\\d|T)") and site.given[0].endswith("T"):
        site.text()
    site.done()
    memory, polls = site.machine.memory, _polls(how)

    def step(g: Group) -> None:
        found = memory.read(g, space, address(g), unit, count)
        if unit < 4:
            found = _extended(found, unit, signed)
        for put, value in zip(puts, found, strict=True):
            put(g, value)
        if polls:
            g.give_way()

    return step


def _extended(values: Array, unit: int, signed: bool) -> Array:
    if not signed:
        return values.astype(np.uint32)
    return values.view(np.int8 if unit == 1 else np.int16).astype(np.int32).view(np.uint32)


@opcode("STG", "STS", "STL", "ST")
def store(site: Site) -> Step:
    site.known(*_SIZES, *_NO_MATTER)
    space = _SPACES[site.base[2:]]
    unit, count, _ = _size(site)
    address = site.address(32 if space in (spaces.SHARED, spaces.LOCAL) else 64)
    rows = site.rows(count)
    site.done()
    memory = site.machine.memory
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[unit]
    return lambda g: memory.write(g, space, address(g), unit, np.stack([row[g.s].astype(kind) for row in rows]))


@opcode("LDC", "ULDC", "LDCU")
def load_constant(site: Site) -> Step:
    how = site.known(*_SIZES, "IL")
    unit, count, _ = _size(site)
    size = unit * count
    signed = bool(how & {"S8", "S16"})
    puts, text = site.targets(max(1, size // 4)), site.text()
    site.done()
    match = _CONSTANT.match(text)
    if match is None:
        raise site.refuse(f"operand {text}")
    bank, begin = int(match[1], 16), int(match[3] or "0", 16)
    if match[2] and not match[2].endswith("Z"):
        return _indexed(site, puts, site.register(match[2]), bank, begin, min(size, 4), signed)
    rows = []
    for number in range(len(puts)):
        value = site.decoder.bank(site, bank, begin + 4 * number, min(size, 4))
        if signed:
            value -= (value >> 8 * size - 1 & 1) << 8 * size
        rows.append(site.decoder.constant(value & 0xFFFF_FFFF))

    def step(g: Group) -> None:
        for put, row in zip(puts, rows, strict=True):
            put(g, row[g.s])

    return step


def _indexed(site: Site, puts: list[Writer], row: Array, bank: int, begin: int, unit: int, signed: bool) -> Step:
    """Make the step of a constant load whose address is in a register."""
    data = site.decoder.constants if bank == 0 else site.decoder.kernel.banks.get(bank)
    if data is None or signed or unit != 4:
        raise site.refuse(f"constant bank {bank} by a register")
    words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
    first = site.decoder.kernel.places.parameters if bank == 0 else 0

    def step(g: Group) -> None:
        at = row[g.s].view(np.int32).astype(np.int64) + begin
        active = at[g.active]
        if (active < first).any() or (active + 4 * len(puts) > len(data)).any() or (active & 3).any():
            raise site.refuse("an address outside of the parameters")
        index = np.where(g.active, at // 4, active[0] // 4)
        for number, put in enumerate(puts):
            put(g, words[index + number])

    return step


# --- atomics -------------------------------------------------------------------------------------


_SEVERAL = {"F32x2": 2, "F32x4": 4, "F16x4": 2, "F16x8": 4, "BF16x4": 2, "BF16x8": 4}  # number of registers
_KINDS = {one: one.lower() for one in ("F32", "F16x2", "BF16x2", "F64", "S32", "U32", "S64", "U64")} | {"64": "u64"}
_KINDS |= {one: "f32" if one[:3] == "F32" else f"{one[:-1].lower()}2" for one in _SEVERAL}
_ATOMIC = {"ATOMG": "G", "REDG": "G", "RED": "G", "ATOMS": "S", "REDS": "S", "ATOM": ""}


@opcode(*_ATOMIC)
def atomic(site: Site) -> Step:
    """Decode atomics. An operation on several registers (e.g. F32x2) is atomic for each register."""
    if "CAST" in site.modifiers:
        return _cast(site)
    if "POPC" in site.modifiers:
        return _count(site)
    how = site.known(*map(str.upper, OPERATIONS), *_KINDS, "FTZ", "RN", *_NO_MATTER)
    space, gives = _SPACES[_ATOMIC[site.base]], not site.base.startswith("RED")
    named = [one.lower() for one in how if one.lower() in OPERATIONS]
    kinds = [one for one in site.modifiers if one in _KINDS] or ["U32"]
    if len(named) != 1 or len(kinds) != 1 or ("FTZ" in how and "F32" not in kinds[0]):
        raise site.refuse()
    if named[0] in ("exch", "cas") and "F" in kinds[0]:
        raise site.refuse()
    flag = site.target_flag() if site.next_is(r"P\d") else None
    if site.next_is("U?PT"):
        site.text()
    if flag is not None and (site.base != "ATOM" or not gives):
        raise site.refuse("a predicate is written")
    kind, times = _KINDS[kinds[0]], _SEVERAL.get(kinds[0], 1)
    is_wide = kind.endswith("64")
    puts = (site.targets(times) if not is_wide else [site.target_pair()]) if gives else []
    address = site.address(32 if space == spaces.SHARED else 64)
    if times > 1:
        operands: list[list[Reader]] = [[_of_row(row)] for row in site.rows(times)]
    else:
        operands = [[site.wide() if is_wide else site.integer() for _ in range(1 + (named[0] == "cas"))]]
    site.done()
    memory, function, unit = site.machine.memory, combination(named[0], kind, "FTZ" in how), 8 if is_wide else 4

    def step(g: Group) -> None:
        begin = address(g)
        # Execute accesses of global memory only; the flag selects the code behind, which handles other memory.
        if flag is not None:
            is_global = ~spaces.is_shared(begin) & ~spaces.is_local(begin)
            flag(g, is_global)
            if (inner := g.under(is_global)) is None:
                return
            g = inner
        for number, reads in enumerate(operands):
            at = begin + begin.dtype.type(4 * number) if number else begin
            old = memory.atomic(g, space, at, unit, function, *(read(g) for read in reads))
            if gives:
                puts[number](g, old)
        g.give_way()

    return step


def _of_row(row: Array) -> Reader:
    return lambda g: row[g.s]


def _count(site: Site) -> Step:
    """Decode ATOMS.POPC.INC.32: each lane adds 1 (derived from ptxas's code; results compared with a GPU's)."""
    if site.base != "ATOMS" or site.known("POPC", "INC", "32") != {"POPC", "INC", "32"} or site.text() != "RZ":
        raise site.refuse()
    address, one, function = site.address(32), site.decoder.constant(1), combination("add", "u32", False)
    site.done()

    def step(g: Group) -> None:
        site.machine.memory.atomic(g, spaces.SHARED, address(g), 4, function, one[g.s])
        g.give_way()

    return step


def _cast(site: Site) -> Step:
    """Decode CAST.SPIN: if memory equals the next-to-last operand, store the last one. Return 1 if stored, else 0."""
    if site.base not in ("ATOMS", "ATOM"):
        raise site.refuse()
    is_wide, space = "64" in site.known("CAST", "SPIN", "64", "E"), _SPACES[_ATOMIC[site.base]]
    put = site.target_pair() if is_wide else site.target()
    address = site.address(32 if space == spaces.SHARED else 64)
    before, after = (site.wide() if is_wide else site.integer() for _ in range(2))
    site.done()
    memory, function = site.machine.memory, combination("cas", "u64" if is_wide else "u32", False)

    def step(g: Group) -> None:
        expected = before(g).copy()
        old = memory.atomic(g, space, address(g), 8 if is_wide else 4, function, expected, after(g))
        put(g, (old == expected).astype(old.dtype))

    return step


@opcode("QSPC")
def query_space(site: Site) -> Step:
    """Decode QSPC, which tests whether a generic address is in global (G), shared (S) or local (L) memory, or in the
    cluster's shared memory (D)."""
    kind = only(site, site.known("E", "G", "S", "L", "D") - {"E"})
    flag = site.target_flag()
    if site.text() != "RZ":
        raise site.refuse()
    address = site.address()
    site.done()

    def step(g: Group) -> None:
        at = address(g)
        shared, local = spaces.is_shared(at), spaces.is_local(at)
        own = shared & (spaces.rank_of(at) == site.machine.rank[g.s])
        flag(g, {"S": own, "D": shared, "L": local, "G": ~shared & ~local}[kind])

    return step


# --- special registers ---------------------------------------------------------------------------


def _special(site: Site, name: str) -> Array:
    machine = site.machine
    if name in ("SRZ", "SR_LMEMHIOFF"):  # SR_LMEMHIOFF: the lowest address that the stack may grow down to
        return site.decoder.zeros
    if name == "SR_SWINHI":  # the upper word of generic addresses of shared memory
        return site.decoder.constant(spaces.SHARED_WINDOW >> 32)
    if name == "SR_VIRTID":  # the other bits are the number of the SM, here 0
        return machine.warp << np.uint32(8)
    if name == "SR_SMEMSZ":
        taken = site.decoder.kernel.shared + int.from_bytes(site.decoder.constants[0x2C:0x30], "little")
        return site.decoder.constant(-(-taken // SHARED_UNIT) * SHARED_UNIT)
    base, _, axis = name.removeprefix("SR_").lower().partition(".")
    base = {"cgactaid": "cluster_ctarank"}.get(base, base)
    base = f"lanemask_{base[:2]}" if base.endswith("mask") else base
    found = machine.specials.get(f"%{base}.{axis}" if axis else f"%{base}")
    if found is None or not name.startswith("SR_"):
        raise site.refuse(name)
    return found


@opcode("S2R", "S2UR", "CS2R")
def special(site: Site) -> Step:
    how = site.known("32")
    if site.base == "CS2R" and "32" not in how:
        put, row = site.target_pair(), _special(site, site.text())
        return lambda g: put(g, row[g.s].astype(np.uint64))
    put, row = site.target(), _special(site, site.text())
    site.done()
    if site.base == "S2UR":
        return lambda g: put(g, of_first_lane(g, row[g.s]))
    return lambda g: put(g, row[g.s])


@opcode("RPCMOV")
def spare(site: Site) -> Step:
    """Decode RPCMOV, a move to or from Rpc, a 64-bit register that no other opcode here uses."""
    site.known("32")
    rows = {f"Rpc.{half}": site.decoder.row(True, 253 + number) for number, half in enumerate(("LO", "HI"))}
    if site.given[0] in rows:
        row, read = rows[site.text()], site.integer()
        site.done()
        return lambda g: g.put(row, read(g))
    put, source = site.target(), rows.get(site.text())
    if source is None:
        raise site.refuse()
    return lambda g: put(g, source[g.s])


@opcode("R2UR")
def to_uniform(site: Site) -> Step:
    how = site.known("FILL", "OR", "BROADCAST")
    flags = [one for one in site.flags() if not one.endswith("T")]
    put, read = site.target(), site.integer()
    site.done()
    code = site.decoder.kernel.sass.instructions[site.one.offset // INSTRUCTION_BYTES + 1 :]
    if "OR" in how or (flags and (code[0].predicate, code[0].opcode) != (f"@!{flags[0]}", "BRA.DIV")):
        raise site.refuse("a predicate is written" if flags else ".OR")
    writers = [site.flag_writer(one) for one in flags]

    def step(g: Group) -> None:
        put(g, of_first_lane(g, read(g)))
        # True would mean that no lanes have diverged; after false, the BRA.DIV that follows waits for them.
        for write in writers:
            write(g, np.zeros(g.size, bool))

    return step
