"""Operations between the lanes of a warp, for PTX and machine code: shuffles, votes, matches, reductions, ldmatrix.

`members`, `mask` and `asked` have one element per thread of the group's slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate import comparisons
from tritonhook.emulate.machine import WARP, Group, lanes_of
from tritonhook.emulate.memory import SHARED
from tritonhook.emulate.tensor_core.fragments import loaded, loaded_bytes, stored
from tritonhook.emulate.words import REDUCTIONS, Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Machine

ALL = 0xFFFF_FFFF


def shuffled(g: Group, kind: str, values: Array, by: Array, mask: Array) -> tuple[Array, Array]:
    """Return the value that each lane reads from another lane, and a predicate: whether that other lane is in the
    reading lane's segment.

    kind: up, down, bfly or idx. by: operand b, distance or lane. mask: operand c, clamp (bits 0 to 4) and segment mask
    (bits 8 to 12). A lane whose source lies outside of its segment reads its own value."""
    if by.strides == mask.strides == (0,) and g.size > WARP:  # constants: compute the first warp, all others equal it
        warps, one = g.size // WARP, Group(g.machine, slice(g.s.start, g.s.start + WARP), None, g.pc)
        others, good = shuffled(one, kind, np.arange(WARP), by[:WARP], mask[:WARP])
        return values.reshape(warps, WARP)[:, others].reshape(-1), np.tile(good, warps)
    lane = g.machine.lane[g.s].astype(np.int64)
    by, mask = (by & np.uint32(31)).astype(np.int64), mask.astype(np.int64)
    segment, clamp = mask >> 8 & 31, mask & 31
    most = (lane & segment) | (clamp & ~segment)
    if kind == "up":
        other = lane - by
        good = other >= most
    else:
        other = {"down": lane + by, "bfly": lane ^ by, "idx": (lane & segment) | (by & ~segment)}[kind]
        good = other <= most
    return values[np.arange(g.size) - lane + np.where(good, other, lane)], good


def absent(g: Group, kind: str, by: Array, mask: Array, members: Array) -> Array:
    """Return True for active lanes with an undefined result. Such a lane is not in its mask `members`, or it reads a
    lane that is not in the mask or not active. members: one mask of lanes per thread."""
    others, _ = shuffled(g, kind, g.machine.lane[g.s], by, mask)
    here = np.repeat(lanes_of(g.active), WARP) & members
    lost: Array = (here >> g.machine.lane[g.s] & here >> others & 1 == 0) & g.active
    return lost


def masks_of(g: Group, members: Array | None = None) -> Array:
    """Return per thread the mask of the lanes that take part: the active lanes in `members`. members: the mask that
    each thread's instruction names; None: all lanes."""
    active = np.repeat(lanes_of(g.active), WARP)
    return active if members is None else active & members


def by_mask(g: Group, members: Array) -> Iterator[Group]:
    """Divide a group into groups of threads with the same mask of participating lanes."""
    masks = masks_of(g, members)
    for mask in np.unique(masks[g.active]):
        inner = g.under(masks == mask)
        assert inner is not None
        yield inner


def matched(g: Group, values: Array, every: bool, members: Array | None = None) -> tuple[Array, Array]:
    """Return per thread the mask of participating lanes with the same value, and whether all participating lanes have
    this value (match.sync). every: return 0 instead of the mask if not all have it (match.all)."""
    rows, asked = values.reshape(-1, WARP), masks_of(g, members).reshape(-1, WARP)
    weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    masks = ((rows[:, :, None] == rows[:, None, :]) * weights).sum(2, dtype=np.uint32) & asked
    good = masks == asked
    return (np.where(good, masks, np.uint32(0)) if every else masks).reshape(-1), good.reshape(-1)


def voted(g: Group, values: Array, kind: str, members: Array | None = None) -> Array:
    """Combine the predicates of a warp's lanes. kind: "ballot", "all", "any" or "uni" (all equal)."""
    asked = masks_of(g, members)
    true = np.repeat(lanes_of(values & g.active), WARP) & asked
    return {"ballot": true, "all": true == asked, "any": true != 0, "uni": (true == asked) | (true == 0)}[kind]


def reduced(values: Array, name: str, asked: Array) -> Array:
    """Combine the integers of each warp's participating lanes. name: add, min, max, and, or, xor. asked: True for
    participating lanes."""
    info = np.iinfo(values.dtype)
    neutral = {"min": info.max, "max": info.min, "and": info.max if info.min == 0 else -1}.get(name, 0)
    rows = np.where(asked, values, values.dtype.type(neutral)).reshape(-1, WARP)
    return np.repeat(REDUCTIONS[name].reduce(rows, axis=1, dtype=values.dtype), WARP)


def extreme(codes: Array, lower: bool, size: bool, nan: bool, asked: Array) -> Array:
    """Return the min (`lower`) or max of the float32 numbers of each warp's participating lanes. size: use absolute
    values. nan: return NaN if one number is NaN. asked: True for participating lanes."""
    both = partial(comparisons.extreme, lower=lower, nan=nan, kind="f32")
    rows = (codes & np.uint32(0x7FFF_FFFF) if size else codes).reshape(-1, WARP)
    asked = asked.reshape(-1, WARP)
    first = np.take_along_axis(rows, asked.argmax(1)[:, None], 1)
    return np.repeat(reduce(both, np.where(asked, rows, first).T), WARP)


def elected(g: Group, asked: Array) -> tuple[Array, Array]:
    """Return two arrays with one element per thread: the lowest participating lane of its warp, and whether the thread
    is this lane. asked: True for participating lanes."""
    first = np.repeat(asked.reshape(-1, WARP).argmax(1).astype(np.uint32), WARP)
    return first, g.machine.lane[g.s] == first


def first_lanes(g: Group) -> Array:
    """Return True for the first active lane of each warp."""
    active = g.active.reshape(-1, WARP)
    return (active & (np.cumsum(active, 1) == 1)).reshape(-1)


def transposed(register: Array) -> Array:
    """Transpose 8 x 8 matrices of 16-bit numbers, each spread over one register of a warp (movmatrix)."""
    return loaded(stored(register[None], True), False)[0]


class Matrices:
    """ldmatrix and stmatrix of `count` matrices. A matrix has 8 rows of eight 16-bit numbers; with of_bytes, 16 rows of
    16 bytes. Lane 8 m + r, or 16 m + r with of_bytes, holds the address of row r of matrix m."""

    def __init__(self, machine: Machine, count: int, transposed: bool, of_bytes: bool = False) -> None:
        self.memory, self.count, self.transposed, self.of_bytes = machine.memory, count, transposed, of_bytes
        self._gives = machine.lane < (16 if of_bytes else 8) * count

    def _givers(self, g: Group) -> Group:
        inner = g.under(self._gives[g.s])
        assert inner is not None
        return inner

    def load(self, g: Group, addresses: Array) -> Array:
        """Load matrices and return the registers of all lanes, shape (registers, threads of the slice)."""
        words = np.ascontiguousarray(self.memory.read(self._givers(g), SHARED, addresses, 4, 4).T)
        if self.of_bytes:
            return loaded_bytes(words.view(np.uint8).reshape(-1, 2, 16, 16)[:, : self.count])
        return loaded(words.view(np.uint16).reshape(-1, 4, 8, 8)[:, : self.count], self.transposed)

    def store(self, g: Group, addresses: Array, registers: Array) -> None:
        rows = np.zeros((g.size // WARP, 4, 8, 8), np.uint16)
        rows[:, : self.count] = stored(registers, self.transposed)
        self.memory.write(self._givers(g), SHARED, addresses, 4, rows.reshape(-1, 8).view(np.uint32).T)
