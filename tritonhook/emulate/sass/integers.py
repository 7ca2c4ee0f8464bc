"""Integer and bit instructions, moves and predicates; their uniform forms (UIADD3, ...) too."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.site import Array, Site, opcode

WORD = np.int64(0xFFFF_FFFF)
_HALF = np.uint32(16)


def _u32(value: Array) -> Array:
    return (value & WORD).astype(np.uint32)


@opcode("MOV", "UMOV")
def move(site: Site) -> Step:
    how = site.known("U32", "64")
    if "64" in how:
        put, read = site.target_pair(), site.wide()
    else:
        put, read = site.target(), site.integer()
    if site.given and site.given[0] == "0xf":  # which quarters of the lanes: all
        site.text()
    site.done()
    return lambda g: put(g, read(g))


@opcode("IADD3", "UIADD3", "IADD", "UIADD")
def add(site: Site) -> Step:
    """The sum of three, its carries, and with X the carries of a lower word."""
    how = site.known("X", "64", "U32")
    if "64" in how:
        return _add_wide(site)
    put, carries = site.target(), [site.flag_writer(name) for name in site.flags("U?P(\\d|T)")]
    count = 3 if site.base.endswith("3") else 2
    terms = [site.counting() for _ in range(count)]
    flags = [site.predicate() for _ in site.given.copy()] if "X" in how else []
    site.done()

    def step(g: Group) -> None:
        total = reduce(np.add, [read(g) for read in terms])
        for flag in flags:
            total = total + flag(g)
        put(g, _u32(total))
        for number, carry in enumerate(carries, 1):
            carry(g, total >> 32 >= number)

    return step


def _add_wide(site: Site) -> Step:
    put = site.target_pair()
    if any(not name.endswith("T") for name in site.flags("U?P(\\d|T)")):
        raise site.refuse("a carry of 64 bits")
    terms = [site.wide() for _ in site.given.copy()]

    def step(g: Group) -> None:
        put(g, reduce(np.add, [read(g) for read in terms]))

    return step


@opcode("VIADD", "UVIADD")
def add_two(site: Site) -> Step:
    how = site.known("16x2", "U16x2", "S16x2")
    put, a, b = site.target(), site.integer(), site.integer()
    site.done()
    if how:
        return lambda g: put(g, _in_halves(np.add, np.uint16, a(g), b(g)))
    return lambda g: put(g, a(g) + b(g))


def _in_halves(function: Callable[..., Array], dtype: type, *words: Array) -> Array:
    parts = [np.ascontiguousarray(word).view(dtype) for word in words]
    return np.ascontiguousarray(function(*parts).astype(dtype, copy=False)).view(np.uint32)


@opcode("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIMNMX3", "VIADDMNMX")
def least(site: Site) -> Step:
    """The least where the predicate is true, else the greatest."""
    how = site.known("U32", "S32", "S16x2", "U16x2", "RELU", "S64", "U64")
    if how & {"S64", "U64"}:
        return _least_wide(site, np.int64 if "S64" in how else np.uint64)
    put = site.target()
    if any(not name.endswith("T") for name in site.flags("U?P(\\d|T)")):
        raise site.refuse("a predicate is written")
    adds = "ADD" in site.base
    terms = [site.integer() for _ in range(3 if adds or site.base.endswith("3") else 2)]
    picks = [site.predicate() for _ in site.given.copy()]
    kind = {"U32": np.uint32, "S16x2": np.int16, "U16x2": np.uint16}.get(next(iter(how - {"RELU"}), ""), np.int32)

    def step(g: Group) -> None:
        values = [read(g) for read in terms]
        if adds:
            values = [_in_halves(np.add, kind, *values[:2]), values[2]]
        found = values[0]
        for number, value in enumerate(values[1:]):
            pick = picks[min(number, len(picks) - 1)](g)
            low, high = (_in_halves(function, kind, found, value) for function in (np.minimum, np.maximum))
            found = np.where(pick, low, high)
        if "RELU" in how:
            found = _in_halves(lambda x: np.maximum(x, 0), kind, found)
        put(g, found)

    return step


def _least_wide(site: Site, kind: type) -> Step:
    """IMNMX.S64 on sm_120. What it does with its other predicates is not known."""
    flags = site.flags("U?P(\\d|T)")
    put, a, b, pick = site.target_pair(), site.wide(), site.wide(), site.predicate()
    if any(not name.endswith("T") for name in flags) or site.text() not in ("!PT", "!UPT"):
        raise site.refuse("predicates")
    site.done()

    def step(g: Group) -> None:
        x, y = a(g).view(kind), b(g).view(kind)
        put(g, np.where(pick(g), np.minimum(x, y), np.maximum(x, y)).view(np.uint64))

    return step


@opcode("IMAD", "UIMAD")
def multiply(site: Site) -> Step:
    how = site.known("U32", "MOV", "SHL", "IADD", "X", "WIDE", "HI", "S32")
    kind = np.uint32 if "U32" in how else np.int32
    if "WIDE" in how or "HI" in how:
        return _multiply_wide(site, how, kind)
    put = site.target()
    if site.next_is("U?P(\\d|T)"):
        raise site.refuse("a carry")
    a, b, c = site.integer(), site.integer(), site.integer()
    flags = [site.predicate() for _ in site.given.copy()] if "X" in how else []
    site.done()

    def step(g: Group) -> None:
        total = a(g) * b(g) + c(g)
        for flag in flags:
            total = total + flag(g).astype(np.uint32)
        put(g, total)

    return step


def _multiply_wide(site: Site, how: frozenset[str], kind: type) -> Step:
    is_high = "HI" in how
    put = site.target() if is_high else site.target_pair()
    carries = [site.flag_writer(name) for name in site.flags("U?P(\\d|T)")]
    a, b, c = site.integer(), site.integer(), site.wide()
    flags = [site.predicate() for _ in site.given.copy()] if "X" in how else []
    site.done()
    long = np.uint64 if kind is np.uint32 else np.int64

    def step(g: Group) -> None:
        product = (a(g).view(kind).astype(long) * b(g).view(kind).astype(long)).view(np.uint64)
        added = c(g)
        total = product + added
        carry = total < added
        for flag in flags:
            one = flag(g).astype(np.uint64)
            total = total + one
            carry |= (total == 0) & (one == 1)
        put(g, (total >> np.uint64(32)).astype(np.uint32) if is_high else total)
        for write in carries:
            write(g, carry)

    if carries and kind is not np.uint32:
        raise site.refuse("a signed carry")
    return step


@opcode("LOP3", "ULOP3")
def logic(site: Site) -> Step:
    """Any function of three bits, by its table; a predicate tells whether the result is not 0."""
    how = site.known("LUT", "PAND")
    flags = [site.flag_writer(name) for name in site.flags("U?P(\\d|T)")]
    put, terms, table = site.target(), [site.integer() for _ in range(3)], site.number()
    other = site.predicate() if site.given else None
    site.done()
    function = looked_up(table)

    def step(g: Group) -> None:
        found = function(*(read(g) for read in terms))
        put(g, found)
        for flag in flags:
            some = found != 0
            if other is not None:
                some = some & other(g) if "PAND" in how else some | other(g)
            flag(g, some)

    return step


def looked_up(table: int) -> Callable[..., Array]:
    """The function of three words that a table of eight bits says."""
    known: dict[int, Callable[..., Array]] = {
        0xC0: lambda a, b, c: a & b,
        0xFC: lambda a, b, c: a | b,
        0x3C: lambda a, b, c: a ^ b,
        0xF8: lambda a, b, c: a | b & c,
        0xEA: lambda a, b, c: a & b | c,
        0xFE: lambda a, b, c: a | b | c,
        0x96: lambda a, b, c: a ^ b ^ c,
        0x80: lambda a, b, c: a & b & c,
        0x33: lambda a, b, c: ~b,
        0x0F: lambda a, b, c: ~a,
        0x30: lambda a, b, c: a & ~b,
        0xE2: lambda a, b, c: c ^ (b & (a ^ c)),
        0xCA: lambda a, b, c: c ^ (a & (b ^ c)),
    }
    return known.get(table) or _summed(table)


def _summed(table: int) -> Callable[..., Array]:
    def function(a: Array, b: Array, c: Array) -> Array:
        found = np.zeros_like(a)
        for index in range(8):
            if table >> index & 1:
                found = found | (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return found

    return function


@opcode("PLOP3", "UPLOP3")
def predicate_logic(site: Site) -> Step:
    site.known("LUT")
    targets = [site.target_flag(), site.target_flag()]
    terms = [site.predicate() for _ in range(3)]
    functions = [_summed(site.number()), _summed(site.number())]
    site.done()

    def step(g: Group) -> None:
        values = [read(g).copy() for read in terms]
        for put, function in zip(targets, functions, strict=True):
            put(g, function(*values))

    return step


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "F": lambda a, b: np.zeros(a.shape, bool),
    "T": lambda a, b: np.ones(a.shape, bool),
}
JOINS: dict[str, Callable[[Array, Array], Array]] = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}


def compared(site: Site, how: frozenset[str]) -> tuple[str, Callable[[Array, Array], Array]]:
    """The name of a comparison, and how it is joined with a predicate."""
    (name,) = [one for one in site.modifiers if one in COMPARISONS][:1] or [""]
    if not name:
        raise site.refuse()
    return name, JOINS[next((one for one in ("AND", "OR", "XOR") if one in how), "AND")]


@opcode("ISETP", "UISETP")
def compare(site: Site) -> Step:
    how = site.known(*COMPARISONS, *JOINS, "U32", "S32", "EX", "U64", "S64")
    name, join = compared(site, how)
    is_wide = bool(how & {"U64", "S64"})
    kind: type = np.int64 if is_wide else np.int32
    if how & {"U32", "U64"}:
        kind = np.uint64 if is_wide else np.uint32
    targets = [site.flag_writer(one) for one in (site.text(), site.text())]
    a, b = (site.wide(), site.wide()) if is_wide else (site.integer(), site.integer())
    other = site.predicate()
    below = site.predicate() if "EX" in how else None
    site.done()
    function = COMPARISONS[name]

    def step(g: Group) -> None:
        x, y = a(g).view(kind), b(g).view(kind)
        found = function(x, y)
        if below is not None:
            lower = below(g)
            found = {"EQ": (x == y) & lower, "NE": (x != y) | lower}.get(name, np.where(x == y, lower, found))
        with_other = other(g).copy()
        targets[0](g, join(found, with_other))
        targets[1](g, join(~found, with_other))

    return step


@opcode("SHF", "USHF")
def shift(site: Site) -> Step:
    how = site.known("L", "R", "U32", "S32", "U64", "S64", "W", "HI")
    put, low, count, high = site.target(), site.integer(), site.integer(), site.integer()
    site.done()
    is_wide, signed = bool(how & {"U64", "S64"}), bool(how & {"S32", "S64"})
    most = 64 if is_wide else 32
    kind = np.int64 if signed else np.uint64

    def amount(g: Group) -> Array:
        given = count(g)
        return ((given & np.uint32(most - 1)) if "W" in how else np.minimum(given, np.uint32(most))).astype(np.uint64)

    def step(g: Group) -> None:
        by = amount(g)
        both = low(g).astype(np.uint64) | high(g).astype(np.uint64) << np.uint64(32)
        if "L" in how:
            found = np.where(by < 64, both << np.minimum(by, np.uint64(63)), np.uint64(0))
        elif not is_wide and "HI" in how:  # the high word alone is shifted
            word = high(g).view(np.int32 if signed else np.uint32).astype(kind)
            found = (word >> by.astype(kind)).view(np.uint64) << np.uint64(32)
        else:
            least_ = np.minimum(by, np.uint64(63))
            found = (both.view(kind) >> least_.astype(kind)).view(np.uint64)
            if not signed:
                found = np.where(by < 64, found, np.uint64(0))
        put(g, (found >> np.uint64(32) if "HI" in how else found & np.uint64(0xFFFF_FFFF)).astype(np.uint32))

    return step


@opcode("SHL", "SHR", "USHL", "USHR")
def shift_word(site: Site) -> Step:
    how = site.known("U32", "S32", "W")
    put, a, count = site.target(), site.integer(), site.integer()
    site.done()
    left, signed = "SHL" in site.base, "U32" not in how

    def step(g: Group) -> None:
        by = count(g)
        by = (by & np.uint32(31)) if "W" in how else np.minimum(by, np.uint32(32))
        word = a(g)
        if left:
            put(g, (word.astype(np.uint64) << by.astype(np.uint64)).astype(np.uint32))
        else:
            long = word.view(np.int32).astype(np.int64) if signed else word.astype(np.int64)
            put(g, _u32(long >> by.astype(np.int64)))

    return step


@opcode("PRMT", "UPRMT")
def permute(site: Site) -> Step:
    site.known()
    put, a, chosen, b = site.target(), site.integer(), site.integer(), site.integer()
    site.done()

    def step(g: Group) -> None:
        both = np.stack([a(g), b(g)], -1)
        octets = np.ascontiguousarray(both).view(np.uint8)
        selector = chosen(g)
        if (selector == selector[0]).all():
            one = int(selector[0])
            parts = [_octet(octets[:, one >> at & 7], one >> at & 8) for at in (0, 4, 8, 12)]
        else:
            nibbles = [selector >> np.uint32(at) & np.uint32(15) for at in (0, 4, 8, 12)]
            rows = np.arange(len(octets))
            parts = []
            for nibble in nibbles:
                octet = octets[rows, nibble & np.uint32(7)]
                parts.append(np.where(nibble & np.uint32(8), _octet(octet, 8), octet))
        put(g, np.ascontiguousarray(np.stack(parts, -1)).view(np.uint32)[:, 0])

    return step


def _octet(octet: Array, repeats_sign: int) -> Array:
    return np.where(octet & 0x80, np.uint8(0xFF), np.uint8(0)) if repeats_sign else octet


@opcode("SEL", "USEL")
def select(site: Site) -> Step:
    how = site.known("64")
    if "64" in how:
        put, a, b = site.target_pair(), site.wide(), site.wide()
    else:
        put, a, b = site.target(), site.integer(), site.integer()
    flag = site.predicate()
    site.done()
    return lambda g: put(g, np.where(flag(g), a(g), b(g)))


@opcode("LEA", "ULEA")
def shift_and_add(site: Site) -> Step:
    how = site.known("HI", "X", "SX32")
    put, carries = site.target(), [site.flag_writer(name) for name in site.flags("U?P(\\d|T)")]
    text = site.given[0]
    if is_negated := text.startswith("-"):
        if how:
            raise site.refuse("a negated number")
        site.given[0] = text[1:]
    a, b = site.integer(), site.counting()
    high = site.integer() if "HI" in how and "SX32" not in how else None
    by = site.number()
    flag = site.predicate() if "X" in how else None
    site.done()

    def step(g: Group) -> None:
        word = a(g)
        both = word.view(np.int32).astype(np.int64).view(np.uint64) if "SX32" in how else word.astype(np.uint64)
        if high is not None:
            both = both | high(g).astype(np.uint64) << np.uint64(32)
        shifted = (both << np.uint64(by)) >> np.uint64(32 if "HI" in how else 0)
        part = _u32(shifted.view(np.int64)).astype(np.int64)
        # Executed: 3285 - (0 << 4) carries, so that the 1 of the negation counts as in IADD3.
        total = b(g) + ((part ^ WORD) + 1 if is_negated else part)
        if flag is not None:
            total = total + flag(g)
        put(g, _u32(total))
        for number, carry in enumerate(carries, 1):
            carry(g, total >> 32 >= number)

    return step


def _top_bit(words: Array) -> Array:
    """The place of the highest bit that is set; -1 for none."""
    _, exponent = np.frexp(words.astype(np.float64))
    return exponent.astype(np.int64) - 1


@opcode("FLO", "UFLO")
def find_leading(site: Site) -> Step:
    how = site.known("U32", "SH", "S32")
    put = site.target()
    if any(not name.endswith("T") for name in site.flags("U?P(\\d|T)")):
        raise site.refuse("a predicate is written")
    read = site.integer()
    site.done()

    def step(g: Group) -> None:
        word = read(g)
        if "U32" not in how:
            word = np.where(word >> np.uint32(31) == 1, ~word, word)
        place = _top_bit(word)
        put(g, _u32(np.where(place < 0, -1, 31 - place) if "SH" in how else place))

    return step


@opcode("SGXT", "USGXT")
def extend_sign(site: Site) -> Step:
    how = site.known("U32", "W")
    put, value, width = site.target(), site.integer(), site.integer()
    site.done()

    def step(g: Group) -> None:
        bits = width(g)
        bits = ((bits & np.uint32(31)) if "W" in how else np.minimum(bits, np.uint32(32))).astype(np.int64)
        word = value(g).astype(np.int64)
        kept = word & ((np.int64(1) << bits) - 1)
        if "U32" not in how:
            kept = np.where(bits == 0, kept, kept - ((kept >> np.maximum(bits - 1, 0) & 1) << bits))
        put(g, _u32(kept))

    return step


@opcode("BMSK", "UBMSK")
def bit_mask(site: Site) -> Step:
    how = site.known("W", "C")
    put, place, count = site.target(), site.integer(), site.integer()
    site.done()

    def step(g: Group) -> None:
        at, bits = place(g), count(g)
        if "W" in how:
            at, bits = at & np.uint32(31), bits & np.uint32(31)
        at, bits = (np.minimum(one, np.uint32(32)).astype(np.uint64) for one in (at, bits))
        put(g, (((np.uint64(1) << bits) - np.uint64(1)) << at).astype(np.uint32))

    return step


def _one(function: Callable[[Array], Array]) -> Callable[[Site], Step]:
    def maker(site: Site) -> Step:
        site.known()
        put, read = site.target(), site.integer()
        site.done()
        return lambda g: put(g, function(read(g)))

    return maker


def _population(words: Array) -> Array:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4), axis=1).sum(1).astype(np.uint32)


def _reversed(words: Array) -> Array:
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 4)[:, ::-1]
    bits = np.unpackbits(octets, axis=1, bitorder="little")
    return np.packbits(bits, axis=1, bitorder="big").view(np.uint32)[:, 0]


opcode("IABS", "UIABS")(_one(lambda words: np.abs(words.view(np.int32)).view(np.uint32)))
opcode("POPC", "UPOPC")(_one(_population))
opcode("BREV", "UBREV")(_one(_reversed))
