"""Steps of video instructions: arithmetic on 8-bit and 16-bit parts of words, and on words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tritonhook.emulate import comparisons
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.ptx.site import Array, Site, opcode

_OPERATIONS: Mapping[str, Callable[[Array, Array], Array]] = {  # on int64
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}
_SHIFTS = {"vshl": np.left_shift, "vshr": np.right_shift}
_KINDS = ("u32", "s32")
_PART = re.compile(r"(-?)(.+?)(?:\.([bh])([0-7]+))?$")


def _cut(words: Array, at: int, bits: int, kind: str) -> Array:
    """Extract the number of `bits` bits that begins at bit `at` of each word, as int64. kind: u32 for an unsigned
    number, s32 for a signed one."""
    value = words.astype(np.int64) >> at & (1 << bits) - 1
    return value - ((value >> bits - 1) << bits) if kind == "s32" else value


def _within(value: Array, bits: int, kind: str, saturates: bool) -> Array:
    """Convert a result to `bits` bits: the nearest number (`saturates`), or the lowest bits."""
    if saturates:
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s32" else (0, (1 << bits) - 1)
        value = np.clip(value, low, high)
    return _cut(value, 0, bits, kind)


def _parts(site: Site, operand: int) -> tuple[str, str, int, str]:
    """Split an operand, e.g. `-%r1.b2`: sign, register, bits of a part (8, 16, or 32 for the whole), and the digits
    that select parts, "0" for the whole."""
    sign, name, letter, places = _PART.fullmatch(site.operands[operand]).groups()  # type: ignore[union-attr]
    return sign, name, {"b": 8, "h": 16}.get(letter, 32), places or "0"


def _source(site: Site, operand: int, kind: str) -> Callable[[Group], Array]:
    sign, name, bits, place = _parts(site, operand)
    if len(place) > 1 or int(place) * bits >= 32:
        raise site.refuse(f"operand {site.operands[operand]}")
    row, at = site.row(name, "u32"), int(place) * bits
    factor = -1 if sign else 1
    return lambda g: factor * _cut(row[g.s], at, bits, kind)


def _finish(site: Site, kind: str, saturates: bool, second: str) -> Callable[[Group, Array], None]:
    """Make the function that writes a result. It replaces a part of the third source, is combined with that source by
    the second operation (`second`: add, min, max), or is written as it is."""
    _, name, bits, place = _parts(site, 0)
    target, at = site.target(name, "u32"), int(place) * bits
    merges = bits < 32
    site.count(4 if merges or second else 3)
    if merges and second:
        raise site.refuse()
    if second in ("min", "max") and kind != "s32" and site.name != "vset":
        raise site.refuse("ptxas compares differently from the PTX ISA")
    third = site.row(3, "s32") if merges or second else None
    join: Any = {"add": np.add, "min": np.minimum, "max": np.maximum}.get(second)
    kept = np.uint32(0xFFFF_FFFF ^ ((1 << bits) - 1) << at)

    def write(g: Group, value: Array) -> None:
        found = _within(value, bits, kind, saturates) if site.name in ("vadd", "vsub") or saturates else value
        if third is not None and merges:
            found = (third[g.s].view(np.uint32) & kept) | (found << at & ~np.int64(kept))
        # As in the code that ptxas writes (checked by emulating it): only sums are cut to 32 bits before `join`.
        elif third is not None:
            found = join(found, third[g.s].astype(np.int64))
        g.put(target, (found & 0xFFFF_FFFF).astype(np.uint32))

    return write


def _modifiers(site: Site, kinds: int, *others: str) -> tuple[Sequence[str], list[str]]:
    """Return the types, which are the first modifiers, and the other modifiers. kinds: number of types. others: the
    other modifiers that are allowed. Raises NotUnderstood."""
    types = site.modifiers[:kinds]
    if len(types) < kinds or set(types) - set(_KINDS) or set(site.modifiers[kinds:]) - set(others):
        raise site.refuse()
    return types, list(site.modifiers[kinds:])


@opcode("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr")
def of_words(site: Site) -> Step:
    is_set, shifts = site.name == "vset", site.name in _SHIFTS
    more = [*comparisons.WHOLE] if is_set else ["clamp", "wrap"] if shifts else ["sat"]
    types, how = _modifiers(site, 2 if is_set else 3, *more, "add", "min", "max")
    to, a_kind, b_kind = types if not is_set else ("u32", *types)
    wanted = [one for one in how if one in more]
    second = "".join(one for one in how if one not in more)
    if (is_set or shifts) and len(wanted) != 1:
        raise site.refuse()
    if "sat" in how and (_parts(site, 0)[2] < 32 or (to == "u32" and site.name not in ("vmin", "vmax"))):
        # ptxas 12.8.93 and 13.5.37 clamp negative numbers to the largest number, and do not clamp sums to u32.
        raise site.refuse("ptxas saturates differently from the PTX ISA")
    a, b = _source(site, 1, a_kind), _source(site, 2, b_kind)
    write = _finish(site, to, "sat" in how, second)
    function: Callable[[Array, Array], Array]
    if shifts:
        of_shift, wraps = _SHIFTS[site.name], "wrap" in how
        function = lambda x, y: of_shift(x, y & 31 if wraps else np.minimum(y, 32))  # noqa: E731
    else:
        function = comparisons.WHOLE[wanted[0]] if is_set else _OPERATIONS[site.name]
    return lambda g: write(g, function(a(g), b(g)).astype(np.int64))


@opcode("vmad")
def multiply(site: Site) -> Step:
    types, how = _modifiers(site, 3, "shr7", "shr15")
    a, b, c = (_source(site, number, kind) for number, kind in ((1, types[1]), (2, types[2]), (3, types[0])))
    target, shift = site.target(0, "u32"), int("".join(how).removeprefix("shr") or 0)
    site.count(4)
    if shift and set(types) != {"s32"}:
        raise site.refuse("ptxas shifts differently from the PTX ISA")
    return lambda g: g.put(target, ((a(g) * b(g) + c(g)) >> shift & 0xFFFF_FFFF).astype(np.uint32))


@opcode(*(f"{name}{count}" for name in (*_OPERATIONS, "vset") for count in (2, 4)))
def of_parts(site: Site) -> Step:
    """Make the step of a SIMD instruction on two or four numbers packed in 32 bits. The digits after a source select a
    part of the two sources for each result, the highest result first. The digits after the target select the results
    that are computed."""
    name, count = site.name[:-1], int(site.name[-1])
    bits, is_set = 32 // count, name == "vset"
    types, how = _modifiers(site, 2 if is_set else 3, *(comparisons.WHOLE if is_set else ["sat"]), "add")
    to, a_kind, b_kind = types if not is_set else ("u32", *types)
    wanted = [one for one in how if one in comparisons.WHOLE]
    function = _OPERATIONS[name] if not is_set else comparisons.WHOLE[wanted[0]] if len(wanted) == 1 else None
    (_, target_name, _, mask), *sources = (_parts(site, number) for number in range(3))
    site.count(4)
    if function is None or any(sign for sign, *_ in sources) or {"sat", "add"} <= {*how}:
        raise site.refuse()
    if target_name == site.operands[0]:
        mask = "3210"[-count:]
    target, rows, third = (
        site.target(target_name, "u32"),
        [site.row(one[1], "u32") for one in sources],
        site.row(3, "u32"),
    )
    chosen = [
        [int(place) for place in reversed(one[3])] if one[2] < 32 else [first + n for n in range(count)]
        for one, first in zip(sources, (0, count), strict=True)
    ]
    if any(len(places) != count for places in chosen):
        raise site.refuse()

    def step(g: Group) -> None:
        words, kept = [row[g.s] for row in rows], third[g.s]
        found = np.zeros(g.size, np.int64) + kept
        for n in (int(place) for place in mask):
            x, y = (
                _cut(words[places[n] // count], places[n] % count * bits, bits, kind)
                for places, kind in zip(chosen, (a_kind, b_kind), strict=True)
            )
            value = function(x, y).astype(np.int64)
            if "add" in how:
                found = found + value
            else:
                value = _within(value, bits, to, "sat" in how)
                part = np.int64((1 << bits) - 1 << n * bits)
                found = (found & ~part) | (value << n * bits & part)
        g.put(target, (found & 0xFFFF_FFFF).astype(np.uint32))

    return step
