"""Give each tensor of a launch memory of its own, even if several are views of one storage. Then an access outside of a
tensor is out of bounds, even inside its storage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tritonhook.capture.launches.record import (
    DTYPE_BYTES,
    Descriptor,
    Launch,
    Parameter,
    Pointer,
    buffers_of,
    with_buffers,
)

STORAGE, VIEW = BOUNDS = ("storage", "view")  # the memory that a kernel may access through a pointer
_ALIGNMENT = 256  # bytes; a view keeps its address modulo this


@dataclass(frozen=True, slots=True)
class Views:
    """A launch whose views have separate buffers. launch: the changed launch; overlapping views share a buffer. pieces:
    (buffer in the original launch, begin, end in bytes) of each buffer; empty if the launch was not changed."""

    launch: Launch
    pieces: tuple[tuple[int, int, int], ...]

    def split(self, contents: Sequence[bytes]) -> Sequence[bytes]:
        """Return the contents of the views, cut from the contents of the original buffers."""
        return contents if not self.pieces else [contents[number][begin:end] for number, begin, end in self.pieces]

    def joined(self, before: Sequence[bytes], after: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the contents of the original buffers, with the views' contents written into them. before: contents of
        the original buffers. after: contents of the views."""
        if not self.pieces:
            return tuple(after)
        made = [bytearray(one) for one in before]
        for (number, begin, end), data in zip(self.pieces, after, strict=True):
            made[number][begin:end] = data
        return tuple(map(bytes, made))


def views_of(launch: Launch, bounds: str = VIEW) -> Views:
    """Split a launch's buffers into views. A buffer stays whole if an argument with unknown shape or packed rows points
    into it. With STORAGE, all buffers stay whole."""
    if bounds == STORAGE:
        return Views(launch, ())
    extents = dict[int, list[tuple[int, int]]]()
    whole = set[int]()
    for one in launch.parameters:
        if isinstance(one, (Pointer, Descriptor)) and one.buffer is not None and (size := _bytes(one)):
            end = min(one.offset + size, launch.buffers[one.buffer].size)
            extents.setdefault(one.buffer, []).append((one.offset // _ALIGNMENT * _ALIGNMENT, end))
        else:
            whole.update(buffers_of(one))
    pieces, places = list[tuple[int, int, int]](), dict[int, int]()
    for number, buffer in enumerate(launch.buffers):
        if number in whole or number not in extents:
            places[number] = len(pieces)
            pieces.append((number, 0, buffer.size))
            continue
        for low, high in sorted(extents[number]):
            if pieces and pieces[-1][0] == number and low < pieces[-1][2]:
                pieces[-1] = number, pieces[-1][1], max(high, pieces[-1][2])
            else:
                pieces.append((number, low, high))
    buffers = tuple(replace(launch.buffers[number], size=end - begin) for number, begin, end in pieces)
    parameters = tuple(_moved(one, pieces) or with_buffers(one, places) for one in launch.parameters)
    return Views(replace(launch, parameters=parameters, buffers=buffers), tuple(pieces))


def _moved(one: Parameter, pieces: Sequence[tuple[int, int, int]]) -> Parameter | None:
    """Return a pointer or descriptor that points into its new buffer; None for an argument of another kind."""
    if not isinstance(one, (Pointer, Descriptor)) or one.buffer is None:
        return None
    for at, (number, begin, end) in enumerate(pieces):
        if number == one.buffer and begin <= one.offset < end:
            return replace(one, buffer=at, offset=one.offset - begin)
    return None


def _bytes(one: Pointer | Descriptor) -> int:
    """Return the number of bytes from the first element to the end of the last. It is 0 if not known, and for an empty
    tensor."""
    if isinstance(one, Descriptor):
        return 0 if one.tiling.packed_rows[0] else one.tiling.bytes
    size = DTYPE_BYTES.get(one.dtype or "", 0)
    if one.shape is None or not all(one.shape):
        return 0
    strides = one.stride
    if strides is None:
        return size * math.prod(one.shape)
    return size * (1 + sum((count - 1) * stride for count, stride in zip(one.shape, strides, strict=True)))
