"""Conversions: between floats, between floats and integers."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate import numbers, numbers64
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import Array, Reader, rounding
from tritonhook.emulate.sass.floats import MODES
from tritonhook.emulate.sass.site import Site, opcode

_WHOLE = {"TRUNC": "rz", "FLOOR": "rm", "CEIL": "rp", "ROUND": "rn"}
_SIZES = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "TF32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2",
    "E2M1": "e2m1",
}  # fmt: skip
_INTEGERS = {f"{sign}{bits}": (bits, sign == "S") for sign in "SU" for bits in (8, 16, 32, 64)}
_LOW, _HALF = np.uint32(0xFFFF), np.uint32(16)


def _mode(how: frozenset[str]) -> str:
    return rounding(_WHOLE.get(one, one) for one in how)


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


def _source(site: Site, source: str) -> Reader:
    if source == "f64":
        return site.double()
    return site.single() if source == "f32" else _part(site, 16)


@opcode("F2F", "UF2F", "FRND")
def float_to_float(site: Site) -> Step:
    """FRND: to whole numbers."""
    how, rounds = site.known(*_SIZES, *MODES, *_WHOLE, "FTZ", "SAT", "RELU"), site.base == "FRND"
    formats = _formats(site) or (["f32", "f32"] if rounds else [])
    if len(formats) != 2 or (rounds and (set(formats) != {"f32"} or how & {"SAT", "RELU"})):
        raise site.refuse()
    (target, source), ftz = formats, "FTZ" in how
    given = {"relu": "RELU" in how, "unit": "SAT" in how}
    if "f64" in formats and (set(formats) != {"f32", "f64"} or any(given.values())):
        raise site.refuse()
    if ftz and "f32" not in formats:
        raise site.refuse()
    put, read = site.target_pair() if target == "f64" else site.target(), _source(site, source)
    site.done()
    mode, whole = ("rn", _mode(how)) if rounds else (_mode(how), "")
    return lambda g: put(g, numbers64.between(read(g), source, target, mode, whole, ftz, **given))


def _integer(site: Site) -> tuple[int, bool]:
    """Bits, and whether it has a sign, of the integers among the modifiers."""
    (name,) = [one for one in site.modifiers if one in _INTEGERS] or ["S32"]
    return _INTEGERS[name]


@opcode("F2I", "UF2I")
def float_to_integer(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *MODES, *_WHOLE, "FTZ", "NTZ")
    (bits, signed), (source,) = _integer(site), _formats(site) or ["f32"]
    put, read = site.target_pair() if bits == 64 else site.target(), _source(site, source)
    site.done()
    kind: type = np.uint64 if bits == 64 else np.uint32
    mode, ftz = _mode(how), "FTZ" in how
    return lambda g: put(g, numbers64.to_whole(read(g), source, bits, signed, mode, ftz).astype(kind))


@opcode("I2F", "I2FP", "UI2F", "UI2FP")
def integer_to_float(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *MODES, *_WHOLE)
    (bits, signed), (target,) = _integer(site), _formats(site) or ["f32"]
    put = site.target_pair() if target == "f64" else site.target()
    read, mode = site.wide() if bits == 64 else _part(site, bits), _mode(how)
    site.done()
    return lambda g: put(g, numbers64.from_whole(_values(read(g), bits, signed), target, mode))


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
    if how & {"PACK_B"} or source != "f32":
        raise site.refuse()
    a, b = site.single(), site.single()
    bits = numbers.FORMATS[target].bits
    kept = _part(site, 16) if "PACK_AB_MERGE_C" in how else None
    site.done()
    if (kept is None) != (bits == 16) or bits < 8:
        raise site.refuse()

    def step(g: Group) -> None:
        high, low = (numbers.convert(one(g), "f32", target, mode, **given) for one in (a, b))
        found = high << np.uint32(bits) | low
        put(g, found if kept is None else found | kept(g) << _HALF)

    return step


def _unpacked(site: Site, put: object, target: str, source: str, given: dict[str, bool]) -> Step:
    """Two values of a register's half to halves; two of 4 bits of one of its bytes, which .B0 to .B3 names."""
    bits = numbers.FORMATS[source].bits
    if bits not in (8, 4) or target not in ("f16", "bf16"):
        raise site.refuse()
    read, mask = _part(site, 2 * bits), np.uint32((1 << bits) - 1)
    site.done()

    def step(g: Group) -> None:
        word = read(g)
        low, high = (numbers.convert(word >> np.uint32(at) & mask, source, target) for at in (0, bits))
        put(g, low | high << _HALF)  # type: ignore[operator]

    return step
