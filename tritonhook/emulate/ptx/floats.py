"""Floating-point arithmetic. Numbers are bits; emulate/numbers.py rounds, emulate/mufu.py approximates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tritonhook.emulate import mufu, numbers, numbers64
from tritonhook.emulate.machine import Step
from tritonhook.emulate.ptx.site import KINDS, Array, Site, computing, opcode

_MODES = ("rn", "rz", "rm", "rp")
_HALVES = "f16 bf16 f16x2 bf16x2"


def _mode(how: frozenset[str]) -> str:
    return next((one for one in _MODES if one in how), "rn")


def _rows(site: Site, kind: str) -> list[Array]:
    return [site.row(number, kind) for number in range(1, len(site.operands))]


def of_halves(kind: str, function: Callable[..., Array], **how: Any) -> Callable[..., Array]:
    """A function of float64 on f16 or bf16, one or two in a register, with one rounding."""
    name, dtype = kind.removesuffix("x2"), KINDS[kind]
    low, shift = np.uint32(0xFFFF), np.uint32(16)

    def apply(*given: Array) -> Array:
        if not kind.endswith("x2"):
            values = [numbers.decode(one, name) for one in given]
            return numbers.encode(function(*values), name, **how).astype(dtype)
        codes = []
        for halves in ([one & low for one in given], [one >> shift for one in given]):
            codes.append(numbers.encode(function(*(numbers.decode(one, name) for one in halves)), name, **how))
        return codes[0] | codes[1] << shift

    return apply


def _options(how: frozenset[str]) -> dict[str, bool]:
    return {"ftz": "ftz" in how, "unit": "sat" in how}


def _subtracted(name: str) -> Callable[[Array, Array], Array]:
    return (lambda a, b: numbers.odd_sum(a, -b)) if name == "sub" else numbers.odd_sum


@opcode("add", "sub", "mul")
def arithmetic(site: Site) -> Step:
    site.count(3)
    kind, how = site.typed(f"f32 f64 f32x2 {_HALVES}", *_MODES, "ftz", "sat")
    target, rows, name, mode = site.target(0, kind), _rows(site, kind), site.name, _mode(how)
    if kind in _HALVES.split():
        function = (lambda a, b: a * b) if name == "mul" else _subtracted(name)
        return computing(target, of_halves(kind, function, **_options(how)), *rows)
    if kind == "f64":
        wide = {"add": numbers64.add64, "sub": _sub64, "mul": numbers64.mul64}[name]
        return computing(target, partial(wide, mode=mode), *rows)
    functions: dict[str, Callable[..., Array]] = {"add": numbers.add32, "sub": _sub32, "mul": numbers.mul32}
    given = partial(functions[name], mode=mode, **_options(how))
    return computing(target, given if kind == "f32" else _twice(given), *rows)


def _sub32(a: Array, b: Array, **how: object) -> Array:
    return numbers.add32(a, b ^ numbers.SIGN32, **how)  # type: ignore[arg-type]


def _sub64(a: Array, b: Array, mode: str) -> Array:
    return numbers64.add64(a, b ^ np.uint64(1 << 63), mode=mode)


def _twice(function: Callable[..., Array]) -> Callable[..., Array]:
    """Apply to both float32 of a 64-bit register."""
    shift = np.uint64(32)

    def apply(*given: Array) -> Array:
        low = function(*(one.astype(np.uint32) for one in given))
        high = function(*((one >> shift).astype(np.uint32) for one in given))
        return high.astype(np.uint64) << shift | low

    return apply


@opcode("fma", "mad")
def fused(site: Site) -> Step:
    """fma, and mad.f32, which is the same from sm_20 on."""
    site.count(4)
    kind, how = site.typed(f"f32 f64 f32x2 {_HALVES}", *_MODES, "ftz", "sat", "relu")
    target, rows, mode = site.target(0, kind), _rows(site, kind), _mode(how)
    if kind in _HALVES.split():
        options = {**_options(how), "relu": "relu" in how}
        return computing(target, of_halves(kind, lambda a, b, c: numbers.odd_sum(a * b, c), **options), *rows)
    if "relu" in how:
        raise site.refuse(".relu")
    if kind == "f64":
        return computing(target, partial(numbers64.fma64, mode=mode), *rows)
    given = partial(numbers.fma32, mode=mode, **_options(how))
    return computing(target, given if kind == "f32" else _twice(given), *rows)


@opcode("div")
def divide(site: Site) -> Step:
    kind, how = site.typed("f32 f64", *_MODES, "ftz", "full", "approx")
    target, a, b = site.target(0, kind), site.row(1, kind), site.row(2, kind)
    if kind == "f64":
        return computing(target, partial(numbers64.div64, mode=_mode(how)), a, b)
    if how & {"full", "approx"}:
        return computing(target, partial(_approximate_quotient, ftz="ftz" in how), a, b)
    return computing(target, partial(numbers.div32, mode=_mode(how), ftz="ftz" in how), a, b)


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


@opcode("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def function_of_one(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", *_MODES, "ftz", "approx")
    target, row, name = site.target(0, kind), site.row(1, kind), site.name.replace("rsqrt", "rsq")
    exact = {"sqrt": (numbers.sqrt32, numbers64.sqrt64), "rcp": (numbers.rcp32, _rcp64)}
    if "approx" not in how:
        if name not in exact or kind not in ("f32", "f64"):
            raise site.refuse()
        if kind == "f64":
            return computing(target, partial(exact[name][1], mode=_mode(how)), row)
        return computing(target, partial(exact[name][0], mode=_mode(how), ftz="ftz" in how), row)
    if kind in _HALVES.split() and name in ("ex2", "tanh"):
        return computing(target, _approximate_halves(name, kind, "ftz" in how), row)
    if kind == "f64" and name in ("rcp", "rsq") and "ftz" in how:
        return computing(
            target,
            lambda a: mufu.mufu64(name, (a >> np.uint64(32)).astype(np.uint32)).astype(np.uint64) << np.uint64(32),
            row,
        )
    if kind != "f32":
        raise site.refuse()
    return computing(target, lambda a: mufu.approximate(name, a, "ftz" in how), row)


def _rcp64(a: Array, mode: str) -> Array:
    return numbers64.div64(np.full_like(a, 0x3FF0_0000_0000_0000), a, mode=mode)


def _approximate_halves(name: str, kind: str, ftz: bool) -> Callable[[Array], Array]:
    half = kind.removesuffix("x2")

    def one(bits: Array) -> Array:
        wide = numbers.encode(numbers.decode(bits, half), "f32")
        return numbers.convert(mufu.approximate(name, wide, ftz), "f32", half)

    if half == kind:
        return lambda a: one(a).astype(np.uint16)
    return lambda a: one(a & np.uint32(0xFFFF)) | one(a >> np.uint32(16)) << np.uint32(16)


# --- signs, extremes -----------------------------------------------------------------------------


def _sign_mask(kind: str) -> Array:
    bit = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f32x2": 1 << 63 | 1 << 31}
    return KINDS[kind](bit.get(kind, 0x8000_8000))


@opcode("neg", "abs")
def sign(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz")
    mask, name, flushes = _sign_mask(kind), site.name, "ftz" in how and kind == "f32"

    def found(a: Array) -> Array:
        if flushes:
            a = numbers.flush32(a)
        return a ^ mask if name == "neg" else a & ~mask

    return computing(site.target(0, kind), found, site.row(1, kind))


@opcode("copysign")
def copy_sign(site: Site) -> Step:
    kind, _ = site.typed("f32 f64")
    mask = _sign_mask(kind)
    return computing(site.target(0, kind), lambda a, b: (b & ~mask) | (a & mask), site.row(1, kind), site.row(2, kind))


def _extreme(name: str, how: frozenset[str], half: str, *given: Array) -> Array:
    """The least or greatest of numbers given as bits; -0 is less than +0."""
    values = [numbers.decode(one, half) for one in given]
    best, codes, unknown = values[0], given[0], np.isnan(values[0])
    every = unknown
    for value, code in zip(values[1:], given[1:], strict=True):
        is_nan = np.isnan(value)
        better = value < best if name == "min" else value > best
        tied = (value == best) & (np.signbit(value) if name == "min" else ~np.signbit(value))
        takes = ((better | tied) & ~is_nan) | (every & ~is_nan)
        best, codes = np.where(takes, value, best), np.where(takes, code, codes)
        unknown, every = unknown | is_nan, every & is_nan
    shown = unknown if "NaN" in how else every
    nan = given[0].dtype.type(numbers.FORMATS[half].nan or 0)
    return np.where(shown, nan, codes)


@opcode("min", "max", "min3", "max3")
def extremes(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz", "NaN", "xorsign", "abs")
    if how & {"xorsign", "abs"} and (kind != "f32" or not how >= {"xorsign", "abs"} or site.name.endswith("3")):
        raise site.refuse()
    half, flushes = kind.removesuffix("x2"), "ftz" in how and kind == "f32"
    name = site.name.rstrip("3")

    def found(*given: Array) -> Array:
        if flushes:
            given = tuple(numbers.flush32(one) for one in given)
        if "xorsign" in how:
            a, b = given
            return _extreme(name, how, half, a & numbers.ABS32, b & numbers.ABS32) ^ (a ^ b) & numbers.SIGN32
        if half == kind:
            return _extreme(name, how, half, *given)
        low, high = ([one & np.uint32(0xFFFF) for one in given], [one >> np.uint32(16) for one in given])
        return _extreme(name, how, half, *low) | _extreme(name, how, half, *high) << np.uint32(16)

    return computing(site.target(0, kind), found, *_rows(site, kind))


@opcode("testp")
def test_property(site: Site) -> Step:
    kind, how = site.typed("f32 f64", "finite", "infinite", "number", "notanumber", "normal", "subnormal")
    smallest = 2.0**-126 if kind == "f32" else 2.0**-1022
    (what,) = how

    def found(bits: Array) -> Array:
        x = np.abs(numbers.decode(bits, kind))
        return {
            "finite": np.isfinite(x),
            "infinite": np.isinf(x),
            "number": ~np.isnan(x),
            "notanumber": np.isnan(x),
            "normal": np.isfinite(x) & (x >= smallest),
            "subnormal": (x > 0) & (x < smallest),
        }[what]

    return computing(site.target(0, "pred"), found, site.row(1, kind))
