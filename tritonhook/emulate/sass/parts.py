"""Integers of 8 and 16 bits: saturated conversions, sums of products; and sums of differences."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.sass.site import Array, Site, opcode


@opcode("I2I")
def convert(site: Site) -> Step:
    """I2I.S8.S32.SAT: the nearest number that the first format has."""
    if len(site.modifiers) != 3 or site.modifiers[1:] != ("S32", "SAT") or site.modifiers[0] not in _PARTS:
        raise site.refuse()
    info = np.iinfo(_PARTS[site.modifiers[0]])
    put, read = site.target(), site.integer()
    site.done()
    return lambda g: put(g, np.clip(read(g).view(np.int32), info.min, info.max).view(np.uint32))


_PARTS = {"S8": np.int8, "U8": np.uint8, "S16": np.int16, "U16": np.uint16}


@opcode("VABSDIFF")
def add_difference(site: Site) -> Step:
    how = site.known("U32")
    put, a, b, c = site.target(), site.integer(), site.integer(), site.integer()
    site.done()
    kind = np.uint32 if how else np.int32

    def step(g: Group) -> None:
        x, y = a(g).view(kind).astype(np.int64), b(g).view(kind).astype(np.int64)
        put(g, np.abs(x - y).astype(np.uint32) + c(g))

    return step


@opcode("IDP")
def dot_product(site: Site) -> Step:
    """4A: four products of bytes. 2A: two of 16 bits with the lower (LO) or upper bytes of the second operand."""
    how = site.known("4A", "2A", "LO", "HI", *_PARTS)
    named = [_PARTS[one] for one in site.modifiers if one in _PARTS]
    if len(named) != 2:
        raise site.refuse()
    first, second = named
    put, a, b, c = site.target(), site.integer(), site.integer(), site.integer()
    site.done()
    begin = 2 if "HI" in how else 0

    def parts(words: Array, kind: type) -> Array:
        return np.ascontiguousarray(words).view(kind).reshape(len(words), -1).astype(np.int64)

    def step(g: Group) -> None:
        x, y = parts(a(g), first), parts(b(g), second)
        y = y if "4A" in how else y[:, begin : begin + 2]
        put(g, ((x * y).sum(1) & 0xFFFF_FFFF).astype(np.uint32) + c(g))

    return step
