"""Floating-point arithmetic with one rounding, as in hardware, on arrays of bit patterns.

Operands and results are bit patterns (`codes` in names): uint32 for formats of at most 32 bits, uint64 for f64
(numbers64.py). `decode` turns them into float64. Intermediate values are float64: exact, or rounded to odd (Boldo and
Melquiond 2008: rounding such a value to at most 51 bits gives the result of a single rounding). `encode` rounds them.
Approximations of the hardware are in mufu.py. NumPy warns of overflow and NaN: callers run under
`np.errstate(all="ignore")`.

Common arguments: name, kind, source, target: a format, e.g. "f16" (see FORMATS). mode: rounding: rn (to nearest, ties
to even), rz (to zero), rm (down), rp (up), rna (to nearest, ties away from zero). ftz: flush subnormal numbers to zero.
unit: clamp the result to [0, 1], NaN to 0 (.sat).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tritonhook.emulate.words import Array as Array
from tritonhook.emulate.words import joined
from tritonhook.errors import NotUnderstood

NAN32 = np.uint32(0x7FFF_FFFF)
SIGN32, ABS32 = np.uint32(0x8000_0000), np.uint32(0x7FFF_FFFF)
_LEAST32 = np.float32(2.0**-126)  # the smallest normal number


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format. mantissa: bits of the fraction. least: exponent of the smallest normal number.
    largest: the largest finite number. nan: bits of the canonical NaN, None if the format has no NaN."""

    name: str
    bits: int
    mantissa: int
    least: int
    largest: float
    nan: int | None
    has_inf: bool = True


FORMATS = {
    one.name: one
    for one in (
        Format("f64", 64, 52, -1022, float(np.finfo(np.float64).max), 0xFFF8_0000_0000_0000),
        Format("f32", 32, 23, -126, float(np.finfo(np.float32).max), 0x7FFF_FFFF),
        Format("tf32", 32, 10, -126, 2.0**127 * (2 - 2.0**-10), 0x7FFF_FFFF),
        Format("f16", 16, 10, -14, 65504.0, 0x7FFF),
        Format("bf16", 16, 7, -126, 2.0**127 * (2 - 2.0**-7), 0x7FFF),
        Format("e5m2", 8, 2, -14, 57344.0, 0x7F),
        Format("e4m3", 8, 3, -6, 448.0, 0x7F, False),
        Format("e3m2", 6, 2, -2, 28.0, None, False),
        Format("e2m3", 6, 3, 0, 7.5, None, False),
        Format("e2m1", 4, 1, 0, 6.0, None, False),
        Format("ue8m0", 8, 0, -127, 2.0**127, 0xFF, False),
    )
}


def decode(bits: Array, name: str) -> Array:
    """Convert bit patterns to float64. Exact. Raises NotUnderstood for an unknown format."""
    if name == "f32":
        return bits.view(np.float32).astype(np.float64)
    if name == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if name == "f64":
        return bits.view(np.float64)
    if name == "tf32":
        return (bits & np.uint32(0xFFFF_E000)).view(np.float32).astype(np.float64)
    if name not in FORMATS:
        raise NotUnderstood(f"numbers of format {name}")
    return _values(name)[bits]


@lru_cache(maxsize=16)
def _values(name: str) -> Array:
    """Return the values of all bit patterns, in their order, of a format of at most 8 bits."""
    one = FORMATS[name]
    codes = np.arange(1 << one.bits)
    if name == "ue8m0":
        return np.where(codes == 0xFF, np.nan, np.ldexp(1.0, codes - 127))
    fraction = codes & (1 << one.mantissa) - 1
    exponent = codes >> one.mantissa & (1 << one.bits - 1 - one.mantissa) - 1
    whole = np.where(exponent > 0, fraction + (1 << one.mantissa), fraction).astype(np.float64)
    size = np.ldexp(whole, np.maximum(exponent, 1) - 1 + one.least - one.mantissa)
    if one.has_inf:
        size = np.where(size > one.largest, np.where(fraction > 0, np.nan, np.inf), size)
    elif one.nan is not None:
        size[(codes & one.nan) == one.nan] = np.nan
    return np.where(codes >> one.bits - 1 == 1, -size, size)


_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": lambda x: np.trunc(x + np.copysign(0.5, x)),
}


def integral(x: Array, mode: str) -> Array:
    """Round float64 to whole numbers."""
    if mode not in _TO_INTEGER:
        raise NotUnderstood(f"rounding .{mode}")
    return _TO_INTEGER[mode](x)


def encode(
    x: Array, name: str, mode: str = "rn", *, ftz: bool = False, finite: bool = False, unit: bool = False,
    relu: bool = False,
) -> Array:  # fmt: skip
    """Round float64 (exact, or rounded to odd) to a format, and return the bit patterns.

    ftz: a subnormal result becomes a zero of its sign. finite: overflow gives the largest number, not infinity
    (.satfinite). relu: clamp negative numbers to 0. Raises NotUnderstood for f64 and unknown formats.
    """
    one = FORMATS.get(name)
    if one is None or name == "f64":
        raise NotUnderstood(f"rounding to {name}")
    if relu:
        x = np.where(x <= 0, 0.0, x)
    if unit:
        x = np.where(x > 0, np.minimum(x, 1.0), 0.0)
    if name == "ue8m0":
        return _encode_scale(x, mode)
    if name == "f32" and mode == "rn" and not finite:
        codes = x.astype(np.float32).view(np.uint32)
    elif name == "f16" and mode == "rn" and not finite:
        codes = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        codes = _pack(_rounded(x, one, mode, finite), one)
    if ftz:
        is_small = _is_tiny(x, one, mode)
        codes = np.where(is_small, np.where(np.signbit(x), np.uint32(1 << one.bits - 1), np.uint32(0)), codes)
    is_nan = np.isnan(x)
    if is_nan.any():
        codes = np.where(is_nan, np.uint32(_pack_largest(one) if one.nan is None else one.nan), codes)
    return codes.astype(np.uint32, copy=False)


def _is_tiny(x: Array, one: Format, mode: str) -> Array:
    """Return True for results that ftz flushes: rounded to the format's precision, but with unlimited exponents, they
    are smaller than its smallest normal number. (Measured on a GPU.)"""
    least = 2.0**one.least
    size = np.abs(x)
    below = least * (1 - 2.0 ** -(one.mantissa + 1))  # the next smaller number, with unlimited exponents
    up = size >= (below + least) / 2 if mode in ("rn", "rna") else _away(x, mode) & (size > below)
    return (size < least) & ~up


def _away(x: Array, mode: str) -> Array:
    """Return True for numbers that a mode (rz, rp, rm) rounds away from zero."""
    return {"rz": np.zeros(x.shape, bool), "rp": ~np.signbit(x), "rm": np.signbit(x)}[mode]


def _encode_scale(x: Array, mode: str) -> Array:
    """Round to ue8m0, a power of two without sign, as cvt does. mode: rz or rp. Values out of range are clamped."""
    fraction, exponent = np.frexp(np.abs(x))
    up = (fraction > 0.5) if mode == "rp" else np.zeros(x.shape, bool)
    codes = np.clip(np.where(x == 0, -127, exponent - 1 + up) + 127, 0, 254)
    return np.where(np.isnan(x), 0xFF, codes).astype(np.uint32)


def _rounded(x: Array, one: Format, mode: str, finite: bool) -> Array:
    """Round to numbers of the format, as float64. Overflow gives the largest number with `finite`, or if the mode
    rounds it towards zero; otherwise it gives infinity."""
    _, exponent = np.frexp(x)
    step = np.maximum(exponent - 1, one.least) - one.mantissa
    found = np.ldexp(integral(np.ldexp(x, -step), mode), step)
    found = np.where(np.isfinite(x), found, x)
    largest = np.copysign(one.largest, x)
    if finite:
        return np.where(np.abs(found) > one.largest, largest, found)
    goes_up = {"rn": True, "rna": True, "rz": False, "rp": ~np.signbit(x), "rm": np.signbit(x)}[mode]
    too_large = np.where(goes_up, np.copysign(np.inf, x), largest)
    return np.where((np.abs(found) > one.largest) & np.isfinite(x), too_large, found)


def _pack(x: Array, one: Format) -> Array:
    """Encode float64 that are numbers of the format."""
    if one.bits == 32:
        return x.astype(np.float32).view(np.uint32)
    if one.name == "f16":
        return x.astype(np.float16).view(np.uint16).astype(np.uint32)
    if one.name == "bf16":
        return x.astype(np.float32).view(np.uint32) >> np.uint32(16)
    half = 1 << one.bits - 1
    size = _values(one.name)[:half]
    size = np.where(np.isnan(size), np.inf, size)
    codes = np.searchsorted(size, np.abs(x)).astype(np.uint32)
    return np.minimum(codes, np.uint32(half - 1)) | np.where(np.signbit(x), np.uint32(half), np.uint32(0))


def _pack_largest(one: Format) -> int:
    return (1 << one.bits - 1) - 1  # formats without NaN: the largest positive number


def convert(bits: Array, source: str, target: str, mode: str = "rn", **how: bool) -> Array:
    """Convert bit patterns to another format of at most 32 bits. how: further arguments of `encode`. The bits of NaN
    are as measured on a GPU."""
    found = encode(decode(bits, source), target, mode, **how)
    if target == "tf32" and source == "f32":
        kept = bits & np.uint32(0xFFFF_E000) if mode == "rna" else np.uint32(0x7FFF_E000)
        found = np.where(
            is_nan(bits, source), kept - np.uint32(0x2000 if mode == "rna" and how.get("finite") else 0), found
        )
    elif source == "bf16" and target == "f32" and not how.get("ftz") and not how.get("unit"):
        found = np.where(is_nan(bits, source), bits.astype(np.uint32) << np.uint32(16), found)
    return found


# --- 32 bits -------------------------------------------------------------------------------------


def flush32(bits: Array) -> Array:
    """Replace subnormal float32 by zeros of their sign."""
    is_small = (bits & np.uint32(0x7F80_0000)) == 0
    return np.where(is_small, bits & SIGN32, bits)


def is_nan(codes: Array, name: str) -> Array:
    """Return True for bit patterns of NaN, in a format of at least 16 bits."""
    one, kind = FORMATS[name], codes.dtype.type
    return (codes & kind((1 << one.bits - 1) - 1)) > kind((1 << one.bits - 1) - (1 << one.mantissa))


# NaNs that `other_nan` can give in place of a GPU's NaN. 1 to 4: two bit patterns (1 and 2, 3 and 4); 1 and 3 have the
# opposite sign of the GPU's NaN, 2 and 4 the same sign. 5 and 6: the last and the first NaN among the operands, made
# quiet.
OTHER_NANS = range(1, 7)
_PATTERNS = (0x5A5A_5A5A_5A5A, 0)


def other_nan(found: Array, name: str, which: int, *operands: Array) -> Array:
    """Replace each NaN in the results of an operation by another NaN. found: the results. which: a number of
    OTHER_NANS."""
    one, kind = FORMATS[name], found.dtype.type
    if which > 2 * len(_PATTERNS):
        for code in operands if which % 2 else operands[::-1]:
            found = np.where(is_nan(found, name) & is_nan(code, name), code | kind(1 << one.mantissa - 1), found)
        return found
    mark, sign = kind(_mark(name, which)), kind(1 << one.bits - 1)
    return np.where(is_nan(found, name), mark ^ (found & sign if which % 2 else ~found & sign), found)


def _mark(name: str, which: int) -> int:
    upper = 1 << FORMATS[name].mantissa - 1
    return (1 << FORMATS[name].bits) - upper | _PATTERNS[(which - 1) // 2] & upper - 1


def open_by_nans(wanted: bytes, found: bytes, others: Sequence[bytes]) -> bool:
    """Return True if two results differ only in bits that follow from the bits of NaNs, which PTX leaves open.

    wanted, found: contents of a buffer after both runs. others: contents of the buffer after runs like that of
    `wanted`, but with each of OTHER_NANS. Differences are tested in pieces of 8 bytes. A piece may differ if it changes
    with one of OTHER_NANS. This does not count if the piece holds that NaN itself and `found` holds a number there."""
    a, b, *all_ = (np.frombuffer(one + bytes(-len(one) % 8), np.uint64) for one in (wanted, found, *others))
    is_open = a == b
    for which, c in enumerate(all_, 1):
        is_number = np.zeros(a.shape, bool)
        for name, kind in (("f16", np.uint16), ("f32", np.uint32), ("f64", np.uint64)):
            x, y, z = (one.view(kind) for one in (a, b, c))
            if which <= 2 * len(_PATTERNS):
                is_nan_here = (z | kind(1 << FORMATS[name].bits - 1)) == kind(_mark(name, which))
            else:
                is_nan_here = is_nan(z, name)
            is_number |= (is_nan_here & is_nan(x, name) & ~is_nan(y, name)).reshape(len(a), -1).any(1)
        is_open |= (a != c) & ~is_number
    return bool(is_open.all())


def flush(codes: Array, name: str) -> Array:
    """Replace subnormal numbers of a format by zeros of their sign."""
    one, kind = FORMATS[name], codes.dtype.type
    exponent, sign = kind((1 << one.bits - 1) - (1 << one.mantissa)), kind(1 << one.bits - 1)
    return np.where(codes & exponent == 0, codes & sign, codes)


def with_sign(codes: Array, name: str, negates: bool, ftz: bool = False) -> Array:
    """Negate numbers (`negates`), or take their absolute values. Machine code of sm_80 to sm_120 does it by adding
    -0, which changes NaN: it becomes the canonical NaN; NaN of f64 becomes quiet and keeps its sign. (Measured on a
    GPU.)"""
    one, kind = FORMATS[name], codes.dtype.type
    sign = kind(1 << one.bits - 1)
    codes = flush(codes, name) if ftz else codes
    quiet = codes | kind(1 << 51) if name == "f64" else kind(one.nan or 0)
    return np.where(is_nan(codes, name), quiet, codes ^ sign if negates else codes & ~sign)


def finish32(found: Array, ftz: bool, unit: bool) -> Array:
    """Convert float32 to bit patterns, with the canonical NaN; flush subnormal numbers (ftz), clamp to [0, 1]
    (unit)."""
    if unit:
        found = np.where(found > 0, np.minimum(found, np.float32(1)), np.float32(0))
    codes = found.view(np.uint32)
    is_nan = found != found
    if is_nan.any():
        codes = np.where(is_nan, NAN32, codes)
    return flush32(codes) if ftz else codes


def finish32_exact(x: Array, mode: str, ftz: bool, unit: bool) -> Array:
    """Round float64 (exact, or rounded to odd) to bit patterns of float32."""
    if mode == "rn":
        found = x.astype(np.float32)
        if ftz:
            found = np.where(_is_tiny(x, FORMATS["f32"], "rn"), np.copysign(np.float32(0), found), found)
        return finish32(found, False, unit)
    return encode(x, "f32", mode, ftz=ftz, unit=unit)


def fma32(a: Array, b: Array, c: Array, mode: str = "rn", ftz: bool = False, unit: bool = False) -> Array:
    """Compute a * b + c with one rounding."""
    if ftz:
        a, b, c = flush32(a), flush32(b), flush32(c)
    product = np.multiply(a.view(np.float32), b.view(np.float32), dtype=np.float64)
    if mode == "rn":
        total = product + c.view(np.float32)
        found = total.astype(np.float32)
        if np.abs(found).min() > _LEAST32 and not unit:  # the usual case: no NaN, zero or subnormal number
            codes, open_ = found.view(np.uint32), _is_middle(total)
        else:
            codes = finish32(found, False, unit)
            open_ = _is_middle(total) | ((np.abs(found) <= _LEAST32) & (total != 0))
        if open_.any():
            added = c[open_].view(np.float32).astype(np.float64)
            codes[open_] = finish32_exact(odd_sum(product[open_], added), mode, ftz, unit)
        return codes
    added = c.view(np.float32).astype(np.float64)
    total = odd_sum(product, added)
    if mode == "rm":
        total = np.where(total == 0, _zero_of_sum(product, added, mode), total)
    return finish32_exact(total, mode, ftz, unit)


def _is_middle(total: Array) -> Array:
    """Return True for float64 in the middle between two float32. A sum that was rounded to such a float64 may round
    to the wrong float32. Subnormal sums may do so, too, and with ftz the smallest normal number; callers test for
    these."""
    return (total.view(np.uint64) & np.uint64(0x1FFF_FFFF)) == np.uint64(0x1000_0000)


def add32(a: Array, b: Array, mode: str = "rn", ftz: bool = False, unit: bool = False) -> Array:
    """Compute a + b."""
    if ftz:
        a, b = flush32(a), flush32(b)
    if mode == "rn":  # a sum below the smallest normal number is exact
        return finish32(a.view(np.float32) + b.view(np.float32), ftz, unit)
    total = odd_sum(a.view(np.float32).astype(np.float64), b.view(np.float32).astype(np.float64))
    total = np.where(total == 0, _zero_of_sum(a.view(np.float32), b.view(np.float32), mode), total)
    return finish32_exact(total, mode, ftz, unit)


def _zero_of_sum(a: Array, b: Array, mode: str) -> Array:
    """Return the signed zero of a sum that is zero: -0 if both operands are negative; when rounding down, -0 if at
    least one is negative."""
    both, one = np.signbit(a) & np.signbit(b), np.signbit(a) | np.signbit(b)
    return np.where(one if mode == "rm" else both, -0.0, 0.0)


def mul32(a: Array, b: Array, mode: str = "rn", ftz: bool = False, unit: bool = False, scale: float = 1.0) -> Array:
    """Compute a * b * scale with one rounding. scale: a power of two."""
    if ftz:
        a, b = flush32(a), flush32(b)
    x, y = a.view(np.float32), b.view(np.float32)
    if mode != "rn" or scale != 1:
        return finish32_exact(x.astype(np.float64) * y * scale, mode, ftz, unit)
    found = x * y
    codes = finish32(found, False, unit)
    if ftz and (small := (np.abs(found) <= _LEAST32) & (x != 0) & (y != 0)).any():
        codes[small] = finish32_exact(x[small].astype(np.float64) * y[small], mode, ftz, unit)
    return codes


def div32(a: Array, b: Array, mode: str = "rn", ftz: bool = False) -> Array:
    """Compute a / b. Dividing in float64 first is safe: this rounding never moves the quotient across a float32, or
    across the midpoint of two neighbouring float32."""
    if ftz:
        a, b = flush32(a), flush32(b)
    return finish32_exact(a.view(np.float32).astype(np.float64) / b.view(np.float32), mode, ftz, False)


def sqrt32(a: Array, mode: str = "rn", ftz: bool = False) -> Array:
    """Compute the square root."""
    if ftz:
        a = flush32(a)
    return finish32_exact(np.sqrt(a.view(np.float32).astype(np.float64)), mode, ftz, False)


def rcp32(a: Array, mode: str = "rn", ftz: bool = False) -> Array:
    """Compute 1 / a."""
    return div32(np.full_like(a, 0x3F80_0000), a, mode, ftz)


# --- two 16-bit numbers in 32 bits ---------------------------------------------------------------


def halves_of(words: Array) -> tuple[Array, Array]:
    """Return the lower and the upper 16 bits of words."""
    return words & np.uint32(0xFFFF), words >> np.uint32(16)


def by_halves(function: Callable[..., Array], *words: Array) -> Array:
    """Apply a function of 16-bit numbers' bit patterns to both halves of words. Return words."""
    codes = function(*(np.stack(halves_of(word)) for word in words))
    return codes[0] | codes[1] << np.uint32(16)


def twice(function: Callable[..., Array], *given: Array) -> Array:
    """Apply a function of float32 bit patterns to both halves of 64-bit words (f32x2)."""
    low, high = ([(one >> np.uint64(at)).astype(np.uint32) for one in given] for at in (0, 32))
    return joined(function(*low), function(*high))


def of_format(operation: Callable[..., Array], name: str, **how: Any) -> Callable[..., Array]:
    """Make a function of bit patterns from a function of float64, with one rounding. how: arguments of `encode`; ftz
    also flushes the operands."""

    def apply(*codes: Array) -> Array:
        if how.get("ftz"):
            codes = tuple(flush(code, name) for code in codes)
        return encode(operation(*(decode(code, name) for code in codes)), name, **how)

    return apply


def fma_oob(a: Array, b: Array, c: Array, name: str, relu: bool) -> Array:
    """Compute a * b + c; the result is 0 if a or b is the NaN that TMA fills in outside of tensors: 0x7ff7 with any
    sign. (Measured on a GPU.)"""
    found = of_format(lambda x, y, z: odd_sum(x * y, z), name, relu=relu)(a, b, c)
    outside = ((a & 0x7FFF) == 0x7FF7) | ((b & 0x7FFF) == 0x7FF7)
    return np.where(outside, np.uint32(0), found)


def _packed(operation: Callable[..., Array]) -> Callable[..., Array]:
    """Make a function of words that hold two f16 or bf16 each, from a function of float64. The new function takes the
    keywords ftz, unit and relu of `encode`."""

    def apply(*words: Array, name: str = "f16", **how: Any) -> Array:
        return by_halves(of_format(operation, name, **how), *words)

    return apply


fma_halves = _packed(lambda a, b, c: odd_sum(a * b, c))
add_halves, mul_halves = _packed(lambda a, b: odd_sum(a, b)), _packed(np.multiply)


# --- exact sums and products in float64 ----------------------------------------------------------


def odd_sum(a: Array, b: Array) -> Array:
    """Compute a + b in float64 rounded to odd: the last bit of an inexact sum is 1."""
    total = a + b
    error = error_of_sum(a, b, total)
    inexact = (error != 0) & np.isfinite(total) & (error == error)
    if not inexact.any():
        return total
    codes = total.view(np.uint64) if total.flags.c_contiguous else np.ascontiguousarray(total).view(np.uint64)
    even = inexact & ((codes & np.uint64(1)) == 0)
    outward = even & (np.signbit(error) == np.signbit(total))
    return (codes + outward.astype(np.uint64) - (even & ~outward).astype(np.uint64)).view(np.float64)


def error_of_sum(a: Array, b: Array, total: Array) -> Array:
    """Return the exact rounding error of total = a + b (Knuth's TwoSum)."""
    part = total - a
    return (a - (total - part)) + (b - part)


# --- integers ------------------------------------------------------------------------------------


def to_integer(x: Array, bits: int, signed: bool, mode: str, wide_source: bool = False) -> Array:
    """Round float64 to integers of `bits` bits, clamped to their range. Return int64 or uint64.

    wide_source: the source is f64. NaN gives 0. If the source or the target has 64 bits, NaN gives the lowest signed
    integer, or 2^(bits - 1) unsigned (PTX ISA, cvt).
    """
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    whole = integral(x, mode)
    kind = np.int64 if signed else np.uint64
    inside = (whole >= float(low)) & (whole < float(high + 1))
    found = np.where(inside, whole, 0.0).astype(kind)
    found = np.where(whole >= float(high + 1), kind(high), found)
    found = np.where(whole < float(low), kind(low), found)
    if wide_source or bits == 64:
        found = np.where(np.isnan(x), kind(low if signed else 1 << bits - 1), found)
    return found


def from_integer(values: Array) -> Array:
    """Convert int64 or uint64 to float64, rounded to odd."""
    high = (values >> 32).astype(np.float64) * 2.0**32
    return odd_sum(high, (values & values.dtype.type(0xFFFF_FFFF)).astype(np.float64))
