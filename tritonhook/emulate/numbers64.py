"""float64 arithmetic with one rounding, on arrays of bit patterns (uint64); conversions between formats and integers.

Rare cases (very large or small numbers, directed rounding) are computed with fractions. Arguments: see numbers.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from tritonhook.emulate import numbers
from tritonhook.emulate.words import Array

NAN64, _INFINITE64 = np.uint64(0xFFF8_0000_0000_0000), np.uint64(0x7FF0_0000_0000_0000)
_SIGN64, _QUIET64 = np.uint64(1 << 63), np.uint64(1 << 51)


def _error_of_product(a: Array, b: Array, product: Array) -> Array:
    """Return the exact rounding error of product = a * b (Veltkamp, Dekker), for products far from overflow and from
    underflow."""
    high_a, low_a = _split(a)
    high_b, low_b = _split(b)
    return low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


_TINY = Fraction(1, 1 << 1200)  # less than the distance between two float64
_SAFE_LEAST, _SAFE_MOST = 2.0**-450, 2.0**450


def _finish64(found: Array, *sources: Array) -> Array:
    """Convert float64 to bit patterns. A NaN gets the bits of the last source that is NaN, made quiet, or NAN64 if no
    source is NaN. (Measured on a GPU.)"""
    codes = found.view(np.uint64)
    is_nan = found != found
    if is_nan.any():
        codes = np.where(is_nan, NAN64, codes)
        for source in sources:
            codes = np.where(is_nan & ((source & ~_SIGN64) > _INFINITE64), source | _QUIET64, codes)
    return codes


def atomic_add64(old: Array, new: Array) -> Array:
    """Compute the sum that an atomic stores. If `new` is NaN the result is `new`, else if `old` is NaN it is `old`; a
    signalling NaN stays signalling. (Measured on a GPU.)"""
    codes = add64(old, new)
    for source in (old, new):
        codes = np.where((source & ~_SIGN64) > _INFINITE64, source, codes)
    return codes


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """Compute a * b + c with one rounding."""
    x, y, z = (one.view(np.float64) for one in (a, b, c))
    product = x * y
    rest = _error_of_product(x, y, product)
    # Boldo and Melquiond: h = a * b + c rounded; the result is h + (all errors, summed and rounded to odd).
    inner = z + rest
    inner_rest = numbers.error_of_sum(z, rest, inner)
    outer = product + inner
    outer_rest = numbers.error_of_sum(product, inner, outer)
    found = outer + numbers.odd_sum(outer_rest, inner_rest)
    sizes = np.abs(np.stack([x, y, z, product]))
    is_safe = ((sizes == 0) | ((sizes > _SAFE_LEAST) & (sizes < _SAFE_MOST))).all(0)
    # A finite product that overflows must not cancel an infinite z.
    plain = np.where(np.isfinite(x) & np.isfinite(y) & np.isinf(z), z, product + z)
    found = np.where(np.isfinite(plain) & (x != 0) & (y != 0), found, plain)
    if mode != "rn" or not is_safe.all():
        exact = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (np.ones_like(is_safe) if mode != "rn" else ~is_safe)
        found = found.copy()
        for i in np.flatnonzero(exact):
            found.flat[i] = _exact_fma(x.flat[i], y.flat[i], z.flat[i], mode)
    return _finish64(found, a, c, b)


def _exact_fma(x: float, y: float, z: float, mode: str) -> float:
    """Compute x * y + z of finite numbers with fractions, rounded once."""
    x, y, z = float(x), float(y), float(z)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        product_sign = np.signbit(x) != np.signbit(y)
        negative = (product_sign and np.signbit(z)) or (mode == "rm" and product_sign != np.signbit(z))
        return -0.0 if negative else 0.0
    try:
        found = float(exact)
    except OverflowError:
        found = float("inf") if exact > 0 else float("-inf")
    if not found:
        found = 0.0 if exact > 0 else -0.0
    return _directed(found, exact, mode)


def _directed(found: float, exact: Fraction, mode: str) -> float:
    """Replace `found`, the result of rounding to nearest, by the result of another rounding mode. exact: the unrounded
    number."""
    is_inf = found in (float("inf"), float("-inf"))
    above = found > 0 if is_inf else Fraction(found) > exact
    below = found < 0 if is_inf else Fraction(found) < exact
    down = mode == "rm" or (mode == "rz" and exact > 0)
    up = mode == "rp" or (mode == "rz" and exact < 0)
    if down and above:
        return float(np.nextafter(found, -np.inf))
    if up and below:
        return float(np.nextafter(found, np.inf))
    return found


def add64(a: Array, b: Array, mode: str = "rn") -> Array:
    """Compute a + b."""
    x, y = a.view(np.float64), b.view(np.float64)
    if mode == "rn":
        return _finish64(x + y, a, b)
    return fma64(a, np.full_like(a, 0x3FF0_0000_0000_0000), b, mode)


def mul64(a: Array, b: Array, mode: str = "rn") -> Array:
    """Compute a * b."""
    x, y = a.view(np.float64), b.view(np.float64)
    if mode == "rn":
        return _finish64(x * y, a, b)
    zero = np.where(np.signbit(x) != np.signbit(y), -0.0, 0.0)
    return fma64(a, b, zero.view(np.uint64), mode)


def div64(a: Array, b: Array, mode: str = "rn") -> Array:
    """Compute a / b."""
    x, y = a.view(np.float64), b.view(np.float64)
    found = x / y
    if mode != "rn":
        found = found.copy()
        for i in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)):
            found.flat[i] = _directed(found.flat[i], Fraction(float(x.flat[i])) / Fraction(float(y.flat[i])), mode)
    return _finish64(found, b, a)


def sqrt64(a: Array, mode: str = "rn") -> Array:
    """Compute the square root."""
    x = a.view(np.float64)
    found = np.sqrt(x)
    if mode != "rn":
        for i in np.flatnonzero(np.isfinite(x) & (x > 0)):
            near, exact = float(found.flat[i]), Fraction(float(x.flat[i]))
            side = Fraction(near) ** 2 - exact  # positive if `near` is above the root
            found.flat[i] = _directed(near, Fraction(near) - (side > 0) * _TINY + (side < 0) * _TINY, mode)
    return _finish64(found, a)


def with_sign(a: Array, sign: str = "-", absolute: bool = False) -> Array:
    """Apply the modifiers of an operand: first the absolute value (`absolute`), then the sign. NaN stays as it is.
    (Measured on a GPU.)"""
    size = a & ~_SIGN64 if absolute else a
    return np.where(numbers.is_nan(a, "f64"), a, size ^ _SIGN64 if sign == "-" else size)


def narrow64(a: Array, target: str = "f32", mode: str = "rn", ftz: bool = False) -> Array:
    """Convert float64 to float32, f16 or bf16. NaN keeps its upper bits. (Measured on a GPU.)"""
    found = numbers.encode(a.view(np.float64), target, mode, ftz=ftz)
    is_nan = numbers.is_nan(a, "f64")
    if not is_nan.any():
        return found
    one = numbers.FORMATS[target]
    upper = np.uint64((1 << one.mantissa) - 1 << 52 - one.mantissa)
    kept = ((a & upper | _QUIET64) >> np.uint64(52 - one.mantissa)).astype(np.uint32)
    sign = (a >> np.uint64(64 - one.bits)).astype(np.uint32) & np.uint32(1 << one.bits - 1)
    infinite = np.uint32((1 << one.bits - 1) - (1 << one.mantissa))
    return np.where(is_nan, kept | sign | infinite, found)


def widen64(a: Array, source: str = "f32") -> Array:
    """Convert float32, f16 or bf16 to float64. NaN keeps its bits. (Measured on a GPU.)"""
    one, wide = numbers.FORMATS[source], a.astype(np.uint64)
    fraction = wide & np.uint64((1 << one.mantissa) - 1)
    nan = (wide >> np.uint64(one.bits - 1)) << np.uint64(63) | fraction << np.uint64(52 - one.mantissa)
    found = numbers.decode(a, source).view(np.uint64)
    return np.where(numbers.is_nan(a, source), nan | _INFINITE64 | _QUIET64, found)


def from_integer64(values: Array, mode: str = "rn") -> Array:
    """Convert int64 or uint64 to bit patterns of float64."""
    nearest = values.astype(np.float64)
    if mode == "rn":
        return nearest.view(np.uint64)
    both = zip(nearest.flat, values.flat, strict=True)
    found = np.array([_directed(float(near), Fraction(int(value)), mode) for near, value in both])
    return found.reshape(values.shape).view(np.uint64)


# --- conversions ---------------------------------------------------------------------------------


def from_whole(values: Array, target: str, mode: str, unit: bool = False) -> Array:
    """Convert int64 or uint64 to bit patterns of a format."""
    if target == "f64":
        return from_integer64(values, mode)
    return numbers.encode(numbers.from_integer(values), target, mode, unit=unit)


def to_whole(codes: Array, source: str, bits: int, signed: bool, mode: str, ftz: bool) -> Array:
    """Convert bit patterns of a format to integers of `bits` bits, as int64 or uint64."""
    if ftz and source == "f32":
        codes = numbers.flush32(codes)
    return numbers.to_integer(numbers.decode(codes, source), bits, signed, mode, source == "f64")


def between(
    codes: Array, source: str, target: str, mode: str = "rn", whole: str = "", ftz: bool = False, **how: Any
) -> Array:
    """Convert bit patterns of one format to another. whole: mode for rounding to whole numbers before the conversion;
    "": do not round. how: further arguments of `numbers.encode`."""
    if ftz and source == "f32":
        codes = numbers.flush32(codes)
    if not whole and not how.get("unit") and not how.get("relu") and "f64" in (source, target):
        if source == target:
            return codes
        return widen64(codes, source) if target == "f64" else narrow64(codes, target, mode, ftz)
    elif not whole and target != "f64":
        return numbers.convert(codes, source, target, mode, ftz=ftz and target == "f32", **how)
    x = numbers.decode(codes, source)
    if whole:
        x = np.copysign(numbers.integral(x, whole), x)
    if target != "f64":
        return numbers.encode(x, target, mode, ftz=ftz and target == "f32", **how)
    if how.get("unit"):
        x = np.where(x > 0, np.minimum(x, 1.0), 0.0)
    return _finish64(np.ascontiguousarray(x), *([codes] if source == "f64" else []))
