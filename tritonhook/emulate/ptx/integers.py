"""Steps of integer arithmetic, logic, predicates, moves and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, words
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.numbers import decode as decoded
from tritonhook.emulate.numbers import flush, flush32, halves_of
from tritonhook.emulate.opcodes import only
from tritonhook.emulate.ptx.kernel import SIZES, list_of
from tritonhook.emulate.ptx.site import KINDS, Array, Site, computing, opcode

WHOLE = "u16 s16 u32 s32 u64 s64"
_PAIRS = "u16x2 s16x2"
_BITS = "b16 b32 b64"


def bits_of(kind: str) -> int:
    """Return the bits of a type."""
    return 8 * SIZES[kind]


_OF_ONE_TYPE: Mapping[str, tuple[str, Any, int]] = {  # types, function, operands
    "add": (f"{WHOLE} {_PAIRS}", np.add, 3),
    "sub": (f"{WHOLE} {_PAIRS}", np.subtract, 3),
    "add.sat": ("s32", words.saturated(np.add), 3),
    "sub.sat": ("s32", words.saturated(np.subtract), 3),
    "div": (WHOLE, words.quotient, 3),
    "rem": (WHOLE, words.remainder, 3),
    "min": (f"{WHOLE} {_PAIRS}", np.minimum, 3),
    "max": (f"{WHOLE} {_PAIRS}", np.maximum, 3),
    "min.relu": ("s32 s16x2", lambda a, b: np.maximum(np.minimum(a, b), 0), 3),
    "max.relu": ("s32 s16x2", lambda a, b: np.maximum(np.maximum(a, b), 0), 3),
    "abs": ("s16 s32 s64", np.abs, 2),
    "neg": ("s16 s32 s64", np.negative, 2),
    "sad": (WHOLE, words.distance, 4),
}


@opcode(*(f"{name}.{kind}" for name, (kinds, *_) in _OF_ONE_TYPE.items() for kind in kinds.split()))
def of_one_type(site: Site) -> Step:
    name, _, kind = site.name.rpartition(".")
    _, function, operands = _OF_ONE_TYPE[name]
    site.known()
    site.count(operands)
    if kind.endswith("x2"):
        function = words.in_halves(function, np.int16 if kind.startswith("s") else np.uint16)
    return site.compute(function, kind, *[kind] * (operands - 1))


@opcode("add.cc", "sub.cc", "addc", "subc", "mad.lo.cc", "mad.hi.cc", "madc.lo", "madc.hi")
def with_carry(site: Site) -> Step:
    """Make the step of a sum or product with carry, for parts of long integers. As in machine code, a subtraction that
    borrows clears the carry bit. A PTX kernel sees this if addc follows sub.cc."""
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
            product = words.high(*given[:2]) if "hi" in parts else given[0] * given[1]
            given = [product, given[2]]
        a, b = (one.astype(unsigned) for one in given)
        kept = (carry[g.s] ^ minus).astype(unsigned) if reads else unsigned(0)
        if minus:
            found = a - b - kept
            out = (a < b) | ((a == b) & (kept != 0))
        else:
            part = a + b
            found = part + kept
            out = (part < a) | (found < part)
        g.put(target, found.view(target.dtype))
        if writes:
            g.put(carry, out ^ minus)

    return step


def _product(site: Site) -> tuple[str, str, Callable[[Array, Array], Array]]:
    """Return the type of the factors, the type of the result, and the product function of mul or mad."""
    kind, how = site.typed(WHOLE, "lo", "hi", "wide")
    if "wide" in how:
        result = f"{kind[0]}{2 * bits_of(kind)}"
        wide = KINDS[result]
        return kind, result, lambda a, b: a.astype(wide) * b.astype(wide)
    return kind, kind, words.high if "hi" in how else np.multiply


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
        return computing(target, lambda a, b, c: words.saturated(np.add)(product(a, b), c), a, b, c)
    return computing(target, lambda a, b, c: product(a, b) + c, a, b, c)


@opcode("mul24", "mad24")
def multiply_24(site: Site) -> Step:
    kind, how = site.typed("u32 s32", "lo", "hi", "sat")
    if len(how & {"lo", "hi"}) != 1 or ("sat" in how and (kind, site.name) != ("s32", "mad24")):
        raise site.refuse()
    shift, upper = KINDS[kind](8), np.int64(16 if "hi" in how else 0)
    add = words.saturated(np.add) if "sat" in how else np.add

    def found(a: Array, b: Array, *c: Array) -> Array:
        x, y = ((one << shift >> shift).astype(np.int64) for one in (a, b))
        return reduce(add, c, (x * y >> upper).astype(KINDS[kind]))

    return site.compute(found, kind, *[kind] * (len(site.operands) - 1))


# --- logic ---------------------------------------------------------------------------------------

_LOGIC: Mapping[str, Any] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "cnot": lambda a: a == 0,
}


@opcode(*_LOGIC)
def logic(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} pred")
    function, sources = _LOGIC[site.name], range(1, len(site.operands))
    if kind != "pred":
        return site.compute(function, kind, *[kind for _ in sources])
    target, given = site.target(0, kind), [site.predicate(number) for number in sources]
    return lambda g: g.put(target, function(*(read(g) for read in given)))


@opcode("lop3")
def lookup(site: Site) -> Step:
    """Make the step of lop3. With .and, .or or .xor, a second target is set: (result != 0) combined with a
    predicate."""
    how = site.known("b32", "and", "or", "xor")
    site.count(6 if how - {"b32"} else 5)
    function, (first, second) = words.looked_up(site.integer(4)), site.two(0)
    rows, target = [site.row(number, "b32") for number in (1, 2, 3)], site.target(first, "b32")
    if how == {"b32"}:
        return computing(target, function, *rows)
    flag, other = site.target(second, "pred"), site.predicate(5)
    join = only(site, (test for name, test in comparisons.JOINS.items() if name in how))

    def step(g: Group) -> None:
        found = function(*(row[g.s] for row in rows))
        joined = join(found != 0, other(g))
        g.put(target, found)
        g.put(flag, joined)

    return step


@opcode("shl", "shr")
def shift(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} {WHOLE}")
    return site.compute(words.left if site.name == "shl" else words.right, kind, kind, "u32")


@opcode("shf")
def funnel(site: Site) -> Step:
    how = site.known("l", "r", "clamp", "wrap", "b32")
    wraps, s32 = "wrap" in how, np.uint64(32)

    def found(low: Array, high: Array, count: Array) -> Array:
        if "l" in how:
            return (words.shifted(low, high, count, wraps) >> s32).astype(np.uint32)
        return words.shifted(low, high, count, wraps, np.uint64).astype(np.uint32)

    return site.compute(found, "u32", "u32", "u32", "u32")


@opcode("prmt")
def permute(site: Site) -> Step:
    modes = [*site.known("b32", *words.PERMUTATIONS) - {"b32"}, ""]
    return site.compute(partial(words.permuted, mode=modes[0]), "b32", "b32", "b32", "b32")


@opcode("szext")
def extend_sign(site: Site) -> Step:
    kind, how = site.typed("u32 s32", "wrap", "clamp")
    function = partial(words.extended, wraps="wrap" in how, signed=kind == "s32")
    return site.compute(function, "b32", "b32", "u32")


# --- bits ----------------------------------------------------------------------------------------


def _bits_of_field(kind: str) -> np.uint32:
    """Return the mask to apply to the position and the length of a bit field. PTX restricts both to 0 to 255. For
    larger numbers, an H100 uses the low 8 bits for 32-bit fields, and all bits for 64-bit ones (measured, ptxas
    12.8.93)."""
    return np.uint32(0xFF if kind.endswith("32") else 0xFFFF_FFFF)


@opcode("bfe")
def extract(site: Site) -> Step:
    """Make the step of bfe. Bits of the field beyond the number are copies of its sign, or zeros if it is unsigned."""
    kind, _ = site.typed("u32 s32 u64 s64")
    wide, bits = np.int64 if kind.startswith("s") else np.uint64, _bits_of_field(kind)

    def found(a: Array, place: Array, count: Array) -> Array:
        place, count = place & bits, count & bits
        up = np.uint32(64) - np.clip(count, np.uint32(1), np.uint32(64))
        cut = words.right(words.left(words.right(a.astype(wide), place), up), up)
        return np.where(count == 0, wide(0), cut).astype(KINDS[kind])

    return site.compute(found, kind, kind, "u32", "u32")


@opcode("bfi")
def insert(site: Site) -> Step:
    kind, _ = site.typed("b32 b64")
    bits = _bits_of_field(kind)

    def found(a: Array, b: Array, place: Array, count: Array) -> Array:
        place, count = place & bits, count & bits
        mask = words.left(~words.left(np.full_like(a, ~KINDS[kind](0)), count), place)
        return (b & ~mask) | (words.left(a, place) & mask)

    return site.compute(found, kind, kind, kind, "u32", "u32")


@opcode("bmsk")
def mask(site: Site) -> Step:
    wraps = "wrap" in site.known("clamp", "wrap", "b32")
    return site.compute(partial(words.bit_mask, wraps=wraps), "b32", "u32", "u32")


@opcode("popc", "clz", "brev")
def counted(site: Site) -> Step:
    kind, _ = site.typed("b32 b64")
    if site.name == "brev":
        return site.compute(words.reversed_bits, kind, kind)
    size = np.uint32(bits_of(kind))
    count = words.population if site.name == "popc" else lambda a: size - words.bit_length(a)
    return site.compute(count, "u32", kind)


@opcode("bfind")
def find_bit(site: Site) -> Step:
    kind, how = site.typed("u32 s32 u64 s64", "shiftamt")
    return site.compute(partial(words.leading, from_top="shiftamt" in how), "u32", kind)


@opcode("fns")
def nth_bit(site: Site) -> Step:
    site.known("b32")

    def one(bits: int, base: int, offset: int) -> int:
        if base > 31 or offset == 0:
            return base if base < 32 and bits >> base & 1 else 0xFFFF_FFFF
        places = range(base, 32) if offset > 0 else range(base, -1, -1)
        set_ = [place for place in places if bits >> place & 1]
        return set_[abs(offset) - 1] if abs(offset) <= len(set_) else 0xFFFF_FFFF

    def found(bits: Array, base: Array, offset: Array) -> Array:
        each = zip(bits.tolist(), base.tolist(), offset.tolist(), strict=True)
        return np.array([one(*given) for given in each], np.uint32)

    return site.compute(found, "b32", "b32", "u32", "s32")


# --- moves and choices ---------------------------------------------------------------------------


@opcode("mov")
def move(site: Site) -> Step:
    kind, _ = site.typed(f"{_BITS} {WHOLE} f32 f64 pred b128")
    site.count(2)
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
    flushes = "ftz" in site.known("ftz", kind, by)
    if kind not in SIZES or by not in ("s32", "f32") or (flushes and by == "s32"):
        raise site.refuse()

    def found(a: Array, b: Array, c: Array) -> Array:
        if by == "f32":
            c = decoded(flush32(c) if flushes else c, by)
        return np.where(c >= 0, a, b)

    return site.compute(found, kind, kind, kind, by)


# --- comparisons ---------------------------------------------------------------------------------

_FLOATS = ("f16", "bf16", "f32", "f64")
_HALVES = ("f16x2", "bf16x2")
_FTZ = ("f16", "f16x2", "f32")
_TRUE = {"f32": 0x3F80_0000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00_3C00, "bf16x2": 0x3F80_3F80}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def comparison(site: Site, kind: str, how: str, flushes: bool) -> comparisons.Test:
    """Return the function that compares numbers of a type. how: e.g. "lt". flushes: subnormal numbers become zeros."""
    half = kind.removesuffix("x2")
    if half not in _FLOATS:
        how = _UNSIGNED.get(how, how)
    table = comparisons.FLOATS if half in _FLOATS else comparisons.WHOLE
    if how not in table:
        raise site.refuse(f".{how}")
    function = table[how]
    if half not in _FLOATS:
        return function

    def compare(a: Array, b: Array) -> Array:
        if flushes:
            a, b = flush(a, half), flush(b, half)
        return function(comparisons.shown(a, half), comparisons.shown(b, half))

    return compare


@opcode("setp")
def compare(site: Site) -> Step:
    how, site.modifiers = "".join(site.modifiers[:1]), site.modifiers[1:]
    kind, others = site.typed(" ".join((_BITS, WHOLE, *_FLOATS, *_HALVES)), *comparisons.JOINS, "ftz")
    test = comparison(site, kind, how, "ftz" in others)
    join = next((one for name, one in comparisons.JOINS.items() if name in others), None)
    first, second = site.two(0)
    p, a, b = site.target(first, "pred"), site.row(1, kind), site.row(2, kind)
    q = None if second == "_" else site.target(second, "pred")
    if kind in _HALVES:
        if join is not None or q is None:
            raise site.refuse()

        def halves(g: Group) -> None:
            for target, x, y in zip((p, q), halves_of(a[g.s]), halves_of(b[g.s]), strict=True):
                g.put(target, test(x, y))

        return halves
    if join is None and q is None:
        return lambda g: g.put(p, test(a[g.s], b[g.s]))
    other = None if join is None else site.predicate(3)

    def step(g: Group) -> None:
        found = test(a[g.s], b[g.s])
        given = None if other is None else other(g).copy()
        for target, one in ((p, found), (q, ~found)):
            if target is not None:
                g.put(target, one if join is None else join(one, given))

    return step


@opcode("set")
def compare_to_number(site: Site) -> Step:
    how, *others, result, kind = site.modifiers
    joins = [test for name, test in comparisons.JOINS.items() if name in others]
    if kind not in (*f"{_BITS} {WHOLE}".split(), *_FLOATS, *_HALVES) or set(others) - {"ftz", *comparisons.JOINS}:
        raise site.refuse()
    if result not in (*_TRUE, "u32", "s32", "u16", "s16") or len(joins) > 1 or ("ftz" in others and kind not in _FTZ):
        raise site.refuse()
    test, whole, other = comparison(site, kind, how, "ftz" in others), KINDS[result], None
    true = whole(_TRUE[result]) if result in _TRUE else ~whole(0)
    target, a, b = site.target(0, result), site.row(1, kind), site.row(2, kind)
    if joins:
        other = site.predicate(3)

    def one(x: Array, y: Array, given: Array | None) -> Array:
        return test(x, y) if given is None else joins[0](test(x, y), given)

    def step(g: Group) -> None:
        x, y, given = a[g.s], b[g.s], None if other is None else other(g)
        if kind in _HALVES:
            low, high = (one(*both, given) for both in zip(halves_of(x), halves_of(y), strict=True))
            found = np.where(low, np.uint32(0xFFFF), np.uint32(0)) | np.where(
                high, np.uint32(0xFFFF_0000), np.uint32(0)
            )
            g.put(target, (found & true).astype(whole))
        else:
            g.put(target, np.where(one(x, y, given), true, whole(0)))

    return step


@opcode("dp4a", "dp2a")
def dot_product(site: Site) -> Step:
    kinds = [one for one in site.modifiers if one in ("u32", "s32")]
    how = site.known("u32", "s32", *(("lo", "hi") if site.name == "dp2a" else ()))
    if len(kinds) != 2 or len(how & {"lo", "hi"}) != (site.name == "dp2a"):
        raise site.refuse()
    octet, half = ({"u32": np.uint8, "s32": np.int8}, {"u32": np.uint16, "s32": np.int16})
    pair = ((octet if site.name == "dp4a" else half)[kinds[0]], octet[kinds[1]])
    function = partial(words.dot, kinds=pair, first=2 if "hi" in how else 0)
    return site.compute(function, "b32", "u32", "u32", "s32" if "s32" in kinds else "u32")
