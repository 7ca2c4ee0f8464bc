"""Floating-point instructions of 16, 32 and 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons, numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.mufu import mufu, mufu64
from tritonhook.emulate.opcodes import rounding
from tritonhook.emulate.sass.integers import comparison, names_of
from tritonhook.emulate.sass.site import FLOAT, Array, Reader, Site, modified, opcode, with_sign
from tritonhook.emulate.words import joined

MODES = ("RN", "RZ", "RM", "RP")
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
    how = site.known("FTZ", "SAT", *MODES)
    return site.compute(partial(function, mode=rounding(how), ftz="FTZ" in how, unit="SAT" in how), operands)


@opcode("FADD2", "FMUL2", "FFMA2")
def pairs(site: Site) -> Step:
    """Compute with both float32 of 64 bits."""
    function, operands = _ARITHMETIC[site.base[:-1]]
    how, put = site.known("FTZ", *MODES), site.target_pair()
    given = partial(function, mode=rounding(how), ftz="FTZ" in how)
    terms = [_two_singles(site) for _ in operands[1:]]
    site.done()
    return lambda g: put(g, numbers.twice(given, *(read(g) for read in terms)))


def _two_singles(site: Site) -> Reader:
    """Take a pair of float32, or one (R4.F32, a number) for both. LO_HI: they change places."""
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
    """The least where the predicate is true, else the greatest."""
    of_halves = "H" in site.base
    how = site.known("FTZ", "NAN", "XORSIGN", *(["BF16_V2"] if of_halves else []))
    if of_halves and how & {"XORSIGN", "FTZ"}:
        raise site.refuse()
    kind, put = ("bf16" if "BF16_V2" in how else "f16") if of_halves else "f32", site.target()
    signs = [site.source_row(text.strip("|")) for text in site.given[:2]] if "XORSIGN" in how else []
    count = 3 if site.base in ("FMNMX3", "VHMNMX") else 2
    terms = [halves(site) if of_halves else site.single() for _ in range(count)]
    picks = [site.predicate() for _ in site.given.copy()]

    def step(g: Group) -> None:
        values = [read(g) for read in terms]
        if "FTZ" in how:
            values = [numbers.flush32(value) for value in values]
        found = values[0]
        for number, value in enumerate(values[1:]):
            lower = picks[min(number, len(picks) - 1)](g)
            both = partial(comparisons.extreme, lower=lower, nan="NAN" in how, kind=kind)
            found = numbers.by_halves(both, found, value) if of_halves else both(found, value)
        put(g, reduce(lambda a, row: a ^ row[g.s] & numbers.SIGN32, signs, found))

    return step


@opcode("FSETP", "UFSETP", "DSETP", "HSETP2", "UHSETP2")
def compare(site: Site) -> Step:
    """Write two predicates; those of halves are for the lower and for the upper ones."""
    letter = site.base.removeprefix("U")[0]
    more = {"F": ("FTZ",), "D": (), "H": ("BF16_V2", "FTZ", "H_AND")}[letter]
    how = site.known(*names_of(comparisons.FLOATS), *more)
    if "H_AND" in how:
        raise site.refuse()
    name, join = comparison(site, comparisons.FLOATS)
    kind = {"F": "f32", "D": "f64"}.get(letter, "bf16" if "BF16_V2" in how else "f16")
    first, second = site.take("PP")
    a, b = (halves(site), halves(site)) if letter == "H" else site.take("ss" if letter == "F" else "dd")
    (other,) = site.take("p.")
    function = comparisons.FLOATS[name]

    def step(g: Group) -> None:
        x, y = a(g), b(g)
        if "FTZ" in how and letter == "F":
            x, y = numbers.flush32(x), numbers.flush32(y)
        with_other = other(g).copy()
        if letter == "H":
            pairs = zip(numbers.halves_of(x), numbers.halves_of(y), strict=True)
            found, opposite = (function(comparisons.shown(u, kind), comparisons.shown(v, kind)) for u, v in pairs)
        else:
            found = function(comparisons.shown(x, kind), comparisons.shown(y, kind))
            opposite = ~found
        first(g, join(found, with_other))
        second(g, join(opposite, with_other))

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
    """Whether a quotient needs the slow path: too large or small a divisor or quotient."""
    site.known("DIVIDE")

    def found(a: Array, b: Array) -> Array:
        high, low = ((code >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64) for code in (a, b))
        return ~((low > 1) & (low < 253) & (high > 24) & (high < 255) & (high - low > -125) & (high - low < 126))

    return site.compute(found, "Pss")


_FUNCTIONS = {one.upper(): one for one in ("ex2", "lg2", "rcp", "rsq", "sin", "cos", "tanh")} | {"SQRT": "sqrt"}


@opcode("MUFU", "UMUFU")
def special_function(site: Site) -> Step:
    how = site.known(*_FUNCTIONS, "RCP64H", "RSQ64H")
    if len(how) != 1:
        raise site.refuse()
    (name,) = how
    if name.endswith("64H"):
        return site.compute(partial(mufu64, name[:3].lower()), "Rs")
    return site.compute(partial(mufu, _FUNCTIONS[name]), "Rs")


# --- two halves ----------------------------------------------------------------------------------


def halves(site: Site) -> Reader:
    """Take two halves: of a register, one of its halves twice, the upper part of a float, or two numbers."""
    if site.next_is(r"[-+]?(\d[\d.e+-]*|INF|QNAN|SNAN)") and not site.given[0].startswith("0x"):
        site.text(), site.text()  # the upper and the lower one: both are in the immediate
        row = site.decoder.constant(site.immediate)
        return lambda g: row[g.s]
    text = site.text()
    sign, size, name = modified(text)
    name, _, which = name.partition(".") if not name.startswith("c[") else _constant_half(name)
    row = site.source_row(name)
    read: Reader = _HALVES[which](row) if which in _HALVES else _refused(site, text)
    return with_sign(read, sign, size, np.uint32(0x8000_8000), np.uint32(0x7FFF_7FFF))


def _constant_half(name: str) -> tuple[str, str, str]:
    head, _, which = name.partition("].H")
    return (f"{head}]", ".", f"H{which}") if which else (name, "", "")


def _refused(site: Site, text: str) -> Reader:
    raise site.refuse(f"operand {text}")


_LOW = np.uint32(0xFFFF)
_HALVES: dict[str, Callable[[Array], Reader]] = {
    "": lambda row: lambda g: row[g.s],
    "H1_H0": lambda row: lambda g: row[g.s],
    "H0_H0": lambda row: lambda g: (row[g.s] & _LOW) | row[g.s] << _HALF,
    "H1_H1": lambda row: lambda g: row[g.s] >> _HALF | (row[g.s] & ~_LOW),
    "H0_H1": lambda row: lambda g: row[g.s] >> _HALF | row[g.s] << _HALF,
}


_PACKED: dict[str, tuple[Any, int]] = {
    "HADD2": (numbers.add_halves, 2),
    "HMUL2": (numbers.mul_halves, 2),
    "HFMA2": (numbers.fma_halves, 3),
}


@opcode(*_PACKED, *(f"U{name}" for name in _PACKED))
def packed(site: Site) -> Step:
    how = site.known("MMA", "BF16_V2", "F32", "FTZ", "SAT", "RELU", "BF16")
    function, count = _PACKED[site.base.removeprefix("U")]
    if "F32" in how and (count != 2 or "BF16_V2" in how):
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
    """HADD2.F32: the sum of two lower halves as float32."""
    x, y = (numbers.decode(one & _LOW, "f16") for one in (a, b))
    return numbers.encode(x + y, "f32", **how)
