"""One launch on the machine: its buffers in memory, its arguments, and the CTAs that are executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.capture.launches.record import Descriptor, Launch, Packed, Pointer, Scalar, Scratch, buffers_of
from tritonhook.emulate.machine import Geometry
from tritonhook.emulate.memory import Allocation, Memory
from tritonhook.emulate.tma import TensorMap, register
from tritonhook.errors import UsageError


@dataclass(frozen=True, slots=True)
class Placed:
    """A launch in memory. buffers: its buffers, in order. arguments: the bytes of each parameter."""

    buffers: tuple[Allocation, ...]
    arguments: tuple[bytes, ...]


def place(launch: Launch, contents: Sequence[bytes], memory: Memory) -> Placed:
    """Put a launch's buffers into memory. contents: of each buffer before the launch."""
    buffers = []
    for number, (buffer, data) in enumerate(zip(launch.buffers, contents, strict=True)):
        if len(data) != buffer.size:
            raise UsageError(f"buffer {number}: {len(data)} bytes, but the launch says {buffer.size}")
        named = (p for p in launch.parameters if not isinstance(p, Scratch) and number in buffers_of(p))
        name = next((p.name for p in named), "")
        buffers.append(memory.allocate(data, f"argument {name}" if name else f"buffer {number}"))
    arguments = []
    for one in launch.parameters:
        if isinstance(one, Scalar):
            arguments.append(one.bytes)
        elif isinstance(one, Pointer):
            address = 0 if one.buffer is None else buffers[one.buffer].address + one.offset
            arguments.append(address.to_bytes(8, "little"))
        elif isinstance(one, Descriptor):
            tensor = TensorMap.of(one.tiling, buffers[one.buffer].address + one.offset)
            arguments.append(register(memory, tensor))
        elif isinstance(one, Packed):
            arguments.append(one.filled([buffer.address for buffer in buffers]))
        else:
            address = memory.allocate(one.size, "scratch memory").address if one.size else 0
            arguments.append(address.to_bytes(8, "little"))
    return Placed(tuple(buffers), tuple(arguments))


def geometry_of(launch: Launch, ctas: Sequence[int]) -> Geometry:
    """What is executed: whole clusters, those that have one of these CTAs."""
    x, y, z = launch.cluster
    across, down, _ = launch.grid
    chosen = dict[int, None]()
    for cta in ctas:
        left, top, front = cta % across // x * x, cta // across % down // y * y, cta // across // down // z * z
        if left + x <= across and top + y <= down:
            cluster = ((c, b, a) for c in range(z) for b in range(y) for a in range(x))
            chosen |= {((front + c) * down + top + b) * across + left + a: None for c, b, a in cluster}
    return Geometry(launch.grid, launch.block, tuple(chosen), launch.cluster)


def edges(launch: Launch, count: int) -> tuple[int, ...]:
    """At most so many CTAs, by their linear numbers: the first, the last, the last along each axis, then others that
    lie evenly between them."""
    x, y, z = launch.grid
    total = x * y * z
    if total <= count:
        return tuple(range(total))
    wanted = [0, total - 1, x - 1, (y - 1) * x, (z - 1) * x * y, x * y - 1]
    wanted += [total * number // count for number in range(count)]
    return tuple(sorted(list(dict.fromkeys(wanted))[:count]))
