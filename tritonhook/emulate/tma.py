"""Copies between global and shared memory by a TMA descriptor (tiled). The emulator completes them at once.

A descriptor that the host makes ends with the number of a `TensorMap` in `Memory.tensor_maps`; a GPU does not use these
bytes. If the kernel changed the other bytes, or made the descriptor itself, they are decoded instead
(capture/launches/tensor_bits.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tritonhook.capture.launches.record import Tiling
from tritonhook.capture.launches.tensor_bits import BYTES, USED, encoded, read
from tritonhook.emulate.atomics import combination
from tritonhook.emulate.bulk import PIECE
from tritonhook.emulate.errors import Fault, OutOfBounds
from tritonhook.emulate.memory import GLOBAL_BASE, RANK_SHIFT, UNSIGNED, Memory
from tritonhook.emulate.tensor_core.shared_tiles import swizzled
from tritonhook.emulate.words import Array
from tritonhook.errors import NotUnderstood

_SWIZZLES = {0: 16, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle: bytes of a row of the swizzle pattern
_PADDED = 14  # CUtensorMapDataType: 16 numbers of 4 bits, which take 16 bytes of shared memory
_MAGIC = b"tensor map of tritonhook"
_NAN = {2: 0x7FF7, 4: 0x7FF7_7FF7}  # by bytes of an element: the NaN that an H100 fills in outside of the tensor
_KINDS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz")  # CUtensorMapDataType


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The contents of a TMA descriptor, innermost dimension first.

    address: that of the first element. element: bytes of an element. shape: number of elements. strides: in bytes; the
    first is `element`. box: shape of the tile that one copy moves, in elements. swizzle: bytes of a row of the swizzle
    pattern, 16 for none. fills_nan: elements outside of the tensor are read as NaN instead of 0. numbers: how many
    numbers an element holds; coordinates count numbers. padding: unused bytes after an element in shared memory, which
    mbarriers do not count. kind: type of the numbers for reductions; "": reductions are impossible.
    """

    address: int
    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 16
    fills_nan: bool = False
    numbers: int = 1
    padding: int = 0
    kind: str = ""

    @classmethod
    def of(cls, tiling: Tiling, address: int) -> TensorMap:
        """Make the map of a tensor at this address from the arguments of the host's call. Raises NotUnderstood."""
        size, numbers, padding = tiling.bits // 8, 1, 0
        if tiling.element == _PADDED:
            size, numbers, padding = 8, 16, 8
        for why, is_there in (
            ("steps between elements", any(step != 1 for step in tiling.steps)),
            ("interleaved channels", tiling.interleave),
            (
                f"elements of {tiling.bits} bits",
                not size or any(one[0] % numbers for one in (tiling.shape, tiling.box)),
            ),
            (f"swizzle {tiling.swizzle}", tiling.swizzle not in _SWIZZLES),
        ):
            if is_there:
                raise NotUnderstood("tensormap", why=why)
        shape, box = ((one[0] // numbers, *one[1:]) for one in (tiling.shape, tiling.box))
        swizzle, fill = _SWIZZLES[tiling.swizzle], bool(tiling.fill)
        kind = _KINDS[tiling.element] if tiling.element < len(_KINDS) else ""
        return cls(address, size, shape, (size, *tiling.strides), box, swizzle, fill, numbers, padding, kind)

    @property
    def bytes(self) -> int:
        """The bytes of a box, without padding."""
        return self.element * int(np.prod(self.box))

    def places(self, begin: Sequence[int], thread: int = 0, writes: bool = False) -> tuple[Array, Array]:
        """Return the addresses of a box's elements in the order of shared memory, and True for elements in the tensor.

        begin: coordinates of the box, innermost first. writes: the copy writes global memory, in units of 16 bytes, so
        that elements up to 16 bytes after the end of a row are written too. Measured on an H100, which stops with
        "illegal instruction" in the cases that raise Fault here.
        """
        if begin[0] * self.element % PIECE and self.numbers == 1:
            text = f"a copy by descriptor from element {begin[0]} of a row on, which is not a multiple of 16 bytes"
            raise Fault(text, thread)
        if writes and min(begin) < 0:
            raise Fault(f"a copy by descriptor to the negative coordinate {min(begin)}", thread)
        addresses, inside = np.array(self.address, np.int64), np.array(True)
        if begin[0] % self.numbers:
            why = f"a box that begins at number {begin[0]} of a row, in the middle of {self.numbers} packed numbers"
            raise NotUnderstood("tensormap", why=why)
        begin = begin[0] // self.numbers, *begin[1:]
        row = -(-self.shape[0] * self.element // PIECE) * PIECE // self.element if writes else self.shape[0]
        extents = row, *self.shape[1:]
        for at, size, stride, extent in zip(begin, self.box, self.strides, extents, strict=True):
            index = at + np.arange(size)
            addresses = index.reshape(-1, *[1] * addresses.ndim) * stride + addresses
            inside = ((index >= 0) & (index < extent)).reshape(-1, *[1] * inside.ndim) & inside
        return addresses.reshape(-1), inside.reshape(-1)


def register(memory: Memory, tensor: TensorMap, head: bytes = bytes(USED)) -> bytes:
    """Add a map to the memory's `tensor_maps`, and return the bytes of its descriptor. head: first bytes of the
    descriptor, the part that a GPU uses."""
    memory.tensor_maps.append((head, tensor))
    return (head + _MAGIC + (len(memory.tensor_maps) - 1).to_bytes(8, "little")).ljust(BYTES, b"\0")


def map_at(memory: Memory, address: int) -> TensorMap:
    """Return the map of the descriptor at a generic address. Raises NotUnderstood."""
    if memory.worlds > 1:
        raise NotUnderstood("tensormap", why="several copies of global memory")
    begin = address - GLOBAL_BASE
    data = bytes(memory.global_.data[begin : begin + BYTES]) if 0 <= begin < len(memory.global_.data) else b""
    head, name = data[:USED], data[USED:]
    if name.startswith(_MAGIC):
        known, tensor = memory.tensor_maps[int.from_bytes(name[len(_MAGIC) : len(_MAGIC) + 8], "little")]
        if head == known:
            return tensor  # type: ignore[no-any-return]
    made = read(data) if any(head) else None
    if made is None or _free(encoded(made[1], made[0])) != _free(head):
        raise NotUnderstood("tensormap", why="a descriptor that the kernel makes")
    return TensorMap.of(made[1], made[0])


def _free(head: bytes) -> int:
    """Return a descriptor as an integer, without bits 1 and 21 of 64-bit word 1, which the host sets and
    `tensormap.replace` does not."""
    return int.from_bytes(head, "little") & ~((1 << 1 | 1 << 21) << 64)


def load_tile(
    memory: Memory, tensor: TensorMap, begin: Sequence[int], cta: int, target: int, thread: int, barrier: int = 0
) -> int:
    """Copy a box to the shared memory of a CTA; return the bytes that the mbarrier counts. begin: coordinates of the
    box. target: a shared address. barrier: index of the mbarrier in the store of shared memory."""
    addresses, inside = tensor.places(begin, thread)
    unit = tensor.element
    index = np.where(inside, addresses - GLOBAL_BASE, 0)
    memory.check_copy(index[inside], unit, thread)
    values = memory.global_.read(index, unit, 1)[0]
    if tensor.fills_nan and unit not in _NAN:
        raise NotUnderstood("tensormap", why=f"NaN outside of the tensor, in elements of {unit} bytes")
    values = np.where(inside, values, UNSIGNED[unit](_NAN[unit] if tensor.fills_nan else 0))
    places = _in_shared(memory, tensor, cta, target, thread)
    if memory.watch is not None:
        memory.watch.bulk_write(thread, places, unit, barrier)
        memory.watch.copied_outside(thread, index[inside], unit, "r")
    memory.shared.write(places, unit, values[None])
    return tensor.bytes


def store_tile(
    memory: Memory, tensor: TensorMap, begin: Sequence[int], cta: int, source: int, thread: int, operation: str = ""
) -> None:
    """Copy a box from the shared memory of a CTA to the tensor; elements outside of the tensor are not written. source:
    a shared address. operation: the reduction that combines the box's elements with the tensor's; "": copy only."""
    addresses, inside = tensor.places(begin, thread, writes=True)
    places = _in_shared(memory, tensor, cta, source, thread)
    index, unit = (addresses - GLOBAL_BASE)[inside], tensor.element
    memory.check_copy(index, unit, thread)
    values = memory.shared.read(places, unit, 1)[0][inside]
    if operation or memory.watch is not None:
        old = memory.global_.read(index, unit, 1)[0]
        if operation:
            values = _combined(tensor, operation, old, values)
        if memory.watch is not None:
            memory.watch.flights.read("bulk", [thread], places, unit)
            memory.watch.copied_outside(thread, index, unit, "a" if operation else "w", old != values)
    memory.global_.write(index, unit, values[None])


def _combined(tensor: TensorMap, operation: str, old: Array, new: Array) -> Array:
    kind, _, ftz = tensor.kind.partition(".")
    if not kind:
        raise NotUnderstood("tensormap", why=f"a reduction of elements of {tensor.element} bytes")
    return combination(operation, kind, bool(ftz))(old, new)


def _in_shared(memory: Memory, tensor: TensorMap, cta: int, address: int, thread: int) -> Array:
    """Return the indices of a box's elements in the store of shared memory."""
    begin = address & (1 << RANK_SHIFT) - 1
    room = tensor.element + tensor.padding
    row, size = tensor.box[0] * room, int(np.prod(tensor.box)) * room
    if tensor.swizzle > 16 and row != tensor.swizzle:
        raise NotUnderstood("tensormap", why=f"rows of {row} bytes with a swizzle of {tensor.swizzle}")
    if begin + size > memory.shared_bytes:
        raise OutOfBounds(f"a copy by descriptor of {size:,} bytes outside of shared memory", thread)
    if begin % 128:
        raise Fault(f"a copy by descriptor at the shared address {begin:#x}: not aligned to 128 bytes", thread)
    places = begin + np.arange(0, size, room)
    return swizzled(places, tensor.swizzle) + cta * memory.shared_bytes
