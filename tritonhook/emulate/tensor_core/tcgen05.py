"""tcgen05.mma (UTCHMMA, UTCQMMA, UTCOMMA): matrix products accumulated in tensor memory, by one CTA or a pair.
tcgen05.cp (UTCCP): copies to tensor memory.

Not supported: sparse matrices, numbers of 6 bits, A in other lanes of tensor memory than D, scale factors with M other
than 128 per CTA. Source: PTX ISA 9, "Instruction descriptor", "Shared memory descriptor", "Data Path Layout
Organization", "Scale Factor Layouts". Rounding follows published results, not measurements: MMA-Sim,
mmasim/simulator/nv_ptx.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import OutOfBounds
from tritonhook.emulate.memory import UNSIGNED
from tritonhook.emulate.numbers import Array, decode
from tritonhook.emulate.tensor_core.architectures import mma_sums, scaled_sums
from tritonhook.emulate.tensor_core.fragments import unpack, width
from tritonhook.emulate.tensor_core.shared_tiles import Descriptor, addresses
from tritonhook.emulate.tensor_core.sums import Scales, multiply, multiply_scaled
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine

_NARROW = {0: "e4m3", 1: "e5m2", 5: "e2m1"}
# By .kind: formats of A and B, by their numbers in the instruction descriptor.
FORMATS: Mapping[str, Mapping[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "mxf8f6f4": _NARROW,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
FACTORS = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}  # by .kind: possible numbers of factors per row of A
_K_BYTES = 32  # bytes of a row of A along k
_SWIZZLES = {0: 16, 2: 128, 4: 64, 6: 32}  # bytes of a row of the swizzle pattern; 16: none
# Bits of an instruction descriptor that are not supported: sparse, saturating, negated, shifted. With scale factors,
# bits 4, 5, 23, 29 and 30 have another meaning: position and format of the factors.
_UNKNOWN, _UNKNOWN_SCALED = 0xE080_604F, 0x8000_604F
_SUMS = {0: "f16", 1: "f32"}  # format of D, by bits 4 and 5, without scale factors
_LANES_OF_FACTORS = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """Properties of a product that its opcode determines. formats: possible formats of A and B, by their numbers in the
    descriptor. factors: scale factors per row of A and per column of B; 0: none. ctas: 1, or 2 for a pair. near: A is
    in tensor memory."""

    formats: Mapping[int, str]
    factors: int = 0
    ctas: int = 1
    near: bool = False

    @property
    def packed(self) -> bool:
        """Whether 4-bit numbers are dense in shared memory. Else 16 of them take 16 bytes, and use the first 8."""
        return self.factors > 1


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoded instruction descriptor.

    m: rows of D in all CTAs together. n: columns. kinds: formats of A and B. transposed: whether A is M-major, and B
    N-major. firsts: first byte of the factors of A and of B in a column. scale: format of the factors. sums: format of
    D; f16 uses the lower half of a column.
    """

    m: int
    n: int
    kinds: tuple[str, str]
    transposed: tuple[bool, bool]
    firsts: tuple[int, int]
    scale: str
    sums: str

    @classmethod
    def of(cls, bits: int, kind: Kind) -> Shape:
        """Decode the 32 bits of a descriptor. Raises NotUnderstood."""
        kinds = kind.formats.get(bits >> 7 & 7, ""), kind.formats.get(bits >> 10 & 7, "")
        m, n, transposed = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3, (bool(bits >> 15 & 1), bool(bits >> 16 & 1))
        firsts, scale = (bits >> 29 & 3, bits >> 4 & 3), "ue8m0" if bits >> 23 & 1 else "e4m3"
        sums = "f32" if kind.factors else _SUMS.get(bits >> 4 & 3, "")
        if kind.factors:
            bad = bits & _UNKNOWN_SCALED or m != 128 * kind.ctas or any(one % kind.factors for one in firsts)
            bad = bad or (scale == "e4m3" and kind.factors != 4)
        else:
            bad = bits & _UNKNOWN or not sums or m not in (64 * kind.ctas, 128 * kind.ctas)
            bad = bad or (sums == "f16" and kinds[0] in ("bf16", "tf32"))
        if bad or "" in kinds or not n or n // 8 % kind.ctas:
            raise NotUnderstood(f"instruction descriptor {bits:#x}")
        return cls(m, n, kinds, transposed, firsts, scale, sums)


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands of one product. d: address in tensor memory. a: address in tensor memory, or a shared memory descriptor.
    b: a shared memory descriptor. bits: the instruction descriptor. adds: whether the old D is added. factors:
    addresses of the scale factors of A and B in tensor memory."""

    d: int
    a: int
    b: int
    bits: int
    adds: bool
    factors: tuple[int, ...] = ()


def multiply_in_tensor_memory(
    machine: Machine, g: Group, lanes: Array, words: Sequence[Array], adds: Array, kind: Kind
) -> None:
    """Compute the products that these lanes begin. words: the fields of Operands except `adds`, for all lanes."""
    for lane in np.flatnonzero(lanes):
        d, a, b, bits, *factors = (int(word[lane]) for word in words)
        one = Operands(d, a, b, bits, bool(adds[lane]), tuple(factors))
        _Product(machine, g.s.start + int(lane), one, kind).do()


class _Product:
    """One product that a thread begins."""

    def __init__(self, machine: Machine, thread: int, one: Operands, kind: Kind) -> None:
        self.machine, self.thread, self.one, self.kind = machine, thread, one, kind
        self.ctas, self.memory = machine.ctas_together(thread, kind.ctas), machine.tensor_memory
        self.shape = Shape.of(one.bits, kind)

    def do(self) -> None:
        shape, one = self.shape, self.one
        rows, columns = shape.m // len(self.ctas), shape.n // len(self.ctas)
        b = np.concatenate([self._shared(cta, one.b, columns, 1) for cta in self.ctas]).T
        folds = len(self.ctas) == 2 and rows == 64  # then lanes 64 to 127 hold the second half of D's columns
        lanes = np.arange(128) if folds else self._lanes(rows)
        if self.kind.near and (folds or one.a >> 16 != one.d >> 16 or shape.transposed[0] or width(shape.kinds[0]) < 8):
            raise NotUnderstood(f"A of this layout in tensor memory (A from lane {one.a >> 16}, D from {one.d >> 16})")
        for cta in self.ctas:
            if self.kind.near:
                cells = self.memory.by_core(self.thread, cta, one.a, _K_BYTES // 4, False, lanes)
                a = cells[lanes].view(UNSIGNED[width(shape.kinds[0]) // 8])
            else:
                a = self._shared(cta, one.a, rows, 0)
            d = self.memory.by_core(self.thread, cta, one.d, shape.n >> folds, True, lanes)
            held = d[lanes] if one.adds else np.zeros((len(lanes), d.shape[1]), np.uint32)
            found = self._added(cta, a, b, np.hstack(np.split(held, 2)) if folds else held)
            d[lanes] = np.vstack(np.split(found, 2, 1)) if folds else found

    def _added(self, cta: int, a: Array, b: Array, held: Array) -> Array:
        kinds, to = self.shape.kinds, self.shape.sums
        if not self.kind.factors:
            held = held & 0xFFFF if to == "f16" else held
            return multiply(a, b, held, (*kinds, to), mma_sums("sm_100", kinds[0], a.shape[1], to))
        x, y = (self._factors(cta, number, size) for number, size in enumerate((len(a), self.shape.n)))
        least = -6 if self.shape.scale == "e4m3" else -127
        sums = scaled_sums("mxf4" if self.kind.packed else "mxf8f6f4")
        return multiply_scaled(a, b, held, kinds, Scales(x, y.T, 16 if self.kind.packed else 1, least), sums)

    def _lanes(self, rows: int) -> Array:
        """Return the lanes that hold the rows of D, and of A in tensor memory: 64 rows use half of each warp's
        lanes."""
        first = self.one.d >> 16
        if first not in ((0,) if rows == 128 else (0, 16)):
            raise NotUnderstood(f"D of {rows} rows that begins at lane {first}")
        at = np.arange(rows)
        return at if rows == 128 else first + at // 16 * 32 + at % 16

    def _shared(self, cta: int, descriptor: int, length: int, number: int) -> Array:
        """Read the numbers of A or B in a CTA's shared memory, (length, k). number: 0 for A, 1 for B."""
        kind, transposed = self.shape.kinds[number], self.shape.transposed[number]
        found = in_shared(self.machine, self.thread, cta, descriptor, length, max(1, width(kind) // 8), not transposed)
        if width(kind) >= 8:
            return found
        if transposed:
            raise NotUnderstood(f"a transposed matrix of {kind}")
        if not self.kind.packed:
            found = found.reshape(length, -1, 16)[..., :8]
        return unpack(np.ascontiguousarray(found).view(np.uint32), 4).reshape(length, -1)

    def _factors(self, cta: int, number: int, rows: int) -> Array:
        """Read the scale factors of A (number 0) or B (1), float64 (rows, factors). Those of row r are in lane r % 32,
        column r // 32; each 32 lanes must hold the same ones. Raises NotUnderstood if they do not."""
        address, first, count = self.one.factors[number], self.shape.firsts[number], -(-rows // _LANES_OF_FACTORS)
        cells = self.memory.by_core(self.thread, cta, address, count, writes=False)
        bytes_ = np.ascontiguousarray(cells).view(np.uint8).reshape(4, _LANES_OF_FACTORS, count, 4)
        codes = bytes_[..., first : first + self.kind.factors].transpose(0, 2, 1, 3).reshape(4, -1, self.kind.factors)
        if address >> 16 or (codes[:, :rows] != codes[0, :rows]).any():
            raise NotUnderstood("factors that are not the same in the lanes of all warps")
        return decode(codes[0, :rows], self.shape.scale)


COPIES = {  # tcgen05.cp, by shape: rows, bytes of a row, and how many times the rows are repeated in the lanes
    "32x128b": (32, 16, 4), "128x128b": (128, 16, 1), "128x256b": (128, 32, 1),
}  # fmt: skip


def copy_to_tensor_memory(
    machine: Machine, g: Group, lanes: Array, targets: Array, descriptors: Array, shape: str, ctas: int
) -> None:
    """Execute the copies that these lanes begin (tcgen05.cp): from the shared memory of each CTA to its tensor memory.
    targets: addresses in tensor memory. descriptors: shared memory descriptors. shape: a key of COPIES. ctas: 1, or 2
    for a pair."""
    rows, size, times = COPIES[shape]
    for lane in np.flatnonzero(lanes):
        thread, address = g.s.start + int(lane), int(targets[lane])
        if address >> 16:
            raise NotUnderstood(f"a copy to lane {address >> 16} of tensor memory")
        for cta in machine.ctas_together(thread, ctas):
            words = in_shared(machine, thread, cta, int(descriptors[lane]), rows, 4, row=size)
            cells = machine.tensor_memory.by_core(thread, cta, address, size // 4, writes=True)
            cells[:] = np.tile(words, (times, 1))


def in_shared(
    machine: Machine, thread: int, cta: int, descriptor: int, length: int, size: int, is_k_major: bool = True,
    row: int = _K_BYTES,
) -> Array:  # fmt: skip
    """Read the matrix of a shared memory descriptor in a CTA: (length, row // size) numbers. size: bytes of a number.
    row: bytes of a row along k."""
    memory = machine.memory
    places = _tile(descriptor, length, row // size, size, is_k_major)
    if int(places.max()) + size > memory.shared_bytes:
        raise OutOfBounds(f"matrix descriptor {descriptor:#x}: outside of shared memory", thread)
    index = places + cta * memory.shared_bytes
    if memory.watch is not None:
        memory.watch.flights.read("tcgen05", [thread], np.unique(index // 16) * 16, 16)
    return memory.shared.data.view(UNSIGNED[size])[index // size]


@lru_cache(maxsize=1024)
def _tile(bits: int, length: int, k: int, size: int, is_k_major: bool) -> Array:
    """Return the addresses of a matrix's numbers, (length, k). bits: a shared memory descriptor, whose bits 46 to 48
    are the constant 1. Raises NotUnderstood for absolute strides, other swizzles, and a base offset with a swizzle.
    (Without a swizzle, a base offset has no effect.)"""
    swizzle, base = bits >> 61, bits >> 49 & 7
    known = bits >> 46 & 7 == 1 and not bits >> 52 & 0x1FF and swizzle in _SWIZZLES
    if not known or (base and swizzle) or (size == 4 and not is_k_major):
        raise NotUnderstood(f"matrix descriptor {bits:#x}")
    start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    return addresses(Descriptor(start, leading, stride, _SWIZZLES[swizzle]), length, k, size, is_k_major)
