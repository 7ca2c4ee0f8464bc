"""Decode conversions between floats, and between floats and integers."""

from __future__ import annotations

from functools import partial

import numpy as np

from tritonhook.emulate import numbers, numbers64, words
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.opcodes import Array, Reader, only, rounding
from tritonhook.emulate.sass.floats import MODES
from tritonhook.emulate.sass.site import FLOAT, Site, modified, opcode, with_sign

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
    """Return the number formats among the modifiers in order: target, source."""
    return [_SIZES[one] for one in site.modifiers if one in _SIZES]


def _part(site: Site, bits: int, signed: bool = False) -> Reader:
    """Take part of a register, e.g. R4.H1 (upper half) or R4.B2 (third byte)."""
    text = site.text()
    # A float's dot does not begin a part; the immediate holds the float's bits.
    is_float = FLOAT.match(text) is not None
    head, _, part = text.partition("." if not is_float else " ")
    if (part and (part[0] not in "HB" or bits == 32)) or (bits < 32 and modified(text)[:2] != ("", False)):
        raise site.refuse(f"operand {text}")
    site.given.insert(0, head)
    read, at = site.integer(), np.uint32((16 if part[:1] == "H" else 8) * int(part[1:2] or 0))
    if bits == 32:
        return read
    mask = np.uint32((1 << bits) - 1)
    return lambda g: read(g) >> at & mask


def _source(site: Site, source: str) -> Reader:
    if source == "f64":
        return site.double()
    if source == "f32":
        return site.single()
    sign, size, site.given[0] = modified(site.given[0])
    plain, infinity = _part(site, 16), np.uint32(0x7C00 if source == "f16" else 0x7F80)
    signed = with_sign(plain, sign, size, np.uint32(0x8000), np.uint32(0x7FFF))

    def read(g: Group) -> Array:
        found = plain(g)
        # A NaN keeps its sign (measured on a GPU).
        return np.where(found & np.uint32(0x7FFF) > infinity, found, signed(g))

    return read if sign or size else plain


_ROUNDED = ("f64", "f32", "f16", "bf16")


@opcode("F2F", "UF2F", "FRND")
def float_to_float(site: Site) -> Step:
    """Decode F2F, and FRND, which rounds to a whole number."""
    rounds = site.base == "FRND"
    how = site.known(*_SIZES, *(_WHOLE if rounds else MODES), "FTZ", "SAT", "RELU")
    formats = _formats(site)
    if rounds:
        formats = 2 * (formats or ["f32"])
    if len(formats) != 2 or set(formats) - {*_ROUNDED} or (rounds and how & {"SAT", "RELU"}):
        raise site.refuse()
    (target, source), ftz = formats, "FTZ" in how
    given = {"relu": "RELU" in how, "unit": "SAT" in how}
    if "f64" in formats and any(given.values()):
        raise site.refuse()
    if target == "f64" and not rounds and how & {*MODES}:
        raise site.refuse("a rounding mode")
    if ftz and "f32" not in formats:
        raise site.refuse()
    put, read = site.target_pair() if target == "f64" else site.target(), _source(site, source)
    site.done()
    mode, whole = ("rn", _mode(how)) if rounds else (_mode(how), "")
    return lambda g: put(g, numbers64.between(read(g), source, target, mode, whole, ftz, **given))


def _integer(site: Site) -> tuple[int, bool]:
    """Return (bits, is signed) of the integer type among the modifiers; without such a type, those of S32."""
    return _INTEGERS[only(site, [one for one in site.modifiers if one in _INTEGERS] or ["S32"])]


@opcode("F2I", "UF2I")
def float_to_integer(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *_WHOLE, "FTZ", "NTZ")
    (bits, signed), source = _integer(site), only(site, _formats(site) or ["f32"])
    if ("FTZ" in how and source != "f32") or source not in _ROUNDED:
        raise site.refuse()
    put, read = site.target_pair() if bits == 64 else site.target(), _source(site, source)
    site.done()
    kind: type = np.uint64 if bits == 64 else np.uint32
    mode, ftz = _mode(how), "FTZ" in how
    return lambda g: put(g, numbers64.to_whole(read(g), source, bits, signed, mode, ftz).astype(kind))


@opcode("F2IP")
def float_to_byte(site: Site) -> Step:
    """Decode F2IP, which converts a float32 to the lowest byte of a register. The meaning of its other sources is
    unknown; they must be RZ."""
    how = site.known("U8", "S8", "F32", *_WHOLE, "NTZ")
    put, zero, read, kept = site.target(), site.text(), site.single(), site.text()
    site.done()
    if (zero, kept) != ("RZ", "RZ") or not how >= {"F32", "NTZ"} or len(how & {"U8", "S8"}) != 1:
        raise site.refuse("sources for the upper bytes")
    mode, signed = _mode(how), "S8" in how
    return lambda g: put(g, (numbers64.to_whole(read(g), "f32", 8, signed, mode, False) & 0xFF).astype(np.uint32))


@opcode("I2F", "I2FP", "UI2F", "UI2FP")
def integer_to_float(site: Site) -> Step:
    how = site.known(*_SIZES, *_INTEGERS, *MODES)
    (bits, signed), target = _integer(site), only(site, _formats(site) or ["f32"])
    if target not in _ROUNDED:
        raise site.refuse()
    put = site.target_pair() if target == "f64" else site.target()
    if bits == 64 and site.next_is("-?0x[0-9a-f]+"):  # an immediate is the upper word (measured on a GPU)
        site.given[0] = hex(int(site.given[0], 16) << 32 & (1 << 64) - 1)
    read, mode = site.wide() if bits == 64 else _part(site, bits), _mode(how)
    site.done()
    return lambda g: put(g, numbers64.from_whole(_values(read(g), bits, signed), target, mode))


def _values(codes: Array, bits: int, signed: bool) -> Array:
    if bits == 64:
        return codes.view(np.int64) if signed else codes
    values = codes.astype(np.int64)
    return values - ((values >> bits - 1 & 1) << bits) if signed else values


# Packing modifiers of F2FP, with the bits of one result.
_PACKED = {"PACK_AB": 16, "PACK_AB_MERGE_C": 8, "PACK_B": 32, "MERGE_C": 16, "UNPACK_B_MERGE_C": 8, "UNPACK_B": 16}


@opcode("F2FP", "UF2FP")
def pack(site: Site) -> Step:
    """Decode F2FP, which converts and packs floats.

    PACK_AB: convert two float32 to two halves or bytes. PACK_B, or MERGE_C alone: convert one float32. UNPACK_B:
    convert two bytes to two halves. UNPACK_B_MERGE_C: convert two halves to two bytes. With MERGE_C, the lower half of
    the last source becomes the upper half of the result.
    """
    how = site.known(*_SIZES, *MODES, *_PACKED, "SATFINITE", "RELU")
    formats, packing = _formats(site), "".join(how & {*_PACKED})
    if len(formats) > 2 or ("UNPACK_B" in packing and len(formats) < 2):
        raise site.refuse()
    target, source = [*formats, *("f16", "f32")[len(formats) :]]  # code for sm_80 does not name f16 and f32
    given = {"finite": "SATFINITE" in how, "relu": "RELU" in how}
    put, mode, bits = site.target(), rounding(how), numbers.FORMATS[target].bits
    widens = packing == "UNPACK_B"
    if widens and how & {*MODES, "SATFINITE"}:
        raise site.refuse()
    if bits != _PACKED.get(packing) or (source == "f32") == ("UNPACK_B" in packing):
        raise site.refuse()
    if "UNPACK_B" in packing:
        small = numbers.FORMATS[source].bits
        if small not in ((8, 4) if widens else (16,)):
            raise site.refuse()
        word, mask = _part(site, 2 * small), np.uint32((1 << small) - 1)
        terms: list[Reader] = [lambda g: word(g) >> np.uint32(small) & mask, lambda g: word(g) & mask]
    else:
        terms = [site.single() for _ in range(2 if "AB" in packing else 1)]
    if packing == "MERGE_C" and site.given != ["RZ"]:
        raise site.refuse("a source for the upper half")
    kept = _part(site, 16) if "MERGE_C" in packing else None
    site.done()

    def step(g: Group) -> None:
        *high, low = (numbers.convert(term(g), source, target, mode, **given) for term in terms)
        found = high[0] << np.uint32(bits) | low if high else low
        put(g, found if kept is None else found | kept(g) << _HALF)

    return step


@opcode("I2IP")
def pack_integers(site: Site) -> Step:
    """Decode I2IP (PTX: cvt.pack). The last source has its number of usable bits as suffix, e.g. R4.24 if results have
    4 bits. There is no suffix if results have 16 bits."""
    how = site.known("SAT", "S32", *(kinds := [f"{sign}{bits}" for sign in "SU" for bits in (2, 4, 8, 16)]))
    kind = only(site, how & {*kinds})
    bits = int(kind[1:])
    put, a, b = site.take("Rii")
    site.given = [one.removesuffix(f".{32 - 2 * bits}") for one in site.given]
    if not how >= {"SAT", "S32"} or (bits == 16 and site.given != ["RZ"]):
        raise site.refuse()
    upper = site.given[0].endswith(".H1")
    site.given[0] = site.given[0].removesuffix(".H1")
    (low,) = site.take("i.")
    c = (lambda g: low(g) >> _HALF) if upper else low
    function = partial(words.packed, bits=bits, signed=kind[0] == "S")
    return lambda g: put(g, function(a(g), b(g)) if bits == 16 else function(a(g), b(g), c(g)))
