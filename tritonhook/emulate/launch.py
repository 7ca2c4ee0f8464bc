"""Prepare one launch: put its buffers into memory, make its arguments, choose the CTAs to execute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tritonhook.capture.launches.record import (
    DTYPE_BYTES,
    Descriptor,
    Launch,
    Packed,
    Pointer,
    Scalar,
    Scratch,
    buffers_of,
)
from tritonhook.capture.launches.tensor_bits import encoded
from tritonhook.emulate.memory import Allocation, Memory
from tritonhook.emulate.tma import TensorMap, register
from tritonhook.errors import UsageError

MOST_CHOSEN = 1 << 20  # most CTAs that can be chosen from a larger launch


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch in emulated memory. buffers: its buffers, in order. arguments: the bytes of each argument."""

    buffers: tuple[Allocation, ...]
    arguments: tuple[bytes, ...]


def place(launch: Launch, contents: Sequence[bytes], memory: Memory) -> Placed:
    """Put a launch's buffers into memory, and make its arguments. contents: bytes of each buffer before the launch.
    Raises UsageError if a size is wrong."""
    buffers, names, elements = [], names_of(launch), element_names(launch)
    for number, (buffer, data) in enumerate(zip(launch.buffers, contents, strict=True)):
        if len(data) != buffer.size:
            raise UsageError(f"buffer {number}: {len(data)} bytes of contents, but the launch recorded {buffer.size}")
        buffers.append(memory.allocate(data, names[number]))
        memory.elements[buffers[-1].begin] = elements[number]
    arguments = []
    for one in launch.parameters:
        if isinstance(one, Scalar):
            arguments.append(one.bytes)
        elif isinstance(one, Pointer):
            address = 0 if one.buffer is None else buffers[one.buffer].address + one.offset
            arguments.append(address.to_bytes(8, "little"))
        elif isinstance(one, Descriptor):
            tensor = TensorMap.of(one.tiling, buffers[one.buffer].address + one.offset)
            arguments.append(register(memory, tensor, encoded(one.tiling, tensor.address)))
        elif isinstance(one, Packed):
            arguments.append(one.filled([buffer.address for buffer in buffers]))
        else:
            address = memory.allocate(one.size, "scratch memory").address if one.size else 0
            arguments.append(address.to_bytes(8, "little"))
    return Placed(tuple(buffers), tuple(arguments))


def names_of(launch: Launch) -> list[str]:
    """Name each buffer after the first argument that points into it, e.g. "argument x_ptr", else "buffer 0"."""
    names = [f"buffer {number}" for number in range(len(launch.buffers))]
    for one in reversed(launch.parameters):
        if not isinstance(one, Scratch) and one.name:
            for number in buffers_of(one):
                names[number] = f"argument {one.name}"
    return names


def element_names(launch: Launch) -> list[Callable[[int], str]]:
    """Return for each buffer a function that names the element at a byte offset, see `element_of`. The function uses
    the first pointer into the buffer; without a pointer it returns ""."""
    pointers = {one.buffer: one for one in reversed(launch.parameters) if isinstance(one, Pointer)}
    every = (pointers.get(number) for number in range(len(launch.buffers)))
    return [(lambda byte: "") if one is None else partial(element_of, one) for one in every]


def element_of(one: Pointer, byte: int) -> str:
    """Name the tensor element at a byte offset of its buffer, e.g. "x[3, 6] of (4, 64)". For a byte behind the tensor's
    end, an index exceeds the shape. Return "" if shape or dtype are not known, or if no element lies there."""
    size, at = DTYPE_BYTES.get(one.dtype or "", 0), dict[int, int]()
    if not size or not one.shape or byte < one.offset:
        return ""
    left = (byte - one.offset) // size
    strides = one.stride or tuple(math.prod(one.shape[n + 1 :]) for n in range(len(one.shape)))
    for axis in sorted(range(len(strides)), key=lambda axis: -strides[axis]):
        at[axis], left = divmod(left, strides[axis]) if strides[axis] > 0 else (0, left)
    return "" if left else f"{one.name}[{', '.join(str(at[n]) for n in range(len(at)))}] of {one.shape}"


def clusters(launch: Launch, ctas: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all CTAs of each cluster that has one of `ctas`, in order of their ranks. ctas: linear numbers; a range may
    be very long, so it is not expanded."""
    x, y, z = launch.cluster
    across, down, _ = launch.grid
    if x * y * z == 1:
        yield from ((cta,) for cta in ctas)
        return
    seen, is_whole = set[int](), ctas == range(math.prod(launch.grid))
    for cta in ctas:
        left, top, front = cta % across // x * x, cta // across % down // y * y, cta // across // down // z * z
        first = (front * down + top) * across + left
        if (is_whole and cta != first) or first in seen:
            continue
        if not is_whole:
            seen.add(first)
        yield tuple(first + (c * down + b) * across + a for c in range(z) for b in range(y) for a in range(x))


def edges(launch: Launch, count: int) -> Sequence[int]:
    """Choose at most `count` CTAs of a launch: the first, the last, the last along each axis, then CTAs at equal
    distances. Return their linear numbers."""
    x, y, z = launch.grid
    total = x * y * z
    if total <= count:
        return range(total)
    if count > MOST_CHOSEN:
        raise UsageError(f"--ctas {count:,}: at most {MOST_CHOSEN:,} can be chosen; omit the option to execute all")
    wanted = [0, total - 1, x - 1, (y - 1) * x, (z - 1) * x * y, x * y - 1]
    wanted += [total * number // count for number in range(count)]
    return tuple(sorted(list(dict.fromkeys(wanted))[:count]))
