"""Integer arithmetic of 8 to 64 bits on arrays, for PTX and machine code. A word: 32 bits, as uint32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray: NumPy is not installed when types are checked
WORD = np.uint64(0xFFFF_FFFF)
# Operations that combine two numbers in any order: in reductions between lanes, and in atomics.
REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_TWICE = {
    np.dtype(a): b
    for a, b in ((np.uint16, np.uint32), (np.int16, np.int32), (np.uint32, np.uint64), (np.int32, np.int64))
}


def octets(words: Array, kind: type = np.uint8) -> Array:
    """Return the bytes of each word, or its parts of another type `kind`: shape (words, parts), lowest part first."""
    return np.ascontiguousarray(words).view(kind).reshape(len(words), -1)


def in_halves(function: Callable[..., Array], kind: type) -> Callable[..., Array]:
    """Make a function of words from a function of numbers of type `kind`. For a 16-bit type, it computes both halves of
    a word."""

    def apply(*words: Array) -> Array:
        found = function(*(np.ascontiguousarray(word).view(kind) for word in words))
        return np.ascontiguousarray(found.astype(kind, copy=False)).view(np.uint32)

    return apply


def joined(low: Array, high: Array) -> Array:
    """Join two words to 64 bits."""
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


# --- arithmetic ----------------------------------------------------------------------------------


def saturated(function: Callable[..., Array]) -> Callable[..., Array]:
    """Make an operation on int32 clamp its result instead of wrapping (.sat)."""

    def apply(a: Array, b: Array) -> Array:
        return np.clip(function(a.astype(np.int64), b.astype(np.int64)), -(1 << 31), (1 << 31) - 1).astype(np.int32)

    return apply


def high(a: Array, b: Array) -> Array:
    """Compute the upper half of the product of two integers of 16, 32 or 64 bits."""
    if a.dtype.itemsize < 8:
        wide = _TWICE[a.dtype]
        return (a.astype(wide) * b.astype(wide) >> wide(8 * a.dtype.itemsize)).astype(a.dtype)
    shift = np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, upper = x & WORD, x >> shift
    below, above = y & WORD, y >> shift
    middle = (low * below >> shift) + (upper * below & WORD) + low * above
    found = upper * above + (upper * below >> shift) + (middle >> shift)
    if a.dtype == np.int64:
        found = found - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return found.view(a.dtype)


def quotient(a: Array, b: Array) -> Array:
    """Divide integers, rounding towards zero. PTX leaves the result of a division by zero open; GPUs give all ones.
    NumPy warns of it: see numbers.py."""
    x, y = (np.abs(one).view(one.dtype.str.replace("i", "u")) for one in (a, b))
    size = (x // y).view(a.dtype)
    found = np.where((a < 0) != (b < 0), -size, size)
    return np.where(b == 0, ~b.dtype.type(0), found)


def remainder(a: Array, b: Array) -> Array:
    """Compute the remainder of a division that rounds towards zero. A division by zero gives all ones. (Measured on a
    GPU; ptxas writes similar code for sm_80 to sm_120.)"""
    return np.where(b == 0, ~b.dtype.type(0), a - quotient(a, b) * b)


def extended(value: Array, width: Array, wraps: bool, signed: bool) -> Array:
    """Extend the lowest `width` bits of words to 32 bits, with their sign (`signed`) or with zeros. wraps: use width
    modulo 32; else clamp it to 32."""
    bits = ((width & np.uint32(31)) if wraps else np.minimum(width, np.uint32(32))).astype(np.int64)
    kept = value.astype(np.int64) & ((np.int64(1) << bits) - 1)
    if signed:
        kept = np.where(bits == 0, kept, kept - ((kept >> np.maximum(bits - 1, 0) & 1) << bits))
    return (kept & 0xFFFF_FFFF).astype(np.uint32)


def distance(a: Array, b: Array, c: Array) -> Array:
    """Compute |a - b| + c."""
    return c + np.where(a < b, b - a, a - b)


def dot(a: Array, b: Array, c: Array, kinds: tuple[type, type], first: int = 0) -> Array:
    """Compute c plus the dot product of the parts of words a and b. kinds: types of a's and b's parts, e.g. (np.int16,
    np.int8). first: number of the first part of b to use, because b may have more parts than a."""
    x, y = octets(a, kinds[0]).astype(np.int64), octets(b, kinds[1]).astype(np.int64)
    return ((x * y[:, first : first + x.shape[1]]).sum(1) + c).astype(np.uint32)


def packed(a: Array, b: Array, c: Array | None = None, *, bits: int, signed: bool) -> Array:
    """Pack integers into a word, from the lowest bit on: b, a, then the lower bits of c. a, b: int32, clamped to `bits`
    bits."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    upper, lower = (
        np.clip(one.view(np.int32), low, high).view(np.uint32) & np.uint32((1 << bits) - 1) for one in (a, b)
    )
    found = lower | upper << np.uint32(bits)
    return found if c is None else found | c << np.uint32(2 * bits)


# --- logic and shifts ----------------------------------------------------------------------------

_TABLES: dict[int, Callable[..., Array]] = {
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


def looked_up(table: int) -> Callable[..., Array]:
    """Make LOP3's bitwise function of three words from its 8-bit truth table."""
    return _TABLES.get(table) or summed(table)


def summed(table: int) -> Callable[..., Array]:
    """Make LOP3's function from its truth table as an OR of up to eight ANDs."""

    def function(a: Array, b: Array, c: Array) -> Array:
        found = np.zeros_like(a)
        for index in range(8):
            if table >> index & 1:
                found = found | (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return found

    return function


def left(a: Array, count: Array) -> Array:
    """Compute a << count; zero if count is at least the number of bits."""
    most = np.uint32(8 * a.dtype.itemsize - 1)
    return np.where(count > most, a.dtype.type(0), a << np.minimum(count, most).astype(a.dtype))


def right(a: Array, count: Array) -> Array:
    """Compute a >> count. If count is at least the number of bits: zero, or for signed numbers the sign in all bits."""
    most = np.uint32(8 * a.dtype.itemsize - 1)
    found = a >> np.minimum(count, most).astype(a.dtype)
    return found if a.dtype.kind == "i" else np.where(count > most, a.dtype.type(0), found)


def shifted(low: Array, high: Array, count: Array, wraps: bool, kind: type | None = None, most: int = 32) -> Array:
    """Join two words to 64 bits and shift them: left if `kind` is None, else right as np.uint64 or np.int64. wraps: use
    count modulo `most`, a power of two; else clamp it to `most`."""
    by = (count & np.uint32(most - 1)) if wraps else np.minimum(count, np.uint32(most))
    both = joined(low, high)
    return left(both, by) if kind is None else right(both.view(kind), by).view(np.uint64)


# Modes of prmt (PTX ISA): the selector in the default mode that has the same effect, for each value of the two lowest
# bits of operand c.
PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def permuted(a: Array, b: Array, chosen: Array, mode: str = "") -> Array:
    """Select four bytes of a (bytes 0 to 3) and b (4 to 7), as prmt does. chosen: the selector, 4 bits per result byte.
    Its lower three bits are the number of the byte; if its highest bit is 1, the result is the byte's sign in all bits.
    mode: see PERMUTATIONS; "": default."""
    if mode:
        chosen = np.array(PERMUTATIONS[mode], np.uint32)[chosen & np.uint32(3)]
    both = np.ascontiguousarray(np.stack([a, b], -1)).view(np.uint8)
    if (chosen == chosen[0]).all():
        one = int(chosen[0])
        parts = [_repeated(both[:, one >> at & 7], one >> at & 8) for at in (0, 4, 8, 12)]
    else:
        rows, parts = np.arange(len(both)), []
        for nibble in (chosen >> np.uint32(at) & np.uint32(15) for at in (0, 4, 8, 12)):
            octet = both[rows, nibble & np.uint32(7)]
            parts.append(np.where(nibble & np.uint32(8), _repeated(octet, 8), octet))
    return np.ascontiguousarray(np.stack(parts, -1)).view(np.uint32)[:, 0]


def _repeated(octet: Array, sign: int) -> Array:
    return np.where(octet & 0x80, np.uint8(0xFF), np.uint8(0)) if sign else octet


# --- bits ----------------------------------------------------------------------------------------


def bit_mask(place: Array, count: Array, wraps: bool) -> Array:
    """Make words with `count` ones from bit `place` on. wraps: use both modulo 32; else clamp them to 32."""
    if wraps:
        place, count = place & np.uint32(31), count & np.uint32(31)
    place, count = (np.minimum(one, np.uint32(32)).astype(np.uint64) for one in (place, count))
    return (((np.uint64(1) << count) - np.uint64(1)) << place).astype(np.uint32)


def bit_length(a: Array) -> Array:
    """Return the position of the highest 1 of unsigned numbers, plus 1; 0 for 0."""
    if a.dtype.itemsize < 8:
        return np.frexp(a.astype(np.float64))[1].astype(np.uint32)
    upper, lower = (bit_length(one.astype(np.uint32)) for one in (a >> np.uint64(32), a & WORD))
    return np.where(upper != 0, upper + np.uint32(32), lower)


def leading(a: Array, from_top: bool) -> Array:
    """Return the position of the highest bit that differs from the sign bit (for unsigned numbers: of the highest 1).
    With `from_top`, return the shift that moves this bit to the top. If there is no such bit, return all ones."""
    unsigned = (np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a).astype(f"u{a.dtype.itemsize}")
    place = bit_length(unsigned) - np.uint32(1)
    return np.where(unsigned == 0, place, np.uint32(8 * a.dtype.itemsize - 1) - place) if from_top else place


def population(a: Array) -> Array:
    """Count the bits that are 1."""
    return np.unpackbits(octets(a), axis=1).sum(1, dtype=np.uint32)


def reversed_bits(a: Array) -> Array:
    """Reverse the order of the bits."""
    bits = np.unpackbits(octets(a)[:, ::-1], axis=1, bitorder="little")
    return np.packbits(bits, axis=1, bitorder="big").view(a.dtype)[:, 0]
