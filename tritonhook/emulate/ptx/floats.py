"""Floating-point arithmetic. Numbers are bits; emulate/numbers.py rounds, emulate/mufu.py approximates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, mufu, numbers, numbers64
from tritonhook.emulate.machine import Step
from tritonhook.emulate.opcodes import rounding
from tritonhook.emulate.ptx.site import KINDS, Array, Site, opcode

_MODES = ("rn", "rz", "rm", "rp")
_HALVES = "f16 bf16 f16x2 bf16x2"


def of_halves(kind: str, function: Callable[..., Array], **how: Any) -> Callable[..., Array]:
    """A function of float64 on f16 or bf16, one or two in a register, with one rounding."""
    return _each(kind, numbers.of_format(function, kind.removesuffix("x2"), **how))


def _each(kind: str, function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of the codes of numbers, for those of a register."""
    if kind == "f32x2":
        return partial(numbers.twice, function)
    if kind.endswith("x2"):
        return partial(numbers.by_halves, function)
    return function if kind in ("f32", "f64") else lambda *given: function(*given).astype(np.uint16)


_OPERATIONS: Mapping[str, tuple[Any, Any, Any]] = {  # of halves, f32, f64
    "add": (numbers.odd_sum, numbers.add32, numbers64.add64),
    "mul": (np.multiply, numbers.mul32, numbers64.mul64),
    "fma": (lambda a, b, c: numbers.odd_sum(a * b, c), numbers.fma32, numbers64.fma64),
}


@opcode("add", "sub", "mul", "fma", "mad")
def arithmetic(site: Site) -> Step:
    """mad.f32 is fma from sm_20 on."""
    kind, how = site.typed(f"f32 f64 f32x2 {_HALVES}", *_MODES, "ftz", "sat", "relu")
    name = {"mad": "fma", "sub": "add"}.get(site.name, site.name)
    sources = 3 if name == "fma" else 2
    site.count(sources + 1)
    of_half, single, double = _OPERATIONS[name]
    options: dict[str, Any] = {"ftz": "ftz" in how, "unit": "sat" in how}
    if kind in _HALVES.split():
        function = of_halves(kind, of_half, **options, relu="relu" in how)
    elif "relu" in how:
        raise site.refuse(".relu")
    elif kind == "f64":
        function = partial(double, mode=rounding(how))
    else:
        function = _each(kind, partial(single, mode=rounding(how), **options))
    if site.name == "sub":
        mask = sign_mask(kind)
        return site.compute(lambda a, b: function(a, b ^ mask), kind, kind, kind)
    return site.compute(function, kind, *[kind] * sources)


@opcode("div")
def divide(site: Site) -> Step:
    kind, how = site.typed("f32 f64", *_MODES, "ftz", "full", "approx")
    if kind == "f64":
        function = partial(numbers64.div64, mode=rounding(how))
    elif how & {"full", "approx"}:
        function = partial(_approximate_quotient, ftz="ftz" in how)
    else:
        function = partial(numbers.div32, mode=rounding(how), ftz="ftz" in how)
    return site.compute(function, kind, kind, kind)


def _approximate_quotient(a: Array, b: Array, ftz: bool) -> Array:
    """a * (1 / b), with the steps of ptxas's code: without ftz, large and small divisors are scaled."""
    if not ftz:
        size = b & numbers.ABS32
        large, small = size > np.uint32(0x7E80_0000), size < np.uint32(0x0080_0000)
        factor = np.where(
            large, np.uint32(0x3E80_0000), np.where(small, np.uint32(0x4B80_0000), np.uint32(0x3F80_0000))
        )
        a, b = numbers.mul32(a, factor), numbers.mul32(b, factor)
    return numbers.mul32(a, mufu.mufu("rcp", b), ftz=ftz)


_EXACT = {
    ("sqrt", "f32"): numbers.sqrt32,
    ("sqrt", "f64"): numbers64.sqrt64,
    ("rcp", "f32"): numbers.rcp32,
    ("rcp", "f64"): lambda a, mode: numbers64.div64(np.full_like(a, 0x3FF0_0000_0000_0000), a, mode=mode),
}


@opcode("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def function_of_one(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", *_MODES, "ftz", "approx")
    name, ftz = site.name.replace("rsqrt", "rsq"), "ftz" in how
    if "approx" not in how:
        if (name, kind) not in _EXACT:
            raise site.refuse()
        options: dict[str, Any] = {"ftz": ftz} if kind == "f32" else {}
        return site.compute(partial(_EXACT[name, kind], mode=rounding(how), **options), kind, kind)
    if kind == "f32":
        return site.compute(lambda a: mufu.approximate(name, a, ftz), kind, kind)
    if kind == "f64" and name in ("rcp", "rsq") and ftz:
        upper = np.uint64(32)
        function = lambda a: mufu.mufu64(name, (a >> upper).astype(np.uint32)).astype(np.uint64) << upper  # noqa: E731
        return site.compute(function, kind, kind)
    if kind == "f64" or name not in ("ex2", "tanh"):
        raise site.refuse()
    half = kind.removesuffix("x2")

    def approximate(codes: Array) -> Array:
        wide = numbers.convert(codes, half, "f32")
        return numbers.convert(mufu.approximate(name, wide, ftz), "f32", half)

    return site.compute(_each(kind, approximate), kind, kind)


# --- signs, extremes -----------------------------------------------------------------------------


def sign_mask(kind: str) -> Array:
    bit = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f32x2": 1 << 63 | 1 << 31}
    return KINDS[kind](bit.get(kind, 0x8000_8000))


@opcode("neg", "abs")
def sign(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz")
    mask, name, flushes = sign_mask(kind), site.name, "ftz" in how and kind == "f32"

    def found(a: Array) -> Array:
        if flushes:
            a = numbers.flush32(a)
        return a ^ mask if name == "neg" else a & ~mask

    return site.compute(found, kind, kind)


@opcode("copysign")
def copy_sign(site: Site) -> Step:
    kind, _ = site.typed("f32 f64")
    mask = sign_mask(kind)
    return site.compute(lambda a, b: (b & ~mask) | (a & mask), kind, kind, kind)


@opcode("min", "max", "min3", "max3")
def extremes(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz", "NaN", "xorsign", "abs")
    if how & {"xorsign", "abs"} and (kind != "f32" or not how >= {"xorsign", "abs"} or site.name.endswith("3")):
        raise site.refuse()
    half, flushes = kind.removesuffix("x2"), "ftz" in how and kind == "f32"
    both = partial(comparisons.extreme, lower=site.name.startswith("min"), nan="NaN" in how, kind=half)

    def found(*given: Array) -> Array:
        if flushes:
            given = tuple(numbers.flush32(one) for one in given)
        if "xorsign" in how:
            a, b = given
            return both(a & numbers.ABS32, b & numbers.ABS32) ^ (a ^ b) & numbers.SIGN32
        return reduce(both, given)

    return site.compute(_each(kind, found), kind, *[kind] * (len(site.operands) - 1))


_PROPERTIES: Mapping[str, Callable[[Array, float], Array]] = {
    "finite": lambda x, _: np.isfinite(x),
    "infinite": lambda x, _: np.isinf(x),
    "number": lambda x, _: ~np.isnan(x),
    "notanumber": lambda x, _: np.isnan(x),
    "normal": lambda x, least: np.isfinite(x) & (x >= least),
    "subnormal": lambda x, least: (x > 0) & (x < least),
}


@opcode("testp")
def test_property(site: Site) -> Step:
    kind, (name,) = site.typed("f32 f64", *_PROPERTIES)
    least = 2.0 ** numbers.FORMATS[kind].least
    return site.compute(lambda a: _PROPERTIES[name](np.abs(numbers.decode(a, kind)), least), "pred", kind)
