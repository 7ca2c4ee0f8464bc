"""Loads, stores, atomics, constants, special registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate import memory as spaces
from tritonhook.emulate import numbers
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.site import _CONSTANT, Array, Reader, Site, Writer, of_first_lane, opcode

_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
# Where data is cached, and who may see it when: all see each access at once here.
_NO_MATTER = (
    *("E", "CONSTANT", "STRONG", "WEAK", "SM", "CTA", "GPU", "SYS", "EF", "EL", "LU", "EU", "NA", "PRIVATE", "MMIO"),
    *("LTC64B", "LTC128B", "LTC256B", "CI", "CV", "IL"),
)
_SPACES = {"G": spaces.GLOBAL, "S": spaces.SHARED, "L": spaces.LOCAL, "": spaces.GENERIC}


def _size(site: Site, how: frozenset[str]) -> tuple[int, int, bool]:
    """Bytes of an element, how many elements, whether it has a sign."""
    named = [one for one in site.modifiers if one in _SIZES]
    if len(named) > 1:
        raise site.refuse()
    size = _SIZES[named[0]] if named else 4
    return min(size, 4), max(1, size // 4), bool(named) and named[0].startswith("S")


def _polls(how: frozenset[str]) -> bool:
    """Whether a load may be of a loop that waits for another CTA."""
    return "STRONG" in how and bool(how & {"GPU", "SYS", "SM"})


@opcode("LDG", "LDS", "LDL", "LD")
def load(site: Site) -> Step:
    how = site.known(*_SIZES, *_NO_MATTER)
    space = _SPACES[site.base[2:]]
    unit, count, signed = _size(site, how)
    if site.next_is(r"U?P(\d|T)"):
        raise site.refuse("a predicate is written")
    name = site.text()
    puts = [site.writer(name, number) for number in range(count)]
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
    how = site.known(*_SIZES, *_NO_MATTER)
    space = _SPACES[site.base[2:]]
    unit, count, _ = _size(site, how)
    address = site.address(32 if space in (spaces.SHARED, spaces.LOCAL) else 64)
    name = site.text()
    rows = [site.register(name, number) for number in range(count)]
    site.done()
    memory = site.machine.memory
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[unit]
    return lambda g: memory.write(g, space, address(g), unit, np.stack([row[g.s].astype(kind) for row in rows]))


@opcode("LDC", "ULDC", "LDCU")
def load_constant(site: Site) -> Step:
    how = site.known(*_SIZES, "IL")
    size = _SIZES[next(iter(how & set(_SIZES)), "32")]
    signed = bool(how & {"S8", "S16"})
    name, text = site.text(), site.text()
    site.done()
    puts = [site.writer(name, number) for number in range(max(1, size // 4))]
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
    """A load whose address is known only when it runs."""
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


def _as(kind: type, function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda old, new: function(old.view(kind), new.view(kind)).view(old.dtype)


def _combination(site: Site, how: frozenset[str]) -> tuple[int, Callable[[Array, Array], Array]]:
    """Bytes, and the function of old and new."""
    ftz = "FTZ" in how
    add_floats = lambda old, new: numbers.add32(old, new, "rn", ftz)  # noqa: E731
    for name in ("f32", "f16", "bf16"):
        if any(one.startswith(name.upper()) for one in how):
            if "ADD" not in how:
                raise site.refuse()
            halves = lambda old, new, kind=name: numbers.add_halves(old, new, kind)  # noqa: E731
            return 4, add_floats if name == "f32" else halves
    if "F64" in how:
        return 8, _as(np.float64, np.add)
    is_wide, signed = bool(how & {"64", "S64", "U64"}), bool(how & {"S32", "S64"})
    kind = {(0, 0): np.uint32, (0, 1): np.int32, (1, 0): np.uint64, (1, 1): np.int64}[is_wide, signed]
    functions: dict[str, Callable[[Array, Array], Array]] = {
        "ADD": np.add,
        "MIN": np.minimum,
        "MAX": np.maximum,
        "AND": np.bitwise_and,
        "OR": np.bitwise_or,
        "XOR": np.bitwise_xor,
        "EXCH": lambda old, new: new,
        "INC": lambda old, new: np.where(old >= new, 0, old + 1).astype(old.dtype),
        "DEC": lambda old, new: np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype),
    }
    (name,) = [one for one in how if one in functions] or [""]
    if not name:
        raise site.refuse()
    return 8 if is_wide else 4, _as(kind, functions[name])


_SEVERAL = {"F32x2": 2, "F32x4": 4, "F16x4": 2, "F16x8": 4, "BF16x4": 2, "BF16x8": 4}  # registers
_KINDS = ("F32", *_SEVERAL, "F16x2", "BF16x2", "F64", "64", "S32", "U32", "S64", "U64", "FTZ", "RN")
_NAMES = ("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "INC", "DEC")


@opcode("ATOMG", "ATOMS", "ATOM", "RED", "REDG", "REDS")
def atomic(site: Site) -> Step:
    how = site.known(*_NAMES, *_KINDS, *_NO_MATTER, "CAS", "POPC")
    named = {"ATOMG": "G", "REDG": "G", "RED": "G", "ATOMS": "S", "REDS": "S", "ATOM": ""}
    space = _SPACES[named[site.base]]
    if "POPC" in how:
        raise site.refuse()
    if site.next_is(r"U?P(\d|T)") and not site.text().endswith("T"):
        raise site.refuse("a predicate is written")
    gives = not site.base.startswith("RED")
    is_wide = bool(how & {"64", "S64", "U64", "F64"})
    put = (site.target_pair() if is_wide else site.target()) if gives else None
    address = site.address(32 if space == spaces.SHARED else 64)
    operands_text = site.given[0]
    operands = [_word(site, is_wide) for _ in range(2 if "CAS" in how else 1)]
    site.done()
    if "CAS" in how:
        unit: int = 8 if is_wide else 4
        function: Callable[..., Array] = _exchanged_if_equal
    else:
        unit, function = _combination(site, how)
    memory = site.machine.memory
    if (times := next((count for one, count in _SEVERAL.items() if one in how), 0)) != 0:
        return _several(site, put, address, operands_text, times, function)

    def step(g: Group) -> None:
        old = memory.atomic(g, space, address(g), unit, function, *(read(g) for read in operands))
        if put is not None:
            put(g, old)
        g.give_way()

    return step


def _several(
    site: Site, put: Writer | None, address: Reader, name: str, times: int, function: Callable[..., Array]
) -> Step:
    """Several registers, each added by itself."""
    if put is not None:
        raise site.refuse()
    rows = [site.register(name, number) for number in range(times)]
    memory = site.machine.memory

    def step(g: Group) -> None:
        begin = address(g)
        for number, row in enumerate(rows):
            memory.atomic(g, spaces.GLOBAL, begin + np.uint64(4 * number), 4, function, row[g.s])
        g.give_way()

    return step


def _exchanged_if_equal(old: Array, expected: Array, new: Array) -> Array:
    return np.where(old == expected, new, old)


def _word(site: Site, is_wide: bool) -> Reader:
    return site.wide() if is_wide else site.integer()


# --- special registers ---------------------------------------------------------------------------


def _special(site: Site, name: str) -> Array:
    machine, geometry = site.machine, site.machine.geometry
    axes = {"X": 0, "Y": 1, "Z": 2}
    base, _, axis = name.partition(".")
    if axis in axes and base in ("SR_TID", "SR_CTAID"):
        return (machine.tid if base == "SR_TID" else machine.ctaid)[axes[axis]]
    sizes = {"SR_NTID": geometry.block, "SR_NCTAID": geometry.grid}
    if axis in axes and base in sizes:
        return site.decoder.constant(sizes[base][axes[axis]])
    zeros = site.decoder.zeros  # SR_LMEMHIOFF: where the stack, which grows down, has to end
    rows = {"SR_LANEID": machine.lane, "SR_CgaCtaId": machine.rank, "SRZ": zeros, "SR_LMEMHIOFF": zeros}
    one = np.uint32(1)
    lane = machine.lane
    with np.errstate(all="ignore"):
        masks = {
            "SR_EQMASK": one << lane,
            "SR_LTMASK": (one << lane) - one,
            "SR_LEMASK": ((one << lane) - one) | one << lane,
            "SR_GTMASK": ~(((one << lane) - one) | one << lane),
            "SR_GEMASK": ~((one << lane) - one),
        }
    found = rows.get(name, masks.get(name))
    if found is None:
        raise site.refuse(name)
    return found


@opcode("S2R", "S2UR", "CS2R", "S2UR")
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


@opcode("R2UR")
def to_uniform(site: Site) -> Step:
    how = site.known("FILL", "OR", "BROADCAST")
    if site.next_is(r"U?P(\d|T)") and not site.text().endswith("T"):
        raise site.refuse("a predicate is written")
    put, read = site.target(), site.integer()
    site.done()
    if "OR" in how:
        raise site.refuse(".OR")
    return lambda g: put(g, of_first_lane(g, read(g)))
