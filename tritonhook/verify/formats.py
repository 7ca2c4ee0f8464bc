"""Floating-point formats by torch's name of the dtype: fields, values, distances in units in the last place. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """Sign, exponent and mantissa, from the top. has_infinity: the highest exponent means infinity or NaN; without it
    only all ones are a NaN, as in e4m3fn."""

    bits: int
    exponent: int
    mantissa: int
    has_infinity: bool = True

    @property
    def magnitude(self) -> int:
        """Mask of all bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def first_not_finite(self) -> int:
        """The smallest magnitude, as bits, that is not a finite number."""
        return ((1 << self.exponent) - 1) << self.mantissa if self.has_infinity else self.magnitude

    def is_nan(self, bits: int) -> bool:
        magnitude = bits & self.magnitude
        return magnitude > self.first_not_finite if self.has_infinity else magnitude == self.magnitude

    def is_finite(self, bits: int) -> bool:
        return bits & self.magnitude < self.first_not_finite

    def value(self, bits: int) -> float:
        magnitude = bits & self.magnitude
        sign = -1.0 if bits > self.magnitude else 1.0
        if self.is_nan(bits):
            return math.nan
        if not self.is_finite(bits):
            return sign * math.inf
        exponent, mantissa = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            mantissa += 1 << self.mantissa
        return sign * math.ldexp(mantissa, max(exponent, 1) - self.bias - self.mantissa)

    def ulps(self, a: int, b: int) -> int:
        """How many numbers of this format a step from a to b crosses; 0 and -0 are one number."""
        return abs(self._place(a) - self._place(b))

    def _place(self, bits: int) -> int:
        magnitude = bits & self.magnitude
        return -magnitude if bits > self.magnitude else magnitude


_FLOAT32, _FLOAT64 = FloatFormat(32, 8, 23), FloatFormat(64, 11, 52)
FLOATS: Mapping[str, FloatFormat] = {
    "float16": FloatFormat(16, 5, 10),
    "bfloat16": FloatFormat(16, 8, 7),
    "float32": _FLOAT32,
    "float64": _FLOAT64,
    "complex64": _FLOAT32,
    "complex128": _FLOAT64,
    "float8_e4m3fn": FloatFormat(8, 4, 3, has_infinity=False),
    "float8_e5m2": FloatFormat(8, 5, 2),
}
