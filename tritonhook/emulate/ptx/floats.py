"""Steps of floating-point arithmetic. Numbers are bit patterns; emulate/numbers.py rounds, emulate/mufu.py
approximates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, compiled, mufu, numbers, numbers64
from tritonhook.emulate.machine import Step
from tritonhook.emulate.opcodes import only, rounding
from tritonhook.emulate.ptx.site import KINDS, Array, Site, opcode

_MODES = ("rn", "rz", "rm", "rp")
_HALVES = "f16 bf16 f16x2 bf16x2"


def _each(site: Site, kind: str, function: Callable[..., Array]) -> Callable[..., Array]:
    """Make a function of registers from a function of bit patterns of single numbers. For x2 types, it computes both
    numbers of a register. With Run.other_nan, it returns another NaN in place of each NaN."""
    if which := site.decoder.other_nan:
        given, name = function, kind.removesuffix("x2")
        function = lambda *codes: numbers.other_nan(given(*codes), name, which, *codes)  # noqa: E731
    if kind == "f32x2":
        return partial(numbers.twice, function)
    if kind.endswith("x2"):
        return partial(numbers.by_halves, function)
    return function if kind in ("f32", "f64") else lambda *given: function(*given).astype(np.uint16)


# Functions for 16-bit types (on float64), f32 and f64, in this order.
_OPERATIONS: Mapping[str, tuple[Any, Any, Any]] = {
    "add": (numbers.odd_sum, numbers.add32, numbers64.add64),
    "mul": (np.multiply, numbers.mul32, numbers64.mul64),
    "fma": (lambda a, b, c: numbers.odd_sum(a * b, c), numbers.fma32, numbers64.fma64),
}


@opcode("add", "sub", "mul", "fma", "mad")
def arithmetic(site: Site) -> Step:
    """Make the step of a sum, product or fma. mad.f32 is fma from sm_20 on."""
    kind, how = site.typed(f"f32 f64 f32x2 {_HALVES}", *_MODES, "ftz", "sat", "relu", "oob")
    name = {"mad": "fma", "sub": "add"}.get(site.name, site.name)
    sources = 3 if name == "fma" else 2
    site.count(sources + 1)
    of_half, single, double = _OPERATIONS[name]
    options: dict[str, Any] = {"ftz": "ftz" in how, "unit": "sat" in how}
    half, of_fma = kind.removesuffix("x2"), {"relu", "oob"}
    unknown = {"f64": {"ftz", "sat", *of_fma}, "f16": {"rz", "rm", "rp"}, "bf16": {"rz", "rm", "rp", "ftz", "sat"}}
    if how & unknown.get(half, of_fma) or (how & of_fma and (site.name != "fma" or "sat" in how)):
        raise site.refuse()
    if {"oob", "ftz"} <= how:
        raise site.refuse()
    if half in ("f16", "bf16"):
        function = numbers.of_format(of_half, half, **options, relu="relu" in how)
        if "oob" in how:
            function = partial(numbers.fma_oob, name=half, relu="relu" in how)
    elif kind == "f64":
        function = partial(double, mode=rounding(how))
    else:
        function = partial(single, mode=rounding(how), **options)
    everyone = site.decoder.everyone
    if name == "fma" and kind == "f32" and how == {"rn"} and not site.decoder.other_nan and everyone is not None:
        rows = [site.row(number, kind) for number in (1, 2, 3)]
        if (step := compiled.fma32(site.target(0, kind), rows, everyone)) is not None:
            return step
    function = _each(site, kind, function)
    if site.name == "sub":
        mask, is_double = sign_mask(kind), kind == "f64"
        return site.compute(
            lambda a, b: function(a, numbers64.with_sign(b) if is_double else b ^ mask), kind, kind, kind
        )
    return site.compute(function, kind, *[kind] * sources)


@opcode("div")
def divide(site: Site) -> Step:
    kind, how = site.typed("f32 f64", *_MODES, "ftz", "full", "approx")
    if kind == "f64" and how & {"ftz", "full", "approx"}:
        raise site.refuse()
    if kind == "f64":
        function = partial(numbers64.div64, mode=rounding(how))
    elif how & {"full", "approx"}:
        function = partial(mufu.quotient, full="full" in how, ftz="ftz" in how)
    else:
        function = partial(numbers.div32, mode=rounding(how), ftz="ftz" in how)
    return site.compute(_each(site, kind, function), kind, kind, kind)


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
        if (name, kind) not in _EXACT or (ftz and kind == "f64"):
            raise site.refuse()
        options: dict[str, Any] = {"ftz": ftz} if kind == "f32" else {}
        return site.compute(_each(site, kind, partial(_EXACT[name, kind], mode=rounding(how), **options)), kind, kind)
    if how & {*_MODES}:
        raise site.refuse()
    if kind == "f32":
        return site.compute(_each(site, kind, lambda a: mufu.approximate(name, a, ftz)), kind, kind)
    if kind == "f64" and name in ("rcp", "rsq") and ftz:
        upper = np.uint64(32)
        function = lambda a: mufu.mufu64(name, (a >> upper).astype(np.uint32)).astype(np.uint64) << upper  # noqa: E731
        return site.compute(_each(site, kind, function), kind, kind)
    if kind == "f64" and name == "rsq":
        return site.compute(mufu.rsqrt64, kind, kind)
    if kind == "f64" or name not in ("ex2", "tanh"):
        raise site.refuse()
    if ftz != (name == "ex2" and kind.startswith("bf16")):
        raise site.refuse()
    function = lambda codes: mufu.mufu_half(name, codes, kind.removesuffix("x2"))  # noqa: E731
    return site.compute(_each(site, kind, function), kind, kind)


# --- signs, extremes -----------------------------------------------------------------------------


def sign_mask(kind: str) -> Array:
    """Return the sign bits of a register of this type."""
    bit = {"f32": 1 << 31, "f64": 1 << 63, "f16": 1 << 15, "bf16": 1 << 15, "f32x2": 1 << 63 | 1 << 31}
    return KINDS[kind](bit.get(kind, 0x8000_8000))


@opcode("neg", "abs")
def sign(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz")
    if "ftz" in how and kind not in ("f32", "f16", "f16x2"):
        raise site.refuse(".ftz")
    options: dict[str, Any] = {"negates": site.name == "neg", "ftz": "ftz" in how}
    function = partial(numbers.with_sign, name=kind.removesuffix("x2"), **options)
    return site.compute(_each(site, kind, function), kind, kind)


@opcode("copysign")
def copy_sign(site: Site) -> Step:
    kind, _ = site.typed("f32 f64")
    mask = sign_mask(kind)
    return site.compute(lambda a, b: (b & ~mask) | (a & mask), kind, kind, kind)


@opcode("min", "max")
def extremes(site: Site) -> Step:
    kind, how = site.typed(f"f32 f64 {_HALVES}", "ftz", "NaN", "xorsign", "abs")
    signs, three = how >= {"xorsign", "abs"}, len(site.operands) == 4
    if (how & {"xorsign", "abs"} and (not signs or three)) or (how and kind == "f64") or (three and kind != "f32"):
        raise site.refuse()
    if "ftz" in how and kind.startswith("bf16"):
        raise site.refuse(".ftz")
    options: dict[str, Any] = {"nan": "NaN" in how, "ftz": "ftz" in how, "signs": signs}
    both = partial(comparisons.extreme, lower=site.name.startswith("min"), kind=kind.removesuffix("x2"), **options)
    site.count(4 if three else 3)
    return site.compute(_each(site, kind, lambda *given: reduce(both, given)), kind, *[kind] * (len(site.operands) - 1))


_PROPERTIES: Mapping[str, Callable[[Array, float], Array]] = {
    "finite": lambda x, _: np.isfinite(x),
    "infinite": lambda x, _: np.isinf(x),
    "number": lambda x, _: ~np.isnan(x),
    "notanumber": lambda x, _: np.isnan(x),
    # Zero counts as normal: measured on a GPU; ptxas writes the same for sm_80 to sm_120.
    "normal": lambda x, least: np.isfinite(x) & ((x >= least) | (x == 0)),
    "subnormal": lambda x, least: (x > 0) & (x < least),
}


@opcode("testp")
def test_property(site: Site) -> Step:
    kind, how = site.typed("f32 f64", *_PROPERTIES)
    name = only(site, how)
    least = 2.0 ** numbers.FORMATS[kind].least
    return site.compute(lambda a: _PROPERTIES[name](np.abs(numbers.decode(a, kind)), least), "pred", kind)
