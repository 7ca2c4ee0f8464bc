"""Integers, logic, predicates, moves and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.numbers import decode as decoded
from tritonhook.emulate.numbers import flush32
from tritonhook.emulate.ptx.kernel import SIZES, list_of
from tritonhook.emulate.ptx.site import KINDS, Array, Site, computing, opcode

WHOLE = "u16 s16 u32 s32 u64 s64"
_PAIRS = "u16x2 s16x2"
_BITS = "b16 b32 b64"
_TWICE = {
    np.dtype(a): b
    for a, b in ((np.uint16, np.uint32), (np.int16, np.int32), (np.uint32, np.uint64), (np.int32, np.int64))
}


def bits_of(kind: str) -> int:
    return 8 * SIZES[kind]


def _pairs(kind: str, function: Callable[..., Array]) -> Callable[..., Array]:
    """Apply to both halves of words."""
    half = np.int16 if kind.startswith("s") else np.uint16

    def apply(*words: Array) -> Array:
        found = function(*(np.ascontiguousarray(word).view(half) for word in words))
        return found.astype(half, copy=False).view(np.uint32)

    return apply


def _whole(site: Site, function: Callable[..., Array], *modifiers: str) -> Step:
    """An instruction of integers of one type, or of pairs of them."""
    kind, _ = site.typed(f"{WHOLE} {_PAIRS}", *modifiers)
    rows = [site.row(number, kind) for number in range(1, len(site.operands))]
    if kind.endswith("x2"):
        function = _pairs(kind, function)
    return computing(site.target(0, kind), function, *rows)


def _saturated(function: Callable[..., Array]) -> Callable[..., Array]:
    """Of s32: clamp instead of wrapping."""

    def apply(a: Array, b: Array) -> Array:
        return np.clip(function(a.astype(np.int64), b.astype(np.int64)), -(1 << 31), (1 << 31) - 1).astype(np.int32)

    return apply


@opcode(*(f"{name}.{kind}" for name in ("add", "sub") for kind in f"{WHOLE} {_PAIRS} sat.s32".split()))
def add(site: Site) -> Step:
    base, _, kind = site.name.partition(".")
    site.count(3)
    function = np.add if base == "add" else np.subtract
    site.modifiers = (kind.removeprefix("sat."),)
    return _whole(site, _saturated(function) if kind.startswith("sat.") else function)


@opcode("add.cc", "sub.cc", "addc", "subc", "mad.lo.cc", "mad.hi.cc", "madc.lo", "madc.hi")
def with_carry(site: Site) -> Step:
    """Parts of long integers. The carry is a register of its own; of a subtraction it is the borrow."""
    kind, how = site.typed("u32 s32 u64 s64 b32 b64", "cc")
    carry = site.decoder.carry
    is_wide, parts = SIZES[kind] == 8, site.name.split(".")
    unsigned = np.uint64 if is_wide else np.uint32
    reads, writes = parts[0] in ("addc", "subc", "madc"), "cc" in (*parts, *how)
    minus, target = parts[0] in ("sub", "subc"), site.target(0, kind)
    rows = [site.row(number, kind) for number in range(1, len(site.operands))]

    def step(g: Group) -> None:
        given = [row[g.s] for row in rows]
        if parts[0] in ("mad", "madc"):
            product = _high(*given[:2]) if "hi" in parts else given[0] * given[1]
            given = [product, given[2]]
        a, b = (one.astype(unsigned) for one in given)
        kept = carry[g.s].astype(unsigned) if reads else unsigned(0)
        if minus:
            found = a - b - kept
            out = (a < b) | ((a == b) & (kept != 0))
        else:
            part = a + b
            found = part + kept
            out = (part < a) | (found < part)
        g.put(target, found.view(target.dtype))
        if writes:
            g.put(carry, out)

    return step


def _high(a: Array, b: Array) -> Array:
    """The upper half of the product of two integers of 16, 32 or 64 bits."""
    if a.dtype.itemsize < 8:
        wide = _TWICE[a.dtype]
        return (a.astype(wide) * b.astype(wide) >> wide(8 * a.dtype.itemsize)).astype(a.dtype)
    mask, shift = np.uint64(0xFFFF_FFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, high = x & mask, x >> shift
    below, above = y & mask, y >> shift
    middle = (low * below >> shift) + (high * below & mask) + low * above
    found = high * above + (high * below >> shift) + (middle >> shift)
    if a.dtype == np.int64:
        found = found - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return found.view(a.dtype)


def _product(site: Site) -> tuple[str, str, Callable[[Array, Array], Array]]:
    """Type of the sources and of the result, and the product, of mul and mad."""
    kind, how = site.typed(WHOLE, "lo", "hi", "wide")
    if "wide" in how:
        result = f"{kind[0]}{2 * bits_of(kind)}"
        wide = KINDS[result]
        return kind, result, lambda a, b: a.astype(wide) * b.astype(wide)
    return kind, kind, _high if "hi" in how else np.multiply


@opcode("mul.lo", "mul.hi", "mul.wide", "mad.lo", "mad.hi", "mad.wide")
def multiply(site: Site) -> Step:
    base, how = site.name.split(".")
    site.modifiers = (how, *site.modifiers)
    if saturates := "sat" in site.modifiers:
        site.modifiers = tuple(one for one in site.modifiers if one != "sat")
        if how != "hi" or site.modifiers[-1] != "s32":
            raise site.refuse(".sat")
    kind, result, product = _product(site)
    target, a, b = site.target(0, result), site.row(1, kind), site.row(2, kind)
    if base == "mul":
        return computing(target, product, a, b)
    c = site.row(3, result)
    if saturates:
        return computing(target, lambda a, b, c: _saturated(np.add)(product(a, b), c), a, b, c)
    return computing(target, lambda a, b, c: product(a, b) + c, a, b, c)


@opcode("mul24", "mad24")
def multiply_24(site: Site) -> Step:
    kind, how = site.typed("u32 s32", "lo")
    if "lo" not in how:
        raise site.refuse()
    shift = KINDS[kind](8)

    def low(x: Array) -> Array:
        return x << shift >> shift

    rows = [site.row(number, kind) for number in range(1, len(site.operands))]
    return computing(site.target(0, kind), lambda a, b, *c: sum(c, low(a) * low(b)), *rows)


@opcode("sad")
def absolute_difference(site: Site) -> Step:
    return _whole(site, lambda a, b, c: c + np.where(a < b, b - a, a - b))


def _quotient(a: Array, b: Array) -> Array:
    """Rounded towards zero. PTX leaves a division by zero open; GPUs give all ones."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        found = a // safe
    else:
        unsigned = a.dtype.str.replace("i", "u")
        size = np.abs(a).view(unsigned) // np.abs(safe).view(unsigned)
        found = np.where((a < 0) != (b < 0), -size.view(a.dtype), size.view(a.dtype))
    return np.where(b == 0, ~b.dtype.type(0), found)


@opcode(*(f"{name}.{kind}" for name in ("div", "rem") for kind in WHOLE.split()))
def divide(site: Site) -> Step:
    base, _, kind = site.name.partition(".")
    site.modifiers = (kind,)
    if base == "div":
        return _whole(site, _quotient)
    return _whole(site, lambda a, b: np.where(b == 0, a, a - _quotient(a, b) * b))


@opcode(*(f"{name}.{kind}" for name in ("min", "max") for kind in f"{WHOLE} {_PAIRS} relu.s32 relu.s16x2".split()))
def extremes(site: Site) -> Step:
    base, *how, kind = site.name.split(".")
    site.modifiers = (kind,)
    function = np.minimum if base == "min" else np.maximum
    return _whole(site, (lambda a, b: np.maximum(function(a, b), 0)) if how else function)


@opcode(*(f"{name}.s{bits}" for name in ("abs", "neg") for bits in (16, 32, 64)))
def negate(site: Site) -> Step:
    base, kind = site.name.split(".")
    site.modifiers = (kind,)
    return _whole(site, np.abs if base == "abs" else np.negative)


# --- logic ---------------------------------------------------------------------------------------


@opcode("and", "or", "xor")
def logic(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} pred")
    functions: Mapping[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    if kind == "pred":
        target, a, b = site.target(0, kind), site.predicate(1), site.predicate(2)
        function = functions[site.name]
        return lambda g: g.put(target, function(a(g), b(g)))
    return computing(site.target(0, kind), functions[site.name], site.row(1, kind), site.row(2, kind))


@opcode("not", "cnot")
def invert(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} pred")
    function = np.invert if site.name == "not" else lambda a: a == 0
    if kind == "pred":
        target, a = site.target(0, kind), site.predicate(1)
        return lambda g: g.put(target, ~a(g))
    return computing(site.target(0, kind), function, site.row(1, kind))


@opcode("lop3")
def lookup(site: Site) -> Step:
    site.known("b32")
    if len(site.operands) != 5:
        raise site.refuse("a predicate")
    table = site.integer(4)
    terms = [index for index in range(8) if table >> index & 1]

    def found(a: Array, b: Array, c: Array) -> Array:
        total = np.zeros_like(a)
        for index in terms:
            total |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return total

    return computing(site.target(0, "b32"), found, *(site.row(number, "b32") for number in (1, 2, 3)))


@opcode("shl", "shr")
def shift(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} {WHOLE}")
    size, dtype = bits_of(kind), KINDS[kind]
    most = np.uint32(size - 1)

    def left(a: Array, count: Array) -> Array:
        return np.where(count > most, dtype(0), a << np.minimum(count, most).astype(dtype))

    def right(a: Array, count: Array) -> Array:
        found = a >> np.minimum(count, most).astype(dtype)
        return found if dtype(0).dtype.kind == "i" else np.where(count > most, dtype(0), found)

    return computing(site.target(0, kind), left if site.name == "shl" else right, site.row(1, kind), site.row(2, "u32"))


@opcode("shf")
def funnel(site: Site) -> Step:
    how = site.known("l", "r", "clamp", "wrap", "b32")
    left, wraps = "l" in how, "wrap" in how
    s32 = np.uint64(32)

    def found(low: Array, high: Array, count: Array) -> Array:
        both = high.astype(np.uint64) << s32 | low
        by = (count & np.uint32(31) if wraps else np.minimum(count, np.uint32(32))).astype(np.uint64)
        return (both << by >> s32 if left else both >> by).astype(np.uint32)

    def clamped(low: Array, high: Array, count: Array) -> Array:
        return np.where(count >= 32, low if left else high, found(low, high, np.minimum(count, np.uint32(31))))

    rows = [site.row(number, "u32") for number in (1, 2, 3)]
    return computing(site.target(0, "u32"), found if wraps else clamped, *rows)


@opcode("prmt")
def permute(site: Site) -> Step:
    known = ("b32", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    how = site.known(*known) - {"b32"}
    if how:
        raise site.refuse()

    def found(a: Array, b: Array, chosen: Array) -> Array:
        taken = np.stack([a, b], axis=-1).view(np.uint8)
        result = np.zeros_like(a)
        for place in range(4):
            nibble = chosen >> np.uint32(4 * place) & np.uint32(15)
            byte = np.take_along_axis(taken, (nibble & np.uint32(7)).astype(np.int64)[:, None], axis=1)[:, 0]
            byte = np.where(nibble & np.uint32(8), np.where(byte & 0x80, np.uint8(255), np.uint8(0)), byte)
            result |= byte.astype(np.uint32) << np.uint32(8 * place)
        return result

    return computing(site.target(0, "b32"), found, *(site.row(number, "b32") for number in (1, 2, 3)))


# --- bits ----------------------------------------------------------------------------------------


@opcode("bfe")
def extract(site: Site) -> Step:
    kind, _ = site.typed("u32 s32 u64 s64")
    size, dtype, signed = bits_of(kind), KINDS[kind], kind.startswith("s")
    unsigned = np.uint64

    def found(a: Array, place: Array, count: Array) -> Array:
        place, count = (x & np.uint32(255) for x in (place, count))
        wide = a.astype(np.int64).view(unsigned) if signed else a.astype(unsigned)
        moved = np.where(place > size - 1, unsigned(0), wide >> np.minimum(place, np.uint32(size - 1)).astype(unsigned))
        if signed:  # bits beyond the number are its sign
            sign = np.where(a < 0, ~unsigned(0), unsigned(0))
            moved = (wide.view(np.int64) >> np.minimum(place, np.uint32(63)).astype(np.int64)).view(unsigned)
            moved = np.where(place > size - 1, sign, moved)
        kept = np.minimum(count, np.uint32(64))
        up = (np.uint32(64) - np.clip(kept, 1, 64)).astype(unsigned)
        moved = moved << up
        cut = (moved.view(np.int64) >> up.astype(np.int64)).view(unsigned) if signed else moved >> up
        return np.where(count == 0, unsigned(0), cut).astype(dtype)

    return computing(site.target(0, kind), found, site.row(1, kind), site.row(2, "u32"), site.row(3, "u32"))


@opcode("bfi")
def insert(site: Site) -> Step:
    kind, _ = site.typed("b32 b64")
    size, dtype = bits_of(kind), KINDS[kind]

    def found(a: Array, b: Array, place: Array, count: Array) -> Array:
        place, count = (np.minimum(x & np.uint32(255), np.uint32(size)) for x in (place, count))
        ones = np.where(
            count >= size, ~dtype(0), (dtype(1) << np.minimum(count, np.uint32(size - 1)).astype(dtype)) - dtype(1)
        )
        by = np.minimum(place, np.uint32(size - 1)).astype(dtype)
        mask = np.where(place >= size, dtype(0), ones << by)
        return (b & ~mask) | (a << by & mask)

    rows = [site.row(1, kind), site.row(2, kind), site.row(3, "u32"), site.row(4, "u32")]
    return computing(site.target(0, kind), found, *rows)


@opcode("bmsk")
def mask(site: Site) -> Step:
    how = site.known("clamp", "wrap", "b32")

    def found(place: Array, count: Array) -> Array:
        if "wrap" in how:
            place, count = place & np.uint32(31), count & np.uint32(31)
        place, count = (np.minimum(x, np.uint32(32)).astype(np.uint64) for x in (place, count))
        one = np.uint64(1)
        return (((one << count) - one) << place).astype(np.uint32)

    return computing(site.target(0, "b32"), found, site.row(1, "u32"), site.row(2, "u32"))


def bit_length(a: Array) -> Array:
    """How many bits unsigned numbers have up to their highest 1."""
    found, rest = np.zeros(a.shape, np.uint32), a.astype(np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        is_more = rest >> np.uint64(step) != 0
        found += np.where(is_more, np.uint32(step), np.uint32(0))
        rest = np.where(is_more, rest >> np.uint64(step), rest)
    return found + (rest != 0)


@opcode("popc", "clz", "brev")
def counted(site: Site) -> Step:
    kind, _ = site.typed("b32 b64")
    size = bits_of(kind)
    if site.name == "brev":
        table = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)

        def reverse(a: Array) -> Array:
            return (
                table[np.ascontiguousarray(a).view(np.uint8).reshape(-1, size // 8)[:, ::-1]].copy().view(a.dtype)[:, 0]
            )

        return computing(site.target(0, kind), reverse, site.row(1, kind))
    ones = np.array([byte.bit_count() for byte in range(256)], np.uint32)

    def count(a: Array) -> Array:
        if site.name == "clz":
            return np.uint32(size) - bit_length(a)
        return ones[np.ascontiguousarray(a).view(np.uint8).reshape(-1, size // 8)].sum(1, dtype=np.uint32)

    return computing(site.target(0, "u32"), count, site.row(1, kind))


@opcode("bfind")
def find_bit(site: Site) -> Step:
    kind, how = site.typed("u32 s32 u64 s64", "shiftamt")
    size, unsigned = bits_of(kind), KINDS[f"u{bits_of(kind)}"]

    def found(a: Array) -> Array:
        value = (np.where(a < 0, ~a, a) if kind.startswith("s") else a).astype(unsigned)
        place = bit_length(value) - np.uint32(1)
        return np.where(value == 0, place, np.uint32(size - 1) - place) if "shiftamt" in how else place

    return computing(site.target(0, "u32"), found, site.row(1, kind))


@opcode("fns")
def nth_bit(site: Site) -> Step:
    site.known("b32")

    def one(bits: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if bits >> base & 1 else 0xFFFF_FFFF
        places = range(base, 32) if offset > 0 else range(base, -1, -1)
        set_ = [place for place in places if bits >> place & 1]
        return set_[abs(offset) - 1] if abs(offset) <= len(set_) else 0xFFFF_FFFF

    def found(bits: Array, base: Array, offset: Array) -> Array:
        each = zip(bits.tolist(), base.tolist(), offset.tolist(), strict=True)
        return np.array([one(b, p & 31, n) for b, p, n in each], np.uint32)

    return computing(site.target(0, "b32"), found, site.row(1, "b32"), site.row(2, "u32"), site.row(3, "s32"))


# --- moves and choices ---------------------------------------------------------------------------


@opcode("mov")
def move(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} {WHOLE} f32 f64 pred b128")
    target, source = site.operands
    if target.startswith("{") or source.startswith("{"):
        return _split_or_join(site, kind)
    if kind == "pred":
        row, value = site.target(0, kind), site.predicate(1)
        return lambda g: g.put(row, value(g))
    row, given = site.target(0, kind), site.row(1, kind)
    return lambda g: g.put(row, given[g.s])


def _split_or_join(site: Site, kind: str) -> Step:
    targets, sources = list_of(site.operands[0]), list_of(site.operands[1])
    parts = max(len(targets), len(sources))
    if min(len(targets), len(sources)) != 1 or bits_of(kind) % parts or kind == "b128":
        raise site.refuse()
    small, dtype = f"b{bits_of(kind) // parts}", KINDS[kind]
    step = dtype(bits_of(small))
    if len(targets) == 1:
        row, given = site.target(0, kind), [site.row(one, small) for one in sources]

        def join(g: Group) -> None:
            value = given[-1][g.s].astype(dtype)
            for one in reversed(given[:-1]):
                value = value << step | one[g.s]
            g.put(row, value)

        return join
    rows, whole = [site.target(one, small) for one in targets], site.row(1, kind)

    def split(g: Group) -> None:
        value = whole[g.s]
        parts = [(value >> dtype(number) * step).astype(KINDS[small]) for number in range(len(rows))]
        for row, part in zip(rows, parts, strict=True):
            g.put(row, part)

    return split


@opcode("selp")
def select(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} {WHOLE} f32 f64")
    target, a, b, which = site.target(0, kind), site.row(1, kind), site.row(2, kind), site.predicate(3)
    return lambda g: g.put(target, np.where(which(g), a[g.s], b[g.s]))


@opcode("slct")
def select_by_sign(site: Site) -> Step:
    *_, kind, by = site.modifiers
    site.known("ftz", kind, by)
    if kind not in SIZES or by not in ("s32", "f32"):
        raise site.refuse()

    def found(a: Array, b: Array, c: Array) -> Array:
        return np.where(c >= 0 if by == "s32" else decoded(c, "f32") >= 0, a, b)

    return computing(site.target(0, kind), found, site.row(1, kind), site.row(2, kind), site.row(3, by))


# --- comparisons ---------------------------------------------------------------------------------

_FLOATS = "f16 bf16 f32 f64"
_COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def _is_nan(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


_ORDERED: Mapping[str, Callable[[Array, Array], Array]] = {
    **{name: function for name, function in _COMPARE.items() if name != "ne"},
    "ne": lambda a, b: (a != b) & ~_is_nan(a, b),
    "equ": lambda a, b: (a == b) | _is_nan(a, b),
    "neu": lambda a, b: (a != b) | _is_nan(a, b),
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~_is_nan(a, b),
    "nan": _is_nan,
}


def comparison(site: Site, kind: str, how: str, flushes: bool) -> Callable[[Array, Array], Array]:
    """Compare numbers of a type."""
    half = kind.removesuffix("x2")
    table = _ORDERED if half in _FLOATS.split() else _COMPARE
    if how not in table:
        raise site.refuse(f".{how}")
    function = table[how]
    if half not in _FLOATS.split():
        return function

    def compare(a: Array, b: Array) -> Array:
        if flushes and half == "f32":
            a, b = flush32(a), flush32(b)
        return function(decoded(a, half), decoded(b, half))

    return compare


@opcode("setp")
def compare(site: Site) -> Step:
    kinds = f"{_BITS} {WHOLE} {_FLOATS} f16x2 bf16x2"
    how = site.modifiers[:1]
    site.modifiers = site.modifiers[1:]
    kind, others = site.typed(kinds, "and", "or", "xor", "ftz")
    test = comparison(site, kind, "".join(how), "ftz" in others)
    joins: list[str] = [one for one in ("and", "or", "xor") if one in others]
    first, second = site.two(0)
    p, a, b = site.target(first, "pred"), site.row(1, kind), site.row(2, kind)
    q = None if second == "_" else site.target(second, "pred")
    if kind.endswith("x2"):
        return _compare_halves(site, test, p, q, a, b, joins)
    if not joins:
        if q is None:
            return lambda g: g.put(p, test(a[g.s], b[g.s]))
        joins = [""]
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "": lambda x, _: x}[joins[0]]
    other = site.predicate(3) if joins[0] else (lambda g: True)

    def step(g: Group) -> None:
        found, given = test(a[g.s], b[g.s]), other(g)
        g.put(p, join(found, given))
        if q is not None:
            g.put(q, join(~found, given))

    return step


def _compare_halves(
    site: Site,
    test: Callable[[Array, Array], Array],
    p: Array,
    q: Array | None,
    a: Array,
    b: Array,
    joins: Sequence[str],
) -> Step:
    if joins or q is None:
        raise site.refuse()
    low, high = np.uint32(0xFFFF), np.uint32(16)

    def step(g: Group) -> None:
        x, y = a[g.s], b[g.s]
        lower, upper = test(x & low, y & low), test(x >> high, y >> high)
        g.put(p, lower)
        g.put(q, upper)

    return step


@opcode("set")
def compare_to_number(site: Site) -> Step:
    how, *others, result, kind = site.modifiers
    if kind not in f"{_BITS} {WHOLE} {_FLOATS}".split() or result not in ("u32", "s32", "f32", "u16", "s16"):
        raise site.refuse()
    if set(others) - {"ftz"}:
        raise site.refuse()
    test, target = comparison(site, kind, how, "ftz" in others), site.target(0, result)
    true = KINDS[result](0x3F80_0000) if result == "f32" else ~KINDS[result](0)
    none = KINDS[result](0)
    return computing(target, lambda a, b: np.where(test(a, b), true, none), site.row(1, kind), site.row(2, kind))


@opcode("dp4a", "dp2a")
def dot_product(site: Site) -> Step:
    known = site.modifiers
    site.known("u32", "s32", "lo", "hi")
    kinds = [one for one in known if one in ("u32", "s32")]
    if len(kinds) != 2:
        raise site.refuse()
    signs = [kind == "s32" for kind in kinds]
    unit = 2 if site.name == "dp2a" else 1
    types = [(np.int8, np.int16) if sign else (np.uint8, np.uint16) for sign in signs]

    def found(a: Array, b: Array, c: Array) -> Array:
        x = np.ascontiguousarray(a).view(types[0][unit - 1]).reshape(len(a), -1).astype(np.int64)
        y = np.ascontiguousarray(b).view(types[1][0]).reshape(len(b), -1).astype(np.int64)
        if unit == 2:
            y = y[:, 2:] if "hi" in known else y[:, :2]
        return ((x * y).sum(1) + c).astype(np.int64).astype(np.int32)

    signed = "s32" if any(signs) else "u32"
    return computing(site.target(0, "s32"), found, site.row(1, "u32"), site.row(2, "u32"), site.row(3, signed))
