"""Decode floating-point instructions of 16, 32 and 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.mufu import mufu, mufu64, mufu_half
from tritonhook.emulate.opcodes import rounding
from tritonhook.emulate.sass.integers import combined, comparison, names_of
from tritonhook.emulate.sass.site import FLOAT, Array, Reader, Site, modified, opcode, with_sign
from tritonhook.emulate.words import joined

MODES = ("RN", "RZ", "RM", "RP")
_SCALES = {"D2": 1 / 2, "D4": 1 / 4, "D8": 1 / 8, "M2": 2.0, "M4": 4.0, "M8": 8.0}  # factors of FMUL's product
_HALF = np.uint32(16)
_ARITHMETIC: dict[str, tuple[Any, str]] = {
    "FADD": (numbers.add32, "Rss"),
    "FMUL": (numbers.mul32, "Rss"),
    "FFMA": (numbers.fma32, "Rsss"),
    "DADD": (numbers64.add64, "Wdd"),
    "DMUL": (numbers64.mul64, "Wdd"),
    "DFMA": (numbers64.fma64, "Wddd"),
}


@opcode(*_ARITHMETIC, *(f"U{name}" for name in _ARITHMETIC if name[0] == "F"))
def arithmetic(site: Site) -> Step:
    function, operands = _ARITHMETIC[site.base.removeprefix("U")]
    if operands[0] == "W":
        return site.compute(partial(function, mode=rounding(site.known(*MODES))), operands)
    how = site.known("FTZ", "SAT", *MODES, *(_SCALES if site.base == "FMUL" else ()))
    if len(scales := [_SCALES[one] for one in how & {*_SCALES}]) > 1:
        raise site.refuse()
    given = {"scale": scales[0]} if scales else {}
    return site.compute(partial(function, mode=rounding(how), ftz="FTZ" in how, unit="SAT" in how, **given), operands)


@opcode("FADD2", "FMUL2", "FFMA2")
def pairs(site: Site) -> Step:
    """Decode FADD2, FMUL2 and FFMA2, which compute with the two float32 in a pair of registers."""
    function, operands = _ARITHMETIC[site.base[:-1]]
    how, put = site.known("FTZ", *MODES), site.target_pair()
    given = partial(function, mode=rounding(how), ftz="FTZ" in how)
    terms = [_two_singles(site) for _ in operands[1:]]
    site.done()
    return lambda g: put(g, numbers.twice(given, *(read(g) for read in terms)))


def _two_singles(site: Site) -> Reader:
    """Take a pair of float32. A single float32 (R4.F32, or a number) counts for both. LO_HI swaps the two."""
    name, dot, width = (text := site.text()).partition(".F32")
    sign, size, name = modified(name if dot else text)
    if size or (width not in ("x2.HI_LO", "x2.LO_HI") and (width or not (dot or FLOAT.match(text)))):
        raise site.refuse(f"operand {text}")
    if width == "x2.LO_HI":
        low, high = site.source_row(name, 1), site.source_row(name)
        read: Reader = lambda g: joined(low[g.s], high[g.s])  # noqa: E731
    elif width:
        read = site.pair(name)
    else:
        row = site.source_row(name)
        read = lambda g: joined(row[g.s], row[g.s])  # noqa: E731
    return with_sign(read, sign, False, np.uint64(0x8000_0000_8000_0000), np.uint64(0))


@opcode("FMNMX", "UFMNMX", "FMNMX3", "HMNMX2", "UHMNMX2", "VHMNMX")
def least(site: Site) -> Step:
    """Decode FMNMX and its forms for halves: the minimum where the predicate is true, else the maximum."""
    of_halves = "H" in site.base
    how = site.known("FTZ", "NAN", "XORSIGN", *(["BF16_V2"] if of_halves else []))
    kind, put = ("bf16" if "BF16_V2" in how else "f16") if of_halves else "f32", site.target()
    count = 3 if site.base in ("FMNMX3", "VHMNMX") else 2
    # XORSIGN compares absolute values and takes the sign from the signed sources. So bars around registers are removed;
    # a number may not be negative, except -0 and NaN.
    if signs := "XORSIGN" in how:
        if count > 2 or not all(re.match(r"\||\+?(\d|INF)|-0(\.0*)?$|[-+]?[QS]NAN", text) for text in site.given[:-1]):
            raise site.refuse()
        site.given[:2] = [text.replace("|", "") for text in site.given[:2]]
    options: dict[str, Any] = {"nan": "NAN" in how, "ftz": "FTZ" in how, "signs": signs}
    terms = [halves(site) if of_halves else site.single() for _ in range(count)]
    picks = [site.predicate() for _ in site.given.copy()]

    def extreme(a: Array, b: Array, lower: Array) -> Array:
        if of_halves:
            return numbers.by_halves(partial(comparisons.extreme, lower=lower, kind=kind, **options), a, b)
        return comparisons.extreme(a, b, lower, kind=kind, **options)

    return lambda g: put(g, combined(g, [read(g) for read in terms], picks, extreme))


@opcode("FSETP", "UFSETP", "DSETP", "HSETP2", "UHSETP2", "HSET2", "UHSET2")
def compare(site: Site) -> Step:
    """Decode comparisons of floats, which write two predicates: the result and its opposite. For pairs of halves, these
    are the results of the lower and of the upper halves. HSET2 writes the two results as halves: all bits set if true,
    or the number 1 with BF."""
    letter = site.base.removeprefix("U")[0]
    is_set = site.base.endswith("HSET2")
    more = {"F": ("FTZ",), "D": (), "H": ("BF16_V2", "FTZ", *(["BF"] if is_set else []))}[letter]
    if letter == "D" and {"MIN", "MAX"} & set(site.modifiers):
        return _extreme_of_doubles(site)
    how = site.known(*names_of(comparisons.FLOATS), *more)
    name, join = comparison(site, comparisons.FLOATS)
    kind = {"F": "f32", "D": "f64"}.get(letter, "bf16" if "BF16_V2" in how else "f16")
    targets = site.take("R" if is_set else "PP")
    a, b = (halves(site), halves(site)) if letter == "H" else site.take("ss" if letter == "F" else "dd")
    (other,) = site.take("p.")
    function, true = comparisons.FLOATS[name], np.uint32(0xFFFF)
    if "BF" in how:
        true = np.uint32(0x3F80 if kind == "bf16" else 0x3C00)

    def test(x: Array, y: Array) -> Array:
        if "FTZ" in how:
            x, y = numbers.flush(x, kind), numbers.flush(y, kind)
        return function(comparisons.shown(x, kind), comparisons.shown(y, kind))

    def step(g: Group) -> None:
        x, y, with_other = a(g), b(g), other(g).copy()
        if letter == "H":
            found, opposite = (test(*pair) for pair in zip(numbers.halves_of(x), numbers.halves_of(y), strict=True))
        else:
            found = test(x, y)
            opposite = ~found
        results = [join(found, with_other), join(opposite, with_other)]
        if is_set:
            low, high = (np.where(one, true, np.uint32(0)) for one in results)
            results = [low | high << _HALF]
        for put, result in zip(targets, results, strict=True):
            put(g, result)

    return step


def _extreme_of_doubles(site: Site) -> Step:
    """Decode DSETP.MIN and .MAX (measured on a GPU). The first predicate is true if the result is the first source. The
    second predicate is true if both sources are NaN; then the result is the second source."""
    how = site.known("MIN", "MAX", "AND")
    first, both_nan, a, b, other = site.take("PPddp.")

    def step(g: Group) -> None:
        x, y, given = a(g), b(g), other(g)
        if not given[g.active].all():
            raise site.refuse("a predicate that is false")
        none = numbers.is_nan(x, "f64") & numbers.is_nan(y, "f64")
        first(g, ~none & (comparisons.extreme(x, y, "MIN" in how, False, "f64") == x))
        both_nan(g, none)

    return step


@opcode("FSET", "UFSET")
def compare_to_float(site: Site) -> Step:
    how = site.known(*names_of(comparisons.FLOATS), "FTZ", "BF")
    name, join = comparison(site, comparisons.FLOATS)
    function, true = comparisons.FLOATS[name], np.uint32(0x3F80_0000 if "BF" in how else 0xFFFF_FFFF)

    def found(x: Array, y: Array, other: Array) -> Array:
        if "FTZ" in how:
            x, y = numbers.flush32(x), numbers.flush32(y)
        return np.where(join(function(x.view(np.float32), y.view(np.float32)), other), true, np.uint32(0))

    return site.compute(found, "Rssp")


@opcode("FSEL", "UFSEL")
def select(site: Site) -> Step:
    flushes = "FTZ" in site.known("FTZ")

    def found(a: Array, b: Array, flag: Array) -> Array:
        chosen = np.where(flag, a, b)
        return numbers.flush32(chosen) if flushes else chosen

    return site.compute(found, "Rssp")


@opcode("FCHK")
def check_division(site: Site) -> Step:
    """Decode FCHK, which tests whether a division needs the slow path: its divisor or quotient is very large or
    small."""
    site.known("DIVIDE")

    def found(a: Array, b: Array) -> Array:
        high, low = ((code >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64) for code in (a, b))
        return ~((low > 1) & (low < 253) & (high > 24) & (high < 255) & (high - low > -125) & (high - low < 126))

    return site.compute(found, "Pss")


_FUNCTIONS = {one.upper(): one for one in ("ex2", "lg2", "rcp", "rsq", "sin", "cos", "tanh")} | {"SQRT": "sqrt"}


@opcode("MUFU", "UMUFU")
def special_function(site: Site) -> Step:
    how = site.known(*_FUNCTIONS, "RCP64H", "RSQ64H", "F16", "BF16")
    kinds = how & {"F16", "BF16"}
    name = "".join(how - kinds)
    if len(how) == 1 and name.endswith("64H"):
        return site.compute(partial(mufu64, name[:3].lower()), "Rs")
    if name not in _FUNCTIONS or len(how) - len(kinds) > 1 or len(kinds) > 1:
        raise site.refuse()
    if not kinds:
        return site.compute(partial(mufu, _FUNCTIONS[name]), "Rs")
    put, text, kind = site.target(), site.text(), "".join(kinds).lower()
    sign, size, text = modified(text)
    head, _, which = text.partition(".")
    site.done()
    if which not in ("", "H0", "H1") or (name not in ("EX2", "TANH")):
        raise site.refuse()
    row, shift = site.register(head), np.uint32(16 if which == "H1" else 0)
    read = with_sign(lambda g: row[g.s] >> shift & _LOW, sign, size, np.uint32(0x8000), np.uint32(0x7FFF))
    return lambda g: put(g, mufu_half(_FUNCTIONS[name], read(g), kind))


# --- two halves ----------------------------------------------------------------------------------


def halves(site: Site) -> Reader:
    """Take a pair of halves: a register, one half of it twice (R4.H0_H0), or two numbers."""
    if site.next_is(r"[-+]?(\d[\d.e+-]*|INF|QNAN|SNAN)") and not site.given[0].startswith("0x"):
        site.text(), site.text()  # the upper and the lower number; the immediate holds both
        row = site.decoder.constant(site.immediate)
        return lambda g: row[g.s]
    text = site.text()
    sign, size, name = modified(text)
    name, _, which = name.partition(".") if not name.startswith("c[") else _constant_half(name)
    if which not in _HALVES:
        raise site.refuse(f"operand {text}")
    read = _HALVES[which](site.source_row(name))
    return with_sign(read, sign, size, np.uint32(0x8000_8000), np.uint32(0x7FFF_7FFF))


def _constant_half(name: str) -> tuple[str, str, str]:
    head, _, which = name.partition("].H")
    return (f"{head}]", ".", f"H{which}") if which else (name, "", "")


_LOW = np.uint32(0xFFFF)
_HALVES: dict[str, Callable[[Array], Reader]] = {
    "": lambda row: lambda g: row[g.s],
    "H1_H0": lambda row: lambda g: row[g.s],
    "H0_H0": lambda row: lambda g: (row[g.s] & _LOW) | row[g.s] << _HALF,
    "H1_H1": lambda row: lambda g: row[g.s] >> _HALF | (row[g.s] & ~_LOW),
    "H0_H1": lambda row: lambda g: row[g.s] >> _HALF | row[g.s] << _HALF,
    "H0_NH1": lambda row: lambda g: (row[g.s] >> _HALF | row[g.s] << _HALF) ^ np.uint32(0x8000),
}


_PACKED: dict[str, tuple[Any, int]] = {
    "HADD2": (numbers.add_halves, 2),
    "HMUL2": (numbers.mul_halves, 2),
    "HFMA2": (numbers.fma_halves, 3),
}


@opcode(*_PACKED, *(f"U{name}" for name in _PACKED))
def packed(site: Site) -> Step:
    how = site.known("MMA", "BF16_V2", "F32", "FTZ", "SAT", "RELU", "BF16", "OOB")
    if how >= {"BF16", "BF16_V2"}:
        raise site.refuse()
    function, count = _PACKED[site.base.removeprefix("U")]
    if "OOB" in how:
        if count != 3 or how & {"F32", "FTZ", "SAT", "BF16"}:
            raise site.refuse()
        name = "bf16" if "BF16_V2" in how else "f16"
        function = partial(numbers.fma_oob, name=name, relu="RELU" in how)
        put, terms = site.target(), [halves(site) for _ in range(count)]
        site.done()
        return lambda g: put(g, numbers.by_halves(function, *(read(g) for read in terms)))
    if "F32" in how and (count != 2 or how - {"F32", "MMA", "SAT"}):
        raise site.refuse()
    put, terms = site.target(), [halves(site) for _ in range(count)]
    site.done()
    given: dict[str, Any] = {"ftz": "FTZ" in how, "unit": "SAT" in how, "relu": "RELU" in how}
    if "F32" in how:
        function = partial(_to_single, **given)
    else:
        function = partial(function, name="bf16" if how & {"BF16_V2", "BF16"} else "f16", **given)
    return lambda g: put(g, function(*(read(g) for read in terms)))


def _to_single(a: Array, b: Array, **how: Any) -> Array:
    """Add the lower halves of two registers as float32 (HADD2.F32)."""
    x, y = (numbers.decode(one & _LOW, "f16") for one in (a, b))
    return numbers.encode(x + y, "f32", **how)
