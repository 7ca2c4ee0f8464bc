"""One launch on the machine: its buffers in memory, its arguments, and the CTAs that are executed."""

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

MOST_CHOSEN = 1 << 20  # CTAs of a launch that is executed in part


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch in memory. buffers: its buffers, in order. arguments: the bytes of each parameter."""

    buffers: tuple[Allocation, ...]
    arguments: tuple[bytes, ...]


def place(launch: Launch, contents: Sequence[bytes], memory: Memory) -> Placed:
    """Put a launch's buffers into memory. contents: of each buffer before the launch."""
    buffers, names, elements = [], names_of(launch), element_names(launch)
    for number, (buffer, data) in enumerate(zip(launch.buffers, contents, strict=True)):
        if len(data) != buffer.size:
            raise UsageError(f"buffer {number}: {len(data)} bytes, but the launch says {buffer.size}")
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
    """Name each buffer, by the first argument that points into it."""
    names = [f"buffer {number}" for number in range(len(launch.buffers))]
    for one in reversed(launch.parameters):
        if not isinstance(one, Scratch) and one.name:
            for number in buffers_of(one):
                names[number] = f"argument {one.name}"
    return names


def element_names(launch: Launch) -> list[Callable[[int], str]]:
    """Return for each buffer a function that names the element at a byte of it, by the first pointer into it; "" where
    none is known."""
    pointers = {one.buffer: one for one in reversed(launch.parameters) if isinstance(one, Pointer)}
    every = (pointers.get(number) for number in range(len(launch.buffers)))
    return [(lambda byte: "") if one is None else partial(element_of, one) for one in every]


def element_of(one: Pointer, byte: int) -> str:
    """Name the element of a tensor that lies at a byte of its buffer, such as "x[3, 6] of (4, 64)", or where it would
    lie behind the end. "" where that is not known, or where no element lies."""
    size, at = DTYPE_BYTES.get(one.dtype or "", 0), dict[int, int]()
    if not size or not one.shape or byte < one.offset:
        return ""
    left = (byte - one.offset) // size
    strides = one.stride or tuple(math.prod(one.shape[n + 1 :]) for n in range(len(one.shape)))
    for axis in sorted(range(len(strides)), key=lambda axis: -strides[axis]):
        at[axis], left = divmod(left, strides[axis]) if strides[axis] > 0 else (0, left)
    return "" if left else f"{one.name}[{', '.join(str(at[n]) for n in range(len(at)))}] of {one.shape}"


def clusters(launch: Launch, ctas: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the CTAs of each cluster that has one of `ctas`, in order of their ranks. A range may be very long."""
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
    """At most so many CTAs, by their linear numbers: the first, the last, the last along each axis, then others that
    lie evenly between them."""
    x, y, z = launch.grid
    total = x * y * z
    if total <= count:
        return range(total)
    if count > MOST_CHOSEN:
        raise UsageError(f"--ctas: {count:,}, more than the {MOST_CHOSEN:,} that can be chosen; leave it out for all")
    wanted = [0, total - 1, x - 1, (y - 1) * x, (z - 1) * x * y, x * y - 1]
    wanted += [total * number // count for number in range(count)]
    return tuple(sorted(list(dict.fromkeys(wanted))[:count]))
