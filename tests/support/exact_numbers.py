"""Codes of floating-point numbers by integers and fractions alone: what tests compare the emulator's arrays with."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

# bits, fraction bits, exponent of the least normal number, code of the largest number, of infinity, of NaN (None: none)
FORMATS = {
    "f64": (64, 52, -1022, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000, 0xFFF8_0000_0000_0000),
    "f32": (32, 23, -126, 0x7F7F_FFFF, 0x7F80_0000, 0x7FFF_FFFF),
    "f16": (16, 10, -14, 0x7BFF, 0x7C00, 0x7FFF),
    "bf16": (16, 7, -126, 0x7F7F, 0x7F80, 0x7FFF),
    "e5m2": (8, 2, -14, 0x7B, 0x7C, 0x7F),
    "e4m3": (8, 3, -6, 0x7E, None, 0x7F),
    "e3m2": (6, 2, -2, 0x1F, None, None),
    "e2m3": (6, 3, 0, 0x1F, None, None),
    "e2m1": (4, 1, 0, 0x7, None, None),
}


def value_of(code: int, name: str) -> Fraction | float:
    """The number of a code: a fraction, or infinite, NaN, or -0.0."""
    bits, fraction, least, largest, *_ = FORMATS[name]
    is_negative, size = bool(code >> bits - 1), code & (1 << bits - 1) - 1
    if size > largest:
        return math.nan if size != FORMATS[name][4] else math.copysign(math.inf, -is_negative or 1)
    exponent, rest = divmod(size, 1 << fraction)
    found = Fraction(rest + (bool(exponent) << fraction)) * Fraction(2) ** (max(exponent, 1) - 1 + least - fraction)
    return -0.0 if is_negative and not found else -found if is_negative else found


def is_negative(value: Fraction | float) -> bool:
    return math.copysign(1, value) < 0 if isinstance(value, float) else value < 0


def whole(exact: Fraction, mode: str) -> int:
    """The whole number that a mode rounds to."""
    low = math.floor(exact)
    rest = exact - low
    above = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1),
        "rz": exact < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
        "rna": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and exact > 0),
    }[mode]
    return low + above


def code_of(
    value: Fraction | float, name: str, mode: str = "rn", *, ftz=False, finite=False, unit=False, relu=False
) -> int:  # fmt: skip
    """The code of a number that is rounded once; the options as for `numbers.encode`."""
    bits, fraction, least, largest, infinite, nan = FORMATS[name]
    if isinstance(value, float) and math.isnan(value):
        return 0 if unit else (1 << bits - 1) - 1 if nan is None else nan
    if (relu and value <= 0) or (unit and not value > 0):
        value = Fraction(0)
    value = min(value, Fraction(1)) if unit else value
    sign = is_negative(value) << bits - 1
    if isinstance(value, float) and math.isinf(value):
        return sign | (largest if finite else infinite or nan or largest)
    size = abs(Fraction(value))
    if not size:
        return sign
    mode = {"rp": "rm", "rm": "rp"}.get(mode, mode) if sign else mode
    exponent = math.frexp(size.numerator / size.denominator)[1] - 1 if name != "f64" else _exponent(size)
    if ftz and whole(size / Fraction(2) ** (exponent - fraction), mode) * Fraction(2) ** (exponent - fraction) < (
        Fraction(2) ** least
    ):
        return sign
    exponent = max(exponent, least)
    found = whole(size / Fraction(2) ** (exponent - fraction), mode) + (exponent - least << fraction)
    if found > largest:
        found = largest if finite or mode in ("rz", "rm") else infinite or nan or largest
    return sign | found


def _exponent(size: Fraction) -> int:
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return found if size >= Fraction(2) ** found else found - 1


def root(value: Fraction) -> Fraction:
    """A fraction on the same side of each number of few bits as the square root."""
    scale = 1 << 1400
    square = value.numerator * scale * scale // value.denominator
    found = math.isqrt(square)
    return Fraction(found, scale) if Fraction(found, scale) ** 2 == value else Fraction(3 * found + 1, 3 * scale)


def added(a: Fraction | float, b: Fraction | float, mode: str = "rn") -> Fraction | float:
    """The exact sum, with the sign that a zero gets."""
    if any(isinstance(one, float) and one != 0 for one in (a, b)):
        return sum(one if isinstance(one, float) else 0.0 for one in (a, b))
    total = Fraction(a) + Fraction(b)
    if total:
        return total
    negative = (is_negative(a), is_negative(b))
    return -0.0 if all(negative) or (any(negative) and mode == "rm") else Fraction(0)


def multiplied(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    """The exact product."""
    if any(isinstance(one, float) and one != 0 for one in (a, b)):
        sizes = [
            one if one != one else (0.0 if one == 0 else math.inf) * (-1 if is_negative(one) else 1) for one in (a, b)
        ]
        return sizes[0] * sizes[1]
    found = Fraction(a) * Fraction(b)
    return -0.0 if not found and is_negative(a) != is_negative(b) else found


def divided(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    """The exact quotient."""
    if b == 0:
        inverse: Fraction | float = -math.inf if is_negative(b) else math.inf
        return math.nan if a == 0 or a != a else math.copysign(math.inf, -1 if is_negative(a) != is_negative(b) else 1)
    if isinstance(b, float):
        inverse = math.nan if b != b or (isinstance(a, float) and math.isinf(a)) else math.copysign(0.0, b)
        return multiplied(a, Fraction(0) if inverse == 0 and not is_negative(inverse) else inverse)
    return multiplied(a, 1 / b)


def codes_near_edges(name, draw, count):
    """Codes of both signs: zeros, ends of the subnormal and of the normal numbers, infinite, NaN, and others; half of
    these near 1."""
    bits, fraction, least, largest, infinite, nan = FORMATS[name]
    one = max(-least, 1) << fraction
    edges = [
        0,
        1,
        2,
        (1 << fraction) - 1,
        1 << fraction,
        (1 << fraction) + 1,
        largest - 1,
        largest,
        one,
        one + 1,
        one - 1,
    ]
    edges += [
        code for code in (infinite, nan and nan & (1 << bits - 1) - 1, infinite and infinite + 1) if code is not None
    ]
    near = (one + draw.integers(-3 << fraction, 3 << fraction, count)) % (largest + 1)
    some = np.where(draw.random(count) < 0.4, draw.choice(np.array(edges, np.uint64), count), near.astype(np.uint64))
    some = np.where(draw.random(count) < 0.3, draw.integers(0, 1 << bits - 1, count, np.uint64), some)
    some = some | draw.integers(0, 2, count, np.uint64) << np.uint64(bits - 1)
    return some if bits == 64 else some.astype(np.uint32)
