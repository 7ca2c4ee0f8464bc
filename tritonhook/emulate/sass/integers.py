"""Decode integer and bit instructions, moves and predicates, and their uniform forms (UIADD3, ...)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, words
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode

WORD = np.int64(0xFFFF_FFFF)
_PARTS: dict[str, type] = {"S8": np.int8, "U8": np.uint8, "S16": np.int16, "U16": np.uint16}


def _u32(value: Array) -> Array:
    return (value & WORD).astype(np.uint32)


_PLAIN: dict[str, Callable[[Array], Array]] = {
    "IABS": lambda word: np.abs(word.view(np.int32)).view(np.uint32),
    "POPC": words.population,
    "BREV": words.reversed_bits,
}


@opcode(*(f"{u}{name}" for name in _PLAIN for u in ("", "U")))
def plain(site: Site) -> Step:
    site.known()
    return site.compute(_PLAIN[site.base.removeprefix("U")], "Ri")


@opcode("MOV", "UMOV")
def move(site: Site) -> Step:
    how = site.known("U32", "64", "SPILL")
    put, read = site.take("Ww" if "64" in how else "Ri")
    if site.given and site.given[0] == "0xf":  # mask of the quarters of a warp: all
        site.text()
    site.done()
    return lambda g: put(g, read(g))


@opcode("IADD3", "UIADD3", "IADD", "UIADD")
def add(site: Site) -> Step:
    """Decode an addition of words. X adds the carries of a lower word; predicates receive this word's carries."""
    how = site.known("X", "64", "U32")
    if "64" in how:
        return _add_wide(site)
    put, carries = site.target(), site.carries()
    count = 3 if site.base.endswith("3") else 2
    terms = [site.counting() for _ in range(count)]
    flags = _carried(site, how)

    def step(g: Group) -> None:
        total = reduce(np.add, [read(g) for read in terms])
        for flag in flags:
            total = total + flag(g)
        put(g, _u32(total))
        for number, carry in enumerate(carries, 1):
            carry(g, total >> 32 >= number)

    return step


def _carried(site: Site, how: frozenset[str]) -> list[Reader]:
    """Take the carries of a lower word, i.e. the predicates that .X adds."""
    flags = [site.predicate() for _ in site.given.copy()] if "X" in how else []
    if "X" in how and not flags:
        raise site.refuse("no carry")
    site.done()
    return flags


def _add_wide(site: Site) -> Step:
    put = site.target_pair()
    site.no_flags("a carry of 64 bits")
    terms = [site.wide() for _ in site.given.copy()]
    return lambda g: put(g, reduce(np.add, [read(g) for read in terms]))


@opcode("VIADD", "UVIADD")
def add_two(site: Site) -> Step:
    how = site.known("16x2", "U16x2", "S16x2", "S32", "ISAT")
    if how == {"S32", "ISAT"}:
        return _add_saturated(site)
    if len(how) > 1 or how & {"S32", "ISAT"}:
        raise site.refuse()
    return site.compute(words.in_halves(np.add, np.uint16 if how else np.uint32), "Rii")


def _add_saturated(site: Site) -> Step:
    """Decode a saturating addition. Negating an operand does not overflow (derived from machine code for sm_120)."""
    put, terms = site.target(), [site.exact(), site.exact()]
    site.done()
    return lambda g: put(g, words.saturated(np.add)(terms[0](g), terms[1](g)).view(np.uint32))


@opcode("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIMNMX3", "VIADDMNMX")
def least(site: Site) -> Step:
    """Decode IMNMX and its forms: the minimum where the predicate is true, else the maximum."""
    how = site.known("U32", "S32", "S16x2", "U16x2", "RELU", "S64", "U64")
    if len(how - {"RELU"}) > 1 or ("RELU" in how and how & {"U32", "U16x2"}):
        raise site.refuse()
    if how & {"S64", "U64"}:
        return _least_wide(site, np.int64 if "S64" in how else np.uint64)
    put, flags = site.target(), site.flags(r"U?P(\d+|T)")
    named = {one for one in flags if not one.endswith("T")}
    if named and (len(set(flags)) > 1 or "RELU" not in how):
        raise site.refuse("a predicate is written")
    is_first = [site.flag_writer(one) for one in named]  # true if the result is the first source (measured on a GPU)
    adds = "ADD" in site.base
    terms = [site.integer() for _ in range(3 if adds or site.base.endswith("3") else 2)]
    picks = [site.predicate() for _ in site.given.copy()]
    kind = {"U32": np.uint32, "S16x2": np.int16, "U16x2": np.uint16}.get(next(iter(how - {"RELU"}), ""), np.int32)

    def extreme(a: Array, b: Array, lower: Array) -> Array:
        return np.where(lower, words.in_halves(np.minimum, kind)(a, b), words.in_halves(np.maximum, kind)(a, b))

    def step(g: Group) -> None:
        values = [read(g) for read in terms]
        if adds:
            values = [words.in_halves(np.add, kind)(*values[:2]), values[2]]
        found = combined(g, values, picks, extreme)
        if "RELU" in how:
            found = words.in_halves(lambda x: np.maximum(x, 0), kind)(found)
        for write in is_first:
            write(g, found == values[0])
        put(g, found)

    return step


def combined(g: Group, values: list[Array], picks: list[Reader], function: Callable[..., Array]) -> Array:
    """Combine two or three values from left to right. function: takes two values and a predicate. picks: readers of the
    predicates; the last one counts for all further values."""
    found = values[0]
    for number, value in enumerate(values[1:]):
        found = function(found, value, picks[min(number, len(picks) - 1)](g))
    return found


def _least_wide(site: Site, kind: type) -> Step:
    """Decode IMNMX.S64 of sm_120. The meaning of its other predicates is unknown; they must be PT or !PT."""
    flags = site.flags()
    put, a, b, pick = site.take("Wwwp")
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
    a, b, c = site.take("iii")
    flags = _carried(site, how)

    def step(g: Group) -> None:
        total = a(g) * b(g) + c(g)
        for flag in flags:
            total = total + flag(g).astype(np.uint32)
        put(g, total)

    return step


def _multiply_wide(site: Site, how: frozenset[str], kind: type) -> Step:
    is_high = "HI" in how
    put = site.target() if is_high else site.target_pair()
    carries = site.carries()
    a, b, c = site.take("iiw")
    flags = _carried(site, how)
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

    return step


@opcode("LOP3", "ULOP3")
def logic(site: Site) -> Step:
    """Decode LOP3, a bitwise function of three words, given by an 8-bit truth table. A predicate receives whether the
    result is not 0."""
    how = site.known("LUT", "PAND")
    flags = site.carries()
    put, terms, table = site.target(), [site.integer() for _ in range(3)], site.number()
    other = site.predicate() if site.given else None
    site.done()
    function = words.looked_up(table)

    def step(g: Group) -> None:
        found = function(*(read(g) for read in terms))
        put(g, found)
        for flag in flags:
            some = found != 0
            if other is not None:
                some = some & other(g) if "PAND" in how else some | other(g)
            flag(g, some)

    return step


@opcode("PLOP3", "UPLOP3")
def predicate_logic(site: Site) -> Step:
    site.known("LUT")
    *targets, a, b, c = site.take("PPppp")
    functions = [words.summed(site.number()), words.summed(site.number())]
    site.done()

    def step(g: Group) -> None:
        values = [read(g).copy() for read in (a, b, c)]
        for put, function in zip(targets, functions, strict=True):
            put(g, function(*values))

    return step


def comparison(site: Site, table: Any) -> tuple[str, comparisons.Test]:
    """Return the name of the comparison, and the function that combines its result with a predicate."""
    named = [one.lower() for one in site.modifiers if one.lower() in table]
    if len(named) != 1:
        raise site.refuse()
    joins = [one.lower() for one in site.modifiers if one.lower() in comparisons.JOINS]
    return named[0], comparisons.JOINS[(joins or ["and"])[0]]


def names_of(*tables: Any) -> list[str]:
    """Return the modifiers for these tables of comparisons, and for combining results with a predicate."""
    return [name.upper() for table in (*tables, comparisons.JOINS) for name in table]


@opcode("ISETP", "UISETP")
def compare(site: Site) -> Step:
    how = site.known(*names_of(comparisons.WHOLE), "U32", "S32", "EX", "U64", "S64")
    name, join = comparison(site, comparisons.WHOLE)
    is_wide = bool(how & {"U64", "S64"})
    kind = f"{'u' if how & {'U32', 'U64'} else 'i'}{8 if is_wide else 4}"
    first, second, a, b, other = site.take("PPwwp" if is_wide else "PPiip")
    below = site.predicate() if "EX" in how else None
    site.done()
    function = comparisons.WHOLE[name]

    def step(g: Group) -> None:
        x, y = a(g).view(kind), b(g).view(kind)
        found = function(x, y)
        if below is not None:
            lower = below(g)
            found = {"eq": (x == y) & lower, "ne": (x != y) | lower}.get(name, np.where(x == y, lower, found))
        with_other = other(g).copy()
        first(g, join(found, with_other))
        second(g, join(~found, with_other))

    return step


@opcode("SHF", "USHF")
def shift(site: Site) -> Step:
    """Decode SHF, which shifts two words as 64 bits and returns the lower word, or the upper one with HI. With R.HI and
    a 32-bit type, it shifts the upper word alone."""
    how = site.known("L", "R", "U32", "S32", "U64", "S64", "W", "HI")
    is_wide, signed, wraps = bool(how & {"U64", "S64"}), bool(how & {"S32", "S64"}), "W" in how
    most, kind = 64 if is_wide else 32, None if "L" in how else np.int64 if signed else np.uint64
    result = np.uint64(32 if "HI" in how else 0)

    def found(low: Array, count: Array, high: Array) -> Array:
        if "HI" in how and "R" in how and not is_wide:
            by = (count & np.uint32(31)) if wraps else count
            return words.right(high.view(np.int32 if signed else np.uint32), by).view(np.uint32)
        return (words.shifted(low, high, count, wraps, kind, most) >> result & words.WORD).astype(np.uint32)

    return site.compute(found, "Riii")


@opcode("SHL", "SHR", "USHL", "USHR")
def shift_word(site: Site) -> Step:
    how = site.known("U32", "S32", "W")
    function, kind = (words.left if "SHL" in site.base else words.right), np.uint32 if "U32" in how else np.int32

    def found(word: Array, count: Array) -> Array:
        return function(word.view(kind), count & np.uint32(31) if "W" in how else count).view(np.uint32)

    return site.compute(found, "Rii")


@opcode("PRMT", "UPRMT")
def permute(site: Site) -> Step:
    modes = [*site.known(*map(str.upper, words.PERMUTATIONS)), ""]
    return site.compute(lambda a, chosen, b: words.permuted(a, b, chosen, modes[0].lower()), "Riii")


@opcode("SEL", "USEL")
def select(site: Site) -> Step:
    what = "Wwwp" if "64" in site.known("64") else "Riip"
    return site.compute(lambda a, b, flag: np.where(flag, a, b), what)


@opcode("LEA", "ULEA")
def shift_and_add(site: Site) -> Step:
    how = site.known("HI", "X", "SX32")
    put, carries = site.target(), site.carries()
    text = site.given[0]
    if "SX32" in how and "HI" not in how:
        raise site.refuse(".SX32")
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
            both = words.joined(word, high(g))
        shifted = (both << np.uint64(by)) >> np.uint64(32 if "HI" in how else 0)
        part = _u32(shifted.view(np.int64)).astype(np.int64)
        # A negation inverts and adds 1. This 1 carries, as in IADD3: 3285 - (0 << 4) carries (measured on a GPU).
        total = b(g) + ((part ^ WORD) + 1 if is_negated else part)
        if flag is not None:
            total = total + flag(g)
        put(g, _u32(total))
        for number, carry in enumerate(carries, 1):
            carry(g, total >> 32 >= number)

    return step


@opcode("FLO", "UFLO")
def find_leading(site: Site) -> Step:
    how = site.known("U32", "SH", "S32")
    put = site.target()
    site.no_flags()
    (read,) = site.take("i.")
    kind = np.uint32 if "U32" in how else np.int32
    return lambda g: put(g, words.leading(read(g).view(kind), "SH" in how))


@opcode("SGXT", "USGXT")
def extend_sign(site: Site) -> Step:
    how = site.known("U32", "W")
    return site.compute(partial(words.extended, wraps="W" in how, signed="U32" not in how), "Rii")


@opcode("BMSK", "UBMSK")
def bit_mask(site: Site) -> Step:
    return site.compute(partial(words.bit_mask, wraps="W" in site.known("W", "C")), "Rii")


# --- parts of words ------------------------------------------------------------------------------


@opcode("I2I")
def convert(site: Site) -> Step:
    """Decode I2I.S8.S32.SAT and the like, which clamp a word to the range of the first type."""
    if len(site.modifiers) != 3 or site.modifiers[1:] != ("S32", "SAT") or site.modifiers[0] not in _PARTS:
        raise site.refuse()
    info = np.iinfo(_PARTS[site.modifiers[0]])
    return site.compute(lambda word: np.clip(word.view(np.int32), info.min, info.max).view(np.uint32), "Ri")


@opcode("VABSDIFF")
def add_difference(site: Site) -> Step:
    kind = np.uint32 if site.known("U32") else np.int32
    return site.compute(lambda *given: words.distance(*(one.view(kind) for one in given)).view(np.uint32), "Riii")


@opcode("VABSDIFF4")
def byte_differences(site: Site) -> Step:
    """Decode VABSDIFF4, the absolute differences of unsigned bytes (measured on a GPU). .ACC adds their sum to the
    third word (not measured)."""
    how = site.known("U8", "ACC")
    if "U8" not in how:
        raise site.refuse()

    def found(a: Array, b: Array, c: Array) -> Array:
        x, y = words.octets(a), words.octets(b)
        each = np.where(x < y, y - x, x - y)
        return each.sum(1, dtype=np.uint32) + c if "ACC" in how else each.view(np.uint32)[:, 0]

    return site.compute(found, "Riii")


@opcode("IDP")
def dot_product(site: Site) -> Step:
    """Decode IDP, a dot product. 4A: of four bytes. 2A: of two 16-bit numbers with two bytes of the second operand, the
    lower (LO) or the upper ones (HI)."""
    how = site.known("4A", "2A", "LO", "HI", *_PARTS)
    kinds = [_PARTS[one] for one in site.modifiers if one in _PARTS]
    if len(kinds) != 2 or len(how & {"4A", "2A"}) != 1 or ("2A" in how) != bool(how & {"LO", "HI"}):
        raise site.refuse()
    return site.compute(partial(words.dot, kinds=(kinds[0], kinds[1]), first=2 if "HI" in how else 0), "Riii")


@opcode("P2R", "UP2UR", "R2P", "UR2UP")
def flags_and_register(site: Site) -> Step:
    """Decode P2R, which writes the predicates in a mask as bits of a byte and copies the other bits from the second
    operand; and R2P, which writes such bits to predicates."""
    at = 8 * int(next(iter(site.known("B1", "B2", "B3")), "B0")[1])
    put = site.target() if "P2" in site.base else None
    if site.next_is("U?PR"):
        site.text()
    if put is None and site.next_is(r"U?R\w+\.B[123]"):  # the byte that R2P reads, if not the lowest
        site.given[0], _, byte = site.given[0].partition(".B")
        at = 8 * int(byte)
    read, mask = site.integer(), site.number()
    site.done()
    rows = [(np.uint32(at + n), site.decoder.flag(site.base[0] == "U", n)) for n in range(7) if mask >> n & 1]
    if put is None:

        def to_flags(g: Group) -> None:
            word = read(g)
            for bit, row in rows:
                g.put(row, word >> bit & np.uint32(1) != 0)

        return to_flags
    kept = ~np.uint32((mask & 0xFF) << at)
    return lambda g: put(
        g, reduce(np.bitwise_or, [row[g.s].astype(np.uint32) << bit for bit, row in rows], read(g) & kept)
    )
