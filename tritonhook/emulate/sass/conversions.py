"""Conversions: between floats, between floats and integers."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate import numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.floats import MODES, rounding
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode

_MODES = {**MODES, "TRUNC": "rz", "FLOOR": "rm", "CEIL": "rp", "ROUND": "rn"}
_SIZES = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "TF32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
_INTEGERS = {f"{sign}{bits}": (bits, sign == "S") for sign in "SU" for bits in (8, 16, 32, 64)}
_LOW, _HALF = np.uint32(0xFFFF), np.uint32(16)


def _mode(how: frozenset[str]) -> str:
    return next((mode for name, mode in _MODES.items() if name in how), "rn")


def _formats(site: Site) -> list[str]:
    """The formats among the modifiers, in order: target, source."""
    return [_SIZES[one] for one in site.modifiers if one in _SIZES]


def _part(site: Site, bits: int, signed: bool = False) -> Reader:
    """Take the part of a register that .H1 or .B2 names."""
    text = site.text()
    head, _, part = text.partition(".")
    if part and part[0] not in "HB":
        raise site.refuse(f"operand {text}")
    site.given.insert(0, head)
    read, at = site.integer(), np.uint32((16 if part[:1] == "H" else 8) * int(part[1:2] or 0))
    if bits == 32:
        if part:
            raise site.refuse(f"operand {text}")
        return read
    mask = np.uint32((1 << bits) - 1)
    return lambda g: read(g) >> at & mask


@opcode("F2F", "UF2F", "FRND")
def float_to_float(site: Site) -> Step:
    how = site.known(*_SIZES, *_MODES, "FTZ", "SAT", "RELU")
    formats = _formats(site)
    if site.base == "FRND":
        return _rounded(site, how)
    if len(formats) != 2:
        raise site.refuse()
    target, source = formats
    mode, ftz = _mode(how), "FTZ" in how
    given = {"relu": "RELU" in how, "unit": "SAT" in how}
    put = site.target_pair() if target == "f64" else site.target()
    if source == "f64":
        read = site.double()
        if target != "f32" or any(given.values()):
            raise site.refuse()
        return lambda g: put(g, numbers64.narrow64(read(g), mode, ftz))
    read = site.single() if source == "f32" else _part(site, 16)
    site.done()
    if target == "f64":
        if source != "f32":
            raise site.refuse()
        return lambda g: put(g, numbers64.widen32(read(g), ftz))
    if ftz and "f32" not in (source, target):
        raise site.refuse()

    def step(g: Group) -> None:
        codes = numbers.flush32(read(g)) if ftz and source == "f32" else read(g)
        put(g, numbers.convert(codes, source, target, mode, **given))

    return step


def _rounded(site: Site, how: frozenset[str]) -> Step:
    formats = _formats(site) or ["f32"]
    if set(formats) != {"f32"} or how & {"SAT", "RELU"}:
        raise site.refuse()
    put, read, mode = site.target(), site.single(), _mode(how)
    site.done()

    def step(g: Group) -> None:
        codes = numbers.flush32(read(g)) if "FTZ" in how else read(g)
        x = numbers.decode(codes, "f32")
        put(g, numbers.encode(np.copysign(numbers.integral(x, mode), x), "f32"))

    return step


@opcode("F2I", "UF2I", "F2IP")
def float_to_integer(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *_MODES, "FTZ", "NTZ")
    (name,) = [one for one in site.modifiers if one in _INTEGERS] or ["S32"]
    bits, signed = _INTEGERS[name]
    (source,) = _formats(site) or ["f32"]
    if site.base == "F2IP":
        raise site.refuse()
    put = site.target_pair() if bits == 64 else site.target()
    read = site.double() if source == "f64" else site.single() if source == "f32" else _part(site, 16)
    site.done()
    mode, not_zero = _mode(how), source == "f64" or bits == 64

    def step(g: Group) -> None:
        codes = numbers.flush32(read(g)) if "FTZ" in how and source == "f32" else read(g)
        found = numbers.to_integer(numbers.decode(codes, source), bits, signed, mode, not_zero)
        put(g, found.view(np.uint64) if bits == 64 else found.astype(np.int64).astype(np.uint32))

    return step


@opcode("I2F", "I2FP", "UI2F", "UI2FP")
def integer_to_float(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *_MODES)
    (name,) = [one for one in site.modifiers if one in _INTEGERS] or ["S32"]
    bits, signed = _INTEGERS[name]
    (target,) = _formats(site) or ["f32"]
    put = site.target_pair() if target == "f64" else site.target()
    read = site.wide() if bits == 64 else _part(site, bits)
    site.done()
    mode = _mode(how)

    def step(g: Group) -> None:
        values = _values(read(g), bits, signed)
        if target == "f64":
            put(g, numbers64.from_integer64(values, mode))
        else:
            put(g, numbers.encode(numbers.from_integer(values), target, mode))

    return step


def _values(codes: Array, bits: int, signed: bool) -> Array:
    if bits == 64:
        return codes.view(np.int64) if signed else codes
    values = codes.astype(np.int64)
    return values - ((values >> bits - 1 & 1) << bits) if signed else values


@opcode("F2FP", "UF2FP")
def pack(site: Site) -> Step:
    """Two floats to two halves or two bytes; bytes to halves."""
    how = site.known(*_SIZES, *MODES, "PACK_AB", "PACK_B", "PACK_AB_MERGE_C", "UNPACK_B", "SATFINITE", "RELU")
    formats = _formats(site)
    if len(formats) > 2 or ("UNPACK_B" in how and len(formats) < 2):
        raise site.refuse()
    target, source = [*formats, *("f16", "f32")[len(formats) :]]  # sm_80 names f16 and f32 only by naming nothing
    mode = rounding(how)
    given = {"finite": "SATFINITE" in how, "relu": "RELU" in how}
    put = site.target()
    if "UNPACK_B" in how:
        return _unpacked(site, put, target, source, given)
    if how & {"PACK_B"} or source not in ("f32", "f16"):
        raise site.refuse()
    if source == "f16":
        return _packed_halves(site, put, target, how, given)
    a, b = site.single(), site.single()
    bits = numbers.FORMATS[target].bits
    kept = _part(site, 16) if "PACK_AB_MERGE_C" in how else None
    site.done()
    if (kept is None) != (bits == 16):
        raise site.refuse()

    def step(g: Group) -> None:
        high, low = (numbers.convert(one(g), "f32", target, mode, **given) for one in (a, b))
        found = high << np.uint32(bits) | low
        put(g, found if kept is None else found | kept(g) << _HALF)

    return step


def _packed_halves(site: Site, put: object, target: str, how: frozenset[str], given: dict[str, bool]) -> Step:
    raise site.refuse("halves to bytes")


def _unpacked(site: Site, put: object, target: str, source: str, given: dict[str, bool]) -> Step:
    if numbers.FORMATS[source].bits != 8 or target not in ("f16", "bf16"):
        raise site.refuse()
    read = _part(site, 16)
    site.done()

    def step(g: Group) -> None:
        word = read(g)
        low, high = (numbers.convert(word >> np.uint32(at) & np.uint32(0xFF), source, target) for at in (0, 8))
        put(g, low | high << _HALF)  # type: ignore[operator]

    return step
