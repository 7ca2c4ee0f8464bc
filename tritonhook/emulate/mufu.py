"""The special function unit (MUFU): 2^x, log2, 1/x, 1/sqrt, sin, cos, tanh. The last bits of its results are not known.

The model, the same for PTX and machine code, is the exact function rounded to the nearest float32. A GPU's result
differs from it by no more than the error that the PTX ISA documents. MUFU flushes subnormal arguments and results. For
PTX operations that do not flush, ptxas writes code that scales around MUFU; the functions below do the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tritonhook.emulate.numbers import ABS32, NAN32, Array, convert, finish32, flush32, mul32
from tritonhook.emulate.numbers64 import fma64, mul64, with_sign
from tritonhook.errors import NotUnderstood

# The comment after each function: error of .approx.ftz.f32 in the PTX ISA 9, relative if not said to be absolute.
_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,  # 2 ulp
    "lg2": np.log2,  # 2^-22, absolute in (0.5, 2)
    "rcp": lambda x: 1.0 / x,  # 1 ulp
    "rsq": lambda x: 1.0 / np.sqrt(x),  # 2^-22.9
    "sqrt": np.sqrt,  # 2^-23
    "sin": lambda x: _of_turns(x, 0.0),  # 2^-20.5, absolute in [-pi, pi]
    "cos": lambda x: _of_turns(x, 0.25),  # 2^-20.5, absolute in [-pi, pi]
    "tanh": np.tanh,  # 2^-11
}


def mufu(name: str, bits: Array) -> Array:
    """Approximate a function of float32. name: e.g. "ex2". sin and cos take full turns instead of radians."""
    if name not in _FUNCTIONS:
        raise NotUnderstood(f"MUFU.{name.upper()}")
    if name == "tanh":  # measured on a GPU: does not flush subnormal numbers
        return finish32(np.tanh(bits.view(np.float32).astype(np.float64)).astype(np.float32), False, False)
    x = flush32(bits).view(np.float32).astype(np.float64)
    return finish32(_FUNCTIONS[name](x).astype(np.float32), True, False)


def _of_turns(x: Array, begin: float) -> Array:
    """Compute sin(2 pi (|x| + begin)), with the sign of x if begin is 0. Exact at quarter turns. begin: 0 for sin, 0.25
    for cos."""
    turns = np.remainder(np.abs(x), 1.0) + begin
    quarter = np.rint(4 * turns)
    rest = 2 * np.pi * (turns - quarter / 4)
    found = np.where(quarter % 2 == 1, np.cos(rest), np.sin(rest)) * np.where(quarter % 4 >= 2, -1.0, 1.0)
    return found if begin else np.copysign(1.0, x) * found


def mufu_half(name: str, codes: Array, kind: str) -> Array:
    """Approximate a function of f16 or bf16. kind: "f16" or "bf16"."""
    return convert(mufu(name, convert(codes, kind, "f32")), "f32", kind)


def mufu64(name: str, high: Array) -> Array:
    """Compute the upper word of 1/x or 1/sqrt(x) of float64 from the upper word of x (MUFU.RCP64H, MUFU.RSQ64H)."""
    if name not in ("rcp", "rsq"):
        raise NotUnderstood(f"MUFU.{name.upper()}64H")
    x = (high.astype(np.uint64) << np.uint64(32)).view(np.float64)
    x = np.where(np.abs(x) < 2.0**-1022, np.copysign(0.0, x), x)
    found = _FUNCTIONS[name](x)
    found = np.where(np.abs(found) < 2.0**-1022, np.copysign(0.0, found), found)
    # Measured on a GPU: the result is truncated to the upper word, except that values in the upper 7% between two words
    # may be rounded up.
    return np.where(np.isnan(found), NAN32, (found.view(np.uint64) >> np.uint64(32)).astype(np.uint32))


# --- PTX operations, with the code that ptxas writes around MUFU ------------------------------------


def rsqrt64(bits: Array) -> Array:
    """Compute `rsqrt.approx.f64` with the steps of the code that ptxas writes."""
    x = bits.view(np.float64)
    small = (x > 0) & (x < 2.0**-1022)
    wide = np.where(small, x * 2.0**54, x).view(np.uint64)
    one, half, more, back = (np.full_like(bits, np.float64(it).view(np.uint64)) for it in (1, 0.5, 0.375, 2.0**27))
    near = mufu64("rsq", (wide >> np.uint64(32)).astype(np.uint32)).astype(np.uint64) << np.uint64(32)
    error = fma64(wide, with_sign(mul64(near, near)), one)
    found = fma64(fma64(error, more, half), mul64(near, error), near)
    found = np.where(small, mul64(found, back), found)
    special = np.where(x == 0, np.copysign(np.inf, x), np.where(x == np.inf, 0.0, x + x)).view(np.uint64)
    special = np.where(x < 0, np.uint64(0xFFF8_0000_0000_0000), special)
    return np.where((x > 0) & (x < np.inf), found, special)


# How ptxas, without .ftz, scales subnormal arguments of MUFU (for ex2: arguments with subnormal results): factor of the
# argument, and function that corrects the result.
_SCALED: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "ex2": (0.5, lambda y: y * y),
    "lg2": (2.0**24, lambda y: y - np.float32(24)),
    "rsq": (2.0**24, lambda y: y * np.float32(2.0**12)),
    "sqrt": (2.0**24, lambda y: y * np.float32(2.0**-12)),
}


def approximate(name: str, bits: Array, ftz: bool) -> Array:
    """Compute `NAME.approx[.ftz].f32` with the steps of the code that ptxas writes. name: ex2, lg2, rcp, rsq, sqrt,
    sin, cos or tanh. Raises NotUnderstood."""
    if name in ("sin", "cos"):
        return mufu(name, mul32(bits, np.full_like(bits, 0x3E22_F983), "rz", ftz))  # 1 / (2 pi): radians to turns
    if ftz or name == "tanh":
        return mufu(name, bits)
    if name in _SCALED:
        factor, corrected = _SCALED[name]
        x = bits.view(np.float32)
        small = x < np.float32(-126) if name == "ex2" else np.abs(x) < np.float32(2.0**-126)
        found = mufu(name, np.where(small, x * np.float32(factor), x).view(np.uint32)).view(np.float32)
        return finish32(np.where(small, corrected(found), found), False, False)
    if name == "rcp":
        power = _factor(bits, True, True)
        return mul32(power, mufu("rcp", mul32(bits, power)))
    raise NotUnderstood(f"{name}.approx")


def _factor(bits: Array, large: bool, small: bool) -> Array:
    """Return a power of two that brings a divisor into the range where MUFU.RCP flushes neither it nor its reciprocal:
    2^-2 for large divisors (if `large`), 2^24 for subnormal ones (if `small`), else 1."""
    size = bits & ABS32
    low = np.where((size < np.uint32(0x0080_0000)) & small, np.uint32(0x4B80_0000), np.uint32(0x3F80_0000))
    return np.where((size > np.uint32(0x7E80_0000)) & large, np.uint32(0x3E80_0000), low)


def quotient(a: Array, b: Array, full: bool, ftz: bool) -> Array:
    """Compute div.approx (or div.full: `full`) with the steps of the code that ptxas writes for sm_80 to sm_120."""
    factor = _factor(flush32(b) if ftz else b, full, not ftz)
    return mul32(mul32(a, factor, ftz=ftz), mufu("rcp", mul32(b, factor, ftz=ftz)), ftz=ftz)
