"""Steps of cvt, cvta, isspacep and mapa: conversions of numbers and of addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tritonhook.emulate import numbers, numbers64, words
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.memory import (
    LOCAL_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    Allocation,
    is_local,
    is_shared,
    rank_of,
)
from tritonhook.emulate.opcodes import rounding
from tritonhook.emulate.ptx.kernel import SIZES
from tritonhook.emulate.ptx.site import KINDS, Array, Site, opcode

_WHOLE = tuple(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))
_FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
_SMALL = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m1x2": "e2m1", "e2m3x2": "e2m3", "e3m2x2": "e3m2", "ue8m0x2": "ue8m0"}
_TO_WHOLE = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_MODES = ("rn", "rz", "rm", "rp", "rna")


@opcode("cvt")
def convert(site: Site) -> Step:
    if len(site.modifiers) < 2:
        raise site.refuse()
    *_, to, source = site.modifiers
    site.modifiers = site.modifiers[:-2]
    how = site.known(*_MODES, *_TO_WHOLE, "ftz", "sat", "satfinite", "relu")
    if "ftz" in how and "f32" not in (to, source):
        raise site.refuse(".ftz")
    if to in _SMALL or source in _SMALL:
        return _small(site, to, source, how)
    if to in ("f16x2", "bf16x2") and source == "f32":
        return _pair(site, to.removesuffix("x2"), how)
    # From f32 to f16, the code that ptxas writes for sm_80 to sm_120 ignores .ftz. (Measured on a GPU.)
    ftz, unit, whole = (
        "ftz" in how and (to, source) != ("f16", "f32"),
        "sat" in how,
        [mode for name, mode in _TO_WHOLE.items() if name in how],
    )
    if to in _WHOLE and source in _WHOLE:
        if how - {"sat"}:
            raise site.refuse()
        function = _clipped(to, source) if unit else lambda a: a
    elif to in _FLOATS and source in _WHOLE:
        if how - {*_MODES, "sat"} or (unit and to == "f64"):
            raise site.refuse()
        wide = np.int64 if source.startswith("s") else np.uint64
        function = lambda a: numbers64.from_whole(a.astype(wide), to, rounding(how), unit)  # noqa: E731
    elif to in _WHOLE and source in _FLOATS:
        if len(whole) != 1 or how - {*_TO_WHOLE, "ftz", "sat"}:
            raise site.refuse()
        bits, signed = 8 * SIZES[to], to.startswith("s")
        function = lambda a: numbers64.to_whole(a, source, bits, signed, whole[0], ftz)  # noqa: E731
    elif to in _FLOATS and source in _FLOATS:
        narrow = to in ("f16", "bf16", "tf32") and source == "f32"
        rounds = SIZES[to] <= SIZES[source] and not whole
        if (how & {"relu", "satfinite"} and (not narrow or how & {"sat", "ftz"})) or (how & {*_MODES} and not rounds):
            raise site.refuse()
        options: dict[str, Any] = {"unit": unit, "relu": "relu" in how, "finite": "satfinite" in how}
        options |= {"mode": rounding(how), "whole": "".join(whole), "ftz": ftz}
        between: Callable[..., Array] = partial(numbers64.between, source=source, target=to, **options)
        function = between
        # As in the code of ptxas for sm_80 to sm_120, which first multiplies by 1: NaN becomes canonical.
        if ftz and (source, to) == ("f32", "f64"):
            function = lambda a: between(numbers.finish32(a.view(np.float32), True, False))  # noqa: E731
    else:
        raise site.refuse()
    return site.compute(lambda a: function(a).astype(KINDS[to]), to, source)


def _clipped(to: str, source: str) -> Callable[[Array], Array]:
    info, kind = np.iinfo(KINDS[to]), KINDS[source]
    low, high = max(info.min, np.iinfo(kind).min), min(info.max, np.iinfo(kind).max)
    return lambda a: np.clip(a, kind(low), kind(high))


def _pair(site: Site, half: str, how: frozenset[str]) -> Step:
    """Make the step that converts two f32 to the halves of a word; the first operand becomes the upper half."""
    if how - {"rn", "rz", "relu", "satfinite"}:
        raise site.refuse()
    options = {"relu": "relu" in how, "finite": "satfinite" in how}
    mode, shift = rounding(how), np.uint32(16)

    def found(high: Array, low: Array) -> Array:
        both = [numbers.convert(one, "f32", half, mode, **options) for one in (high, low)]
        return both[0] << shift | both[1]

    return site.compute(found, "b32", "f32", "f32")


_PACKED = {
    f"sat.{sign}{bits}.s32{'' if bits == 16 else '.b32'}": (bits, sign == "s")
    for sign in "us"
    for bits in (2, 4, 8, 16)
}


@opcode("cvt.pack")
def pack(site: Site) -> Step:
    """Make the step that packs two clamped integers into the low bits of a register. The bits above, if any, are the
    lower bits of the last operand."""
    if (form := ".".join(site.modifiers)) not in _PACKED:
        raise site.refuse()
    bits, signed = _PACKED[form]
    site.count(3 if bits == 16 else 4)
    function = partial(words.packed, bits=bits, signed=signed)
    return site.compute(function, "b32", *["b32"] * (len(site.operands) - 1))


def _small(site: Site, to: str, source: str, how: frozenset[str]) -> Step:
    """Make the step of a conversion to or from two fp8, fp6 or fp4 numbers in a register."""
    mode, relu, finite = rounding(how), "relu" in how, "satfinite" in how
    if how - {*_MODES, "relu", *(["satfinite"] if to in _SMALL else [])}:
        raise site.refuse()
    size = 4 if "e2m1" in to + source else 8
    whole = "b8" if size == 4 else "b16"
    shift = np.uint32(size)
    if to in _SMALL:
        name, half = _SMALL[to], source.removesuffix("x2")

        def narrow(high: Array, low: Array) -> Array:
            codes = [numbers.convert(one, half, name, mode, finite=finite, relu=relu) for one in (high, low)]
            return (codes[0] << shift | codes[1]).astype(KINDS[whole])

        if source == "f32":
            return site.compute(narrow, whole, "f32", "f32")
        if source not in ("f16x2", "bf16x2"):
            raise site.refuse()
        return site.compute(lambda a: narrow(*reversed(numbers.halves_of(a))), whole, source)
    if to not in ("f16x2", "bf16x2"):
        raise site.refuse()
    half, mask = to.removesuffix("x2"), np.uint32((1 << size) - 1)

    def widen(a: Array) -> Array:
        both = a.astype(np.uint32)
        codes = [numbers.convert(one, _SMALL[source], half, relu=relu) for one in (both >> shift & mask, both & mask)]
        return codes[0] << np.uint32(16) | codes[1]

    return site.compute(widen, "b32", whole)


# --- addresses -----------------------------------------------------------------------------------

_WINDOWS = {"global": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": 0, "const": 0}


@opcode("cvta")
def to_generic(site: Site) -> Step:
    how = site.known(
        "to", "global", "shared", "local", "const", "param", "shared::cta", "shared::cluster", "u64", "u32"
    )
    spaces = [one.partition("::")[0] for one in how if one.partition("::")[0] in _WINDOWS]
    if len(spaces) != 1 or {"u32", "u64"} <= how:
        raise site.refuse()
    (space,) = spaces
    window, low = np.uint64(_WINDOWS[space]), np.uint64(0xFFFF_FFFF)
    if "u64" not in how:
        raise site.refuse()
    target, row = site.target(0, "u64"), site.row(1, "u64")
    if space == "param":  # Triton 3.9 passes only the lower 32 bits of a parameter's address
        begin = np.uint64(site.decoder.parameters.address)
        return lambda g: g.put(target, begin + (row[g.s] - begin & low))
    if not window:
        return lambda g: g.put(target, row[g.s])
    if "to" in how:
        return lambda g: g.put(target, row[g.s] & low)
    return lambda g: g.put(target, row[g.s] + window)


@opcode("isspacep")
def is_in_space(site: Site) -> Step:
    """Make the step of isspacep. Parameters belong to global memory, constants do not."""
    how = site.known("global", "shared", "local", "shared::cta", "shared::cluster", "const", "param::entry")
    if len(how) != 1:
        raise site.refuse()
    (name,) = how
    target, row, decoder = site.target(0, "pred"), site.row(1, "u64"), site.decoder
    constants = [decoder.variables[one.name] for one in decoder.kernel.module if one.space == "const"]

    def is_in(at: Array, places: Sequence[Allocation]) -> Array:
        inside = [(at >= np.uint64(one.address)) & (at < np.uint64(one.address + one.size)) for one in places]
        return np.logical_or.reduce([np.zeros(len(at), bool), *inside])

    def step(g: Group) -> None:
        at = row[g.s]
        shared, local, const = is_shared(at), is_local(at), is_in(at, constants)
        own = shared & (rank_of(at) == site.machine.rank[g.s])
        found = {"global": ~shared & ~local & ~const, "local": local, "shared::cluster": shared, "const": const}
        found["param::entry"] = is_in(at, [decoder.parameters])
        g.put(target, found.get(name, own))

    return step


@opcode("mapa", "getctarank")
def map_to_cluster(site: Site) -> Step:
    """Make the step of mapa (address of the same variable in another CTA of the cluster) or of getctarank (rank of the
    CTA to which an address belongs)."""
    how = site.known("u32", "u64", "shared::cluster")
    if len(how & {"u32", "u64"}) != 1:
        raise site.refuse()
    kind = "u64" if "u64" in how else "u32"
    dtype, shift = KINDS[kind], KINDS[kind](RANK_SHIFT)
    kept = dtype(~(0xFF << RANK_SHIFT) & ((1 << 8 * dtype().itemsize) - 1))
    if site.name == "mapa":
        return site.compute(lambda a, rank: (a & kept) | rank.astype(dtype) << shift, kind, kind, "u32")
    return site.compute(lambda a: (a >> shift & dtype(0xFF)).astype(np.uint32), "u32", kind)
