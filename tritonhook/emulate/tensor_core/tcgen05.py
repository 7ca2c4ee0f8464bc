"""tcgen05.mma, UTCHMMA, UTCQMMA: products that are added to a block of tensor memory.

It stops at one CTA (`.cta_group::1`), dense matrices, sums of float32, M of 64 or 128; A in tensor memory has the lanes
of D. Source: PTX ISA 9, "Instruction descriptor", "Shared memory descriptor", "Data Path Layout Organization". Sums are
*published*: MMA-Sim, mmasim/simulator/nv.py, has 25 fraction bits and one sum of all k for these kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import Fault
from tritonhook.emulate.memory import UNSIGNED
from tritonhook.emulate.numbers import Array
from tritonhook.emulate.tensor_core.architectures import mma_sums
from tritonhook.emulate.tensor_core.fragments import width
from tritonhook.emulate.tensor_core.shared_tiles import Descriptor, addresses
from tritonhook.emulate.tensor_core.sums import multiply
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine

FORMATS: Mapping[str, Mapping[int, str]] = {  # by kind: the numbers of A and of B
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2"},
}
_K_BYTES = 32
_SWIZZLES = {0: 16, 2: 128, 4: 64, 6: 32}  # bytes of a row of the pattern
# Sparse, saturating, negated, shifted: not known. D: its format, 1 is f32.
_UNKNOWN, _D, _F32 = 0xE080_604F, 4, 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What an instruction descriptor says. kinds: formats of A, of B. transposed: whether A is M-major, B N-major."""

    m: int
    n: int
    kinds: tuple[str, str]
    transposed: tuple[bool, bool]

    @classmethod
    def of(cls, bits: int, formats: Mapping[int, str]) -> Shape:
        kinds = formats.get(bits >> 7 & 7, ""), formats.get(bits >> 10 & 7, "")
        found = cls((bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3, kinds, (bool(bits >> 15 & 1), bool(bits >> 16 & 1)))
        if bits & _UNKNOWN or bits >> _D & 3 != _F32 or "" in kinds or found.m not in (64, 128) or not found.n:
            raise NotUnderstood(f"instruction descriptor {bits:#x}")
        return found

    @property
    def k(self) -> int:
        return 8 * _K_BYTES // width(self.kinds[0])

    def lanes(self, first: int) -> Array:
        """Where the rows of D lie, and of A in tensor memory: with M 64 in one half of the lanes of each warp."""
        if first not in ((0,) if self.m == 128 else (0, 16)):
            raise NotUnderstood(f"rows of M {self.m} from lane {first} on")
        rows = np.arange(self.m)
        return rows if self.m == 128 else first + rows // 16 * 32 + rows % 16


@dataclass(frozen=True, slots=True)
class Operands:
    """What one product takes. d: an address of tensor memory. a: the same, or a descriptor of shared memory as b is.
    bits: the instruction descriptor. adds: whether to add to what D holds."""

    d: int
    a: int
    b: int
    bits: int
    adds: bool


def multiply_in_tensor_memory(
    machine: Machine, g: Group, lanes: Array, words: Sequence[Array], adds: Array, formats: Mapping[int, str],
    a_is_near: bool,
) -> None:  # fmt: skip
    """Do the products that these lanes begin, each at once. words, adds: the fields of Operands, for all lanes.
    a_is_near: A lies in tensor memory."""
    for lane in np.flatnonzero(lanes):
        d, a, b, bits = (int(word[lane]) for word in words)
        _multiply(machine, g.s.start + int(lane), Operands(d, a, b, bits, bool(adds[lane])), formats, a_is_near)


def _multiply(machine: Machine, thread: int, one: Operands, formats: Mapping[int, str], a_is_near: bool) -> None:
    shape, memory = Shape.of(one.bits, formats), machine.tensor_memory
    lanes = shape.lanes(one.d >> 16)
    if a_is_near and (one.a >> 16 != one.d >> 16 or shape.transposed[0]):
        raise NotUnderstood(f"A in tensor memory from lane {one.a >> 16} on, D from {one.d >> 16} on")
    b = _shared(machine, thread, one.b, shape.n, shape, 1)
    if a_is_near:
        a = memory.block(thread, one.a, _K_BYTES // 4)[lanes].view(UNSIGNED[_K_BYTES // shape.k])
        if machine.memory.watch is not None:
            machine.memory.watch.tensor_by_core(thread, one.a & 0xFFFF, _K_BYTES // 4, writes=False)
    else:
        a = _shared(machine, thread, one.a, shape.m, shape, 0)
    if machine.memory.watch is not None:
        machine.memory.watch.tensor_by_core(thread, one.d & 0xFFFF, shape.n, writes=True)
    d = memory.block(thread, one.d, shape.n)
    held = d[lanes] if one.adds else np.zeros((shape.m, shape.n), np.uint32)
    sums = mma_sums("sm_100", shape.kinds[0], shape.k, "f32")
    d[lanes] = multiply(a, b.T, held, (*shape.kinds, "f32"), sums)


def _shared(machine: Machine, thread: int, descriptor: int, length: int, shape: Shape, number: int) -> Array:
    """The numbers of A or B in shared memory, (length, k). number: 0 for A, 1 for B."""
    memory, size = machine.memory, width(shape.kinds[number]) // 8
    places = _tile(descriptor, length, shape.k, size, not shape.transposed[number])
    if int(places.max()) + size > memory.shared_bytes:
        raise Fault(f"matrix descriptor {descriptor:#x}: outside of shared memory", thread)
    index = places + int(machine.cta[thread]) * memory.shared_bytes
    if memory.watch is not None:
        memory.watch.bulk_read("tcgen05", [thread], np.unique(index // 16) * 16, 16)
    return memory.shared.data.view(UNSIGNED[size])[index // size]


@lru_cache(maxsize=1024)
def _tile(bits: int, length: int, k: int, size: int, is_k_major: bool) -> Array:
    """The addresses of a tile's numbers. bits: a shared memory descriptor: its constant is 1; absolute strides, other
    swizzles, and a base offset are not known. Without a swizzle the latter says nothing."""
    swizzle, base = bits >> 61, bits >> 49 & 7
    known = bits >> 46 & 7 == 1 and not bits >> 52 & 0x1FF and swizzle in _SWIZZLES
    if not known or (base and swizzle) or (size == 4 and not is_k_major):
        raise NotUnderstood(f"matrix descriptor {bits:#x}")
    start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    return addresses(Descriptor(start, leading, stride, _SWIZZLES[swizzle]), length, k, size, is_k_major)
