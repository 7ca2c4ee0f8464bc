"""The sums of tensor cores, with the same bits as on the hardware.

The terms of a sum are exact products, and the number of C. All are aligned to the largest exponent among them,
truncated to `fraction` bits below it, and added as integers; the sum is rounded once. Source of the model and of its
parameters: MMA-Sim (arXiv 2511.10909, microsoft/MMA-Sim); Khattak and Mikaitis (arXiv 2512.07004); FTTN (arXiv
2403.00232).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.numbers import FORMATS, Array, add32, decode, encode
from tritonhook.emulate.tensor_core import compiled

_NO_EXPONENT = -1000  # exponent of zeros, lower than all others: zeros do not affect the alignment (measured on a GPU)
_LEAST_EXPONENT = -133  # the lowest exponent to align to. Measured on sm_90: -132 or -134 give other bits near 2^-149


@dataclass(frozen=True, slots=True)
class Sums:
    """Parameters of an instruction's sums.

    fraction: bits kept below the largest exponent. depth: products in one sum; more products make a chain of sums.
    result: format that a sum is rounded to, f32 (towards zero) or f16 (to nearest). kept: bits of the fraction that an
    f32 result keeps.
    """

    fraction: int
    depth: int
    result: str = "f32"
    kept: int = 23


@dataclass(frozen=True, slots=True)
class Scales:
    """Scale factors of blocks along k. a: float64 (..., m, blocks). b: float64 (..., blocks, n). group: number of
    products that are added exactly before the alignment; 1: none. least: exponent of the smallest normal factor."""

    a: Array
    b: Array
    group: int = 1
    least: int = -127


def multiply(a: Array, b: Array, c: Array, formats: tuple[str, str, str], sums: Sums) -> Array:
    """Compute a b + c. All are bit patterns: a (..., m, k), b (..., k, n), c and the result (..., m, n). formats: of a,
    b and c."""
    x, y = decode(a, formats[0]), decode(b, formats[1])
    low = FORMATS[formats[0]].least, FORMATS[formats[1]].least
    added, name = c, formats[2]
    for begin in range(0, x.shape[-1], sums.depth):
        k = slice(begin, begin + sums.depth)
        found = _compiled(x[..., :, k], y[..., k, :], added, low, sums) if name == sums.result == "f32" else None
        if found is None:
            found = _sum(x[..., :, k], y[..., k, :], decode(added, name), low, sums)
        added, name = found, sums.result
    return added


def _compiled(x: Array, y: Array, added: Array, low: tuple[int, int], sums: Sums) -> Array | None:
    """Compute `_sum` with compiled code; None if that is impossible. added: bit patterns of f32."""
    if not compiled.is_there() or not all(np.isfinite(one).all() for one in (x, y, added.view(np.float32))):
        return None
    exponents = _exponent(x, low[0]), _exponent(y, low[1])
    return compiled.multiply(x, y, exponents, added, sums.fraction, sums.kept, _LEAST_EXPONENT)


def hopper_fp8(a: Array, b: Array, c: Array, kinds: tuple[str, str], result: str) -> Array:
    """Compute mma.sync of fp8 on sm_90. The hardware has no such instruction: ptxas writes two products of f16, of the
    lower and then of the upper two numbers in each register, and adds c to their sum. kinds: formats of a and b."""
    lower = np.flatnonzero(np.arange(a.shape[-1]) % 4 < 2)
    sums = Sums(25, len(lower), result)
    halves = [encode(decode(one, kind), "f16") for one, kind in zip((a, b), kinds, strict=True)]
    found = np.zeros_like(c)
    for k in (lower, lower + 2):
        found = multiply(halves[0][..., k], halves[1][..., k, :], found, ("f16", "f16", result), sums)
    if result == "f16":
        return encode(decode(c, "f16") + decode(found, "f16"), "f16")
    return add32(c, found)


def multiply_scaled(a: Array, b: Array, c: Array, formats: tuple[str, str], scales: Scales, sums: Sums) -> Array:
    """Compute a b + c with scale factors for blocks of a and b along k. All are bit patterns; c and the result are
    f32."""
    x, y = decode(a, formats[0]), decode(b, formats[1])
    added = decode(c, "f32")
    wide = x.shape[-1] // scales.a.shape[-1]
    if scales.group == 1:
        low = FORMATS[formats[0]].least, FORMATS[formats[1]].least
        power_a, power_b = (np.repeat(_exponent(s, -127), wide, axis) for s, axis in ((scales.a, -1), (scales.b, -2)))
        found = _sum(x, y, added, low, sums, power_a, power_b)
    else:
        found = _grouped(x, y, added, scales, wide, sums)
    bad = np.isnan(scales.a).any(-1)[..., :, None] | np.isnan(scales.b).any(-2)[..., None, :]
    return np.where(bad, np.uint32(0x7FFF_FFFF), found)


def _exponent(x: Array, least: int) -> Array:
    """Return the exponent of each finite number. least: the exponent of subnormal numbers in their format. Zeros have
    _NO_EXPONENT."""
    exponent = (x.view(np.uint64) >> np.uint64(52)).astype(np.int16) & np.int16(0x7FF)
    return np.where(x == 0, np.int16(_NO_EXPONENT), np.maximum(exponent - np.int16(1023), np.int16(least)))


def _power(exponent: Array) -> Array:
    """Compute 2^exponent; it must be a normal float64."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


def _sum(
    x: Array, y: Array, added: Array, low: tuple[int, int], sums: Sums, power_a: Array | None = None,
    power_b: Array | None = None,
) -> Array:  # fmt: skip
    """Compute one sum for each row of x and each column of y. added: C. low: exponents of the smallest normal numbers
    of both formats. power_a, power_b: scale factors' exponents, added to those of x and y."""
    unusual = _unusual(x, y, added)
    if unusual is not None:
        x, y, added = (np.where(np.isfinite(one), one, 0.0) for one in (x, y, added))
    high_x, high_y = _exponent(x, low[0]), _exponent(y, low[1])
    if power_a is not None and power_b is not None:
        x, y = np.ldexp(x, power_a), np.ldexp(y, power_b)
        high_x, high_y = high_x + power_a, high_y + power_b
    least_added = FORMATS["f16" if sums.result == "f16" else "f32"].least
    highest = _exponent(added, least_added)
    rows = [np.moveaxis(one, -1, 0)[..., None] for one in (x, high_x)]
    columns = [np.moveaxis(one, -2, 0)[..., None, :] for one in (y, high_y)]
    is_turned = x.ndim == y.ndim == added.ndim == 3 and len(added) > added.shape[-1]
    if is_turned:  # make the longest axis the last one, along which NumPy is fast
        rows, columns = ([np.ascontiguousarray(np.moveaxis(one, 1, -1)) for one in two] for two in (rows, columns))
        added, highest = (np.ascontiguousarray(np.moveaxis(one, 0, -1)) for one in (added, highest))
    exponent = np.empty_like(highest)
    for a, b in zip(rows[1], columns[1], strict=True):
        np.maximum(highest, np.add(a, b, out=exponent), out=highest)
    highest = np.maximum(highest, _LEAST_EXPONENT)
    scale = _power(sums.fraction - highest)
    total = np.trunc(added * scale)
    product = np.empty_like(total)
    for a, b in zip(rows[0], columns[0], strict=True):
        np.multiply(a, b, out=product)
        product *= scale
        total += np.trunc(product, out=product)
    if is_turned:
        total, highest = np.moveaxis(total, -1, 0), np.moveaxis(highest, -1, 0)
    return _finish(total, highest - sums.fraction, sums, unusual)


def _grouped(x: Array, y: Array, added: Array, scales: Scales, wide: int, sums: Sums) -> Array:
    """Add groups of products exactly, multiply them by their scale factors, align them by the exponents of these
    factors alone, and add them. wide: products per factor."""
    terms = [(added, _exponent(added, -126))]
    for begin in range(0, x.shape[-1], scales.group):
        k, block = slice(begin, begin + scales.group), begin // wide
        factor_a, factor_b = np.abs(scales.a[..., :, block, None]), np.abs(scales.b[..., None, block, :])
        factor_a, factor_b = np.nan_to_num(factor_a), np.nan_to_num(factor_b)
        exponent = _exponent(factor_a, scales.least) + _exponent(factor_b, scales.least)
        terms.append((np.matmul(x[..., :, k], y[..., k, :]) * factor_a * factor_b, exponent))
    highest = np.maximum(np.max(np.stack([exponent for _, exponent in terms]), 0), _LEAST_EXPONENT)
    scale = _power(sums.fraction - highest)
    total = sum(np.trunc(value * scale) for value, _ in terms)
    return _finish(total, highest - sums.fraction, sums, _unusual(x, y, added))


def _unusual(x: Array, y: Array, added: Array) -> Array | None:
    """Return the sums in plain float64: infinite or NaN where a term is. None if all numbers are finite."""
    if np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(added).all():
        return None
    return (x[..., :, :, None] * y[..., None, :, :]).sum(-2) + added


def _finish(total: Array, exponent: Array, sums: Sums, unusual: Array | None) -> Array:
    """Round total * 2^exponent to bit patterns of the result. unusual: see `_unusual`; replaces infinite and NaN
    results."""
    exact = total * _power(exponent)
    if sums.result == "f16":
        found = encode(exact, "f16")
    else:
        nearest = exact.astype(np.float32)
        codes = nearest.view(np.uint32)
        outward = (np.abs(nearest) > np.abs(exact)) & np.isfinite(nearest)
        found = codes - outward.astype(np.uint32)
        if sums.kept < 23:
            found = np.where(np.isfinite(nearest), found & np.uint32(-1 << 23 - sums.kept & 0xFFFF_FFFF), found)
    minus_zero = np.uint32(0x8000 if sums.result == "f16" else 0x8000_0000)
    found = np.where(found == minus_zero, np.uint32(0), found)  # measured on a GPU: no result is -0
    if unusual is None:
        return found
    codes = encode(np.where(np.isfinite(unusual), 0.0, unusual), sums.result)
    return np.where(np.isfinite(unusual), found, codes)


def multiply_integers(a: Array, b: Array, c: Array, saturate: bool) -> Array:
    """Compute a b + c of integers. a, b: at most 8 bits, as float64, whose sums are exact. c and the result: int32 as
    uint32. saturate: clamp to int32 instead of wrapping."""
    total = np.matmul(a, b).astype(np.int64) + c.view(np.int32)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.uint32)


def multiply_f64(a: Array, b: Array, c: Array) -> Array:
    """Compute a b + c of float64 by a chain of fma along k. a, b, c and the result: bit patterns."""
    from tritonhook.emulate.numbers64 import fma64

    shape = c.shape
    for k in range(a.shape[-1]):
        row = np.broadcast_to(a[..., :, k, None], shape).copy()
        column = np.broadcast_to(b[..., None, k, :], shape).copy()
        c = fma64(row, column, c)
    return c
