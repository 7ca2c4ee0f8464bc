"""Floating-point instructions of 16, 32 and 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tritonhook.emulate import numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.mufu import mufu, mufu64
from tritonhook.emulate.sass.integers import JOINS
from tritonhook.emulate.sass.site import Array, Reader, Site, _modified, opcode, with_sign

MODES = {"RN": "rn", "RZ": "rz", "RM": "rm", "RP": "rp"}
_LOW = np.uint32(0xFFFF)
_HALF = np.uint32(16)


def rounding(how: frozenset[str]) -> str:
    return next((mode for name, mode in MODES.items() if name in how), "rn")


def _ftz(how: frozenset[str]) -> bool:
    return "FTZ" in how


@opcode("FADD", "UFADD")
def add(site: Site) -> Step:
    how = site.known("FTZ", "SAT", *MODES)
    put, a, b = site.target(), site.single(), site.single()
    site.done()
    mode, ftz, unit = rounding(how), _ftz(how), "SAT" in how
    return lambda g: put(g, numbers.add32(a(g), b(g), mode, ftz, unit))


@opcode("FMUL", "UFMUL")
def multiply(site: Site) -> Step:
    how = site.known("FTZ", "SAT", *MODES)
    put, a, b = site.target(), site.single(), site.single()
    site.done()
    mode, ftz, unit = rounding(how), _ftz(how), "SAT" in how
    return lambda g: put(g, numbers.mul32(a(g), b(g), mode, ftz, unit))


@opcode("FFMA", "UFFMA")
def multiply_add(site: Site) -> Step:
    how = site.known("FTZ", "SAT", *MODES)
    put, a, b, c = site.target(), site.single(), site.single(), site.single()
    site.done()
    mode, ftz, unit = rounding(how), _ftz(how), "SAT" in how
    return lambda g: put(g, numbers.fma32(a(g), b(g), c(g), mode, ftz, unit))


def least_or_most(x: Array, y: Array, lower: Array, nan: bool) -> Array:
    """The codes of min or max of float32: a number rather than NaN (or, with nan, NaN rather than a number); -0 is
    below +0."""
    order = [np.where(code >> np.uint32(31) == 1, ~code, code | numbers.SIGN32) for code in (x, y)]
    found = np.where((order[0] <= order[1]) == lower, x, y)
    a, b = ((code & numbers.ABS32) > np.uint32(0x7F80_0000) for code in (x, y))
    if nan:
        return np.where(a | b, numbers.NAN32, found)
    return np.where(a & b, numbers.NAN32, np.where(a, y, np.where(b, x, found)))


@opcode("FMNMX", "UFMNMX", "FMNMX3")
def least(site: Site) -> Step:
    how = site.known("FTZ", "NAN", "XORSIGN")
    put = site.target()
    signs = [site.source_row(text.strip("|")) for text in site.given[:2]] if "XORSIGN" in how else []
    terms = [site.single() for _ in range(3 if site.base.endswith("3") else 2)]
    picks = [site.predicate() for _ in site.given.copy()]

    def step(g: Group) -> None:
        values = [read(g) for read in terms]
        if "FTZ" in how:
            values = [numbers.flush32(value) for value in values]
        found = values[0]
        for number, value in enumerate(values[1:]):
            found = least_or_most(found, value, picks[min(number, len(picks) - 1)](g), "NAN" in how)
        for row in signs:
            found = found ^ row[g.s] & numbers.SIGN32
        put(g, found)

    return step


# The comparisons with U are also true if one of both is NaN.
_UNORDERED = {"LTU": "LT", "LEU": "LE", "GTU": "GT", "GEU": "GE", "EQU": "EQ", "NEU": "NE"}
_ORDERED: dict[str, Callable[[Array, Array], Array]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
}


def _comparison(site: Site, how: frozenset[str]) -> Callable[[Array, Array], Array]:
    (name,) = [one for one in site.modifiers if one in _COMPARISONS][:1] or [""]
    if not name:
        raise site.refuse()
    if name in _ORDERED:
        return _ORDERED[name]
    if name == "NE":
        return lambda x, y: (x != y) & (x == x) & (y == y)
    if name in ("NUM", "NAN"):
        return lambda x, y: ((x == x) & (y == y)) == (name == "NUM")
    if name == "NEU":
        return lambda x, y: x != y
    ordered = _ORDERED[_UNORDERED[name]]
    return lambda x, y: ordered(x, y) | (x != x) | (y != y)


_COMPARISONS = (*_ORDERED, "NE", *_UNORDERED, "NUM", "NAN")


def _setp(site: Site, read: Callable[[], Reader], values: Callable[[Array], Array], *modifiers: str) -> Step:
    how = site.known(*_COMPARISONS, *JOINS, "FTZ", *modifiers)
    function = _comparison(site, how)
    join = JOINS[next((one for one in JOINS if one in how), "AND")]
    targets = [site.flag_writer(one) for one in (site.text(), site.text())]
    a, b, other = read(), read(), site.predicate()
    site.done()

    def step(g: Group) -> None:
        x, y = a(g), b(g)
        if "FTZ" in how:
            x, y = numbers.flush32(x), numbers.flush32(y)
        found, with_other = function(values(x), values(y)), other(g).copy()
        targets[0](g, join(found, with_other))
        targets[1](g, join(~found, with_other))

    return step


@opcode("FSETP", "UFSETP")
def compare(site: Site) -> Step:
    return _setp(site, site.single, lambda codes: codes.view(np.float32))


@opcode("DSETP")
def compare_doubles(site: Site) -> Step:
    return _setp(site, lambda: double(site), lambda codes: codes.view(np.float64))


@opcode("FSET", "UFSET")
def compare_to_float(site: Site) -> Step:
    how = site.known(*_COMPARISONS, *JOINS, "FTZ", "BF")
    function = _comparison(site, how)
    join = JOINS[next((one for one in JOINS if one in how), "AND")]
    put, a, b, other = site.target(), site.single(), site.single(), site.predicate()
    site.done()
    true = np.uint32(0x3F80_0000 if "BF" in how else 0xFFFF_FFFF)

    def step(g: Group) -> None:
        x, y = a(g), b(g)
        if "FTZ" in how:
            x, y = numbers.flush32(x), numbers.flush32(y)
        found = join(function(x.view(np.float32), y.view(np.float32)), other(g))
        put(g, np.where(found, true, np.uint32(0)))

    return step


@opcode("FSEL", "UFSEL")
def select(site: Site) -> Step:
    how = site.known("FTZ")
    put, a, b, flag = site.target(), site.single(), site.single(), site.predicate()
    site.done()

    def step(g: Group) -> None:
        found = np.where(flag(g), a(g), b(g))
        put(g, numbers.flush32(found) if "FTZ" in how else found)

    return step


@opcode("FCHK")
def check_division(site: Site) -> Step:
    """Whether a quotient needs the slow path: too large or small a divisor or quotient."""
    site.known("DIVIDE")
    put, a, b = site.target_flag(), site.single(), site.single()
    site.done()

    def step(g: Group) -> None:
        high, low = ((code >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64) for code in (a(g), b(g)))
        fine = (low > 1) & (low < 253) & (high > 24) & (high < 255) & (high - low > -125) & (high - low < 126)
        put(g, ~fine)

    return step


_FUNCTIONS = {one.upper(): one for one in ("ex2", "lg2", "rcp", "rsq", "sin", "cos", "tanh")} | {"SQRT": "sqrt"}


@opcode("MUFU", "UMUFU")
def special_function(site: Site) -> Step:
    how = site.known(*_FUNCTIONS, "RCP64H", "RSQ64H", "F16", "BF16_V2", "BF16")
    if len(how) != 1:
        raise site.refuse()
    (name,) = how
    put, read = site.target(), site.single()
    site.done()
    if name.endswith("64H"):
        return lambda g: put(g, mufu64(name[:3].lower(), read(g)))
    return lambda g: put(g, mufu(_FUNCTIONS[name], read(g)))


@opcode("FSWZADD")
def swizzled_add(site: Site) -> Step:
    raise site.refuse()


# --- 64 bits -------------------------------------------------------------------------------------


def double(site: Site) -> Reader:
    """Take a float64: a pair of registers, a constant, or the upper word of a number."""
    sign, size, text = _modified(site.text().removesuffix(".64"))
    if re.match(r"[-+]?(\d|INF|QNAN)", text) and not text.startswith("0x"):
        row = np.full(site.machine.threads, site.immediate << 32, np.uint64)
        read: Reader = lambda g: row[g.s]  # noqa: E731
    else:
        read = site.pair(text)
    return with_sign(read, sign, size, np.uint64(1 << 63), np.uint64((1 << 63) - 1))


def _doubles(count: int, function: Callable[..., Array]) -> Callable[[Site], Step]:
    def maker(site: Site) -> Step:
        how = site.known(*MODES)
        put, terms = site.target_pair(), [double(site) for _ in range(count)]
        site.done()
        mode = rounding(how)
        return lambda g: put(g, function(*(read(g) for read in terms), mode))

    return maker


opcode("DADD")(_doubles(2, numbers64.add64))
opcode("DMUL")(_doubles(2, numbers64.mul64))
opcode("DFMA")(_doubles(3, numbers64.fma64))


# --- two halves ----------------------------------------------------------------------------------


def halves(site: Site, kind: str) -> Reader:
    """Take two halves: of a register, one of its halves twice, the upper part of a float, or two numbers."""
    if site.next_is(r"[-+]?(\d[\d.e+-]*|INF|QNAN|SNAN)") and not site.given[0].startswith("0x"):
        site.text(), site.text()  # the upper and the lower one: both are in the immediate
        row = site.decoder.constant(site.immediate)
        return lambda g: row[g.s]
    text = site.text()
    sign, size, name = _modified(text)
    name, _, which = name.partition(".") if not name.startswith("c[") else _constant_half(name)
    row = site.source_row(name)
    read: Reader = _HALVES[which](row) if which in _HALVES else _refused(site, text)
    return with_sign(read, sign, size, np.uint32(0x8000_8000), np.uint32(0x7FFF_7FFF))


def _constant_half(name: str) -> tuple[str, str, str]:
    head, _, which = name.partition("].H")
    return (f"{head}]", ".", f"H{which}") if which else (name, "", "")


def _refused(site: Site, text: str) -> Reader:
    raise site.refuse(f"operand {text}")


_HALVES: dict[str, Callable[[Array], Reader]] = {
    "": lambda row: lambda g: row[g.s],
    "H1_H0": lambda row: lambda g: row[g.s],
    "H0_H0": lambda row: lambda g: (row[g.s] & _LOW) | row[g.s] << _HALF,
    "H1_H1": lambda row: lambda g: row[g.s] >> _HALF | (row[g.s] & ~_LOW),
    "H0_H1": lambda row: lambda g: row[g.s] >> _HALF | row[g.s] << _HALF,
}


def _packed(count: int, function: Callable[..., Array]) -> Callable[[Site], Step]:
    def maker(site: Site) -> Step:
        how = site.known("MMA", "BF16_V2", "F32", "FTZ", "SAT", "RELU", "FMZ", "BF16")
        if "FMZ" in how or ("F32" in how and (count != 2 or "BF16_V2" in how)):
            raise site.refuse()
        kind = "bf16" if how & {"BF16_V2", "BF16"} else "f16"
        put, terms = site.target(), [halves(site, kind) for _ in range(count)]
        site.done()
        given: dict[str, Any] = {"ftz": _ftz(how), "unit": "SAT" in how, "relu": "RELU" in how}
        if "F32" in how:
            return lambda g: put(g, _to_single(terms[0](g), terms[1](g), given))
        return lambda g: put(g, function(*(read(g) for read in terms), kind, **given))

    return maker


def _to_single(a: Array, b: Array, how: dict[str, bool]) -> Array:
    """HADD2.F32: the sum of two lower halves as float32."""
    x, y = (numbers.decode(one & _LOW, "f16") for one in (a, b))
    return numbers.encode(x + y, "f32", **how)  # type: ignore[arg-type]


opcode("HADD2", "UHADD2")(_packed(2, numbers.add_halves))
opcode("HMUL2", "UHMUL2")(_packed(2, numbers.mul_halves))
opcode("HFMA2", "UHFMA2")(_packed(3, numbers.fma_halves))


def _each_half(function: Callable[..., Array], kind: str, *words: Array) -> Array:
    """A function of float32 codes, for the lower and the upper halves; the results are codes of halves."""
    found = []
    for at in (0, 16):
        parts = [numbers.convert(word >> np.uint32(at) & _LOW, kind, "f32") for word in words]
        found.append(numbers.convert(function(*parts), "f32", kind))
    return found[0] | found[1] << _HALF


@opcode("HMNMX2", "UHMNMX2", "VHMNMX")
def least_halves(site: Site) -> Step:
    how = site.known("BF16_V2", "NAN", "FTZ", "XORSIGN")
    if how & {"XORSIGN", "FTZ"}:
        raise site.refuse()
    kind = "bf16" if "BF16_V2" in how else "f16"
    put, first = site.target(), halves(site, kind)
    others = [halves(site, kind) for _ in range(2 if site.base == "VHMNMX" else 1)]
    flag = site.predicate()
    site.done()

    def step(g: Group) -> None:
        lower, found = flag(g), first(g)
        for other in others:
            found = _each_half(lambda x, y: least_or_most(x, y, lower, "NAN" in how), kind, found, other(g))
        put(g, found)

    return step


@opcode("HSETP2", "UHSETP2")
def compare_halves(site: Site) -> Step:
    """The first predicate is of the lower halves, the second of the upper ones."""
    how = site.known(*_COMPARISONS, *JOINS, "BF16_V2", "FTZ", "H_AND")
    if "H_AND" in how:
        raise site.refuse()
    kind = "bf16" if "BF16_V2" in how else "f16"
    function = _comparison(site, how)
    join = JOINS[next((one for one in JOINS if one in how), "AND")]
    targets = [site.flag_writer(one) for one in (site.text(), site.text())]
    a, b, other = halves(site, kind), halves(site, kind), site.predicate()
    site.done()

    def step(g: Group) -> None:
        x, y, with_other = a(g), b(g), other(g).copy()
        for put, at in zip(targets, (0, 16), strict=True):
            values = [numbers.decode(one >> np.uint32(at) & _LOW, kind) for one in (x, y)]
            put(g, join(function(*values), with_other))

    return step
