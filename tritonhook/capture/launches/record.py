"""Launch: one launch of a kernel, with everything needed to repeat it: grid, block and every argument.

Values and their JSON form. recorder.py records launches, and timing/replay.py repeats them. The JSON can also be
written by hand (`tritonhook ab a.cubin b.cubin --args launch.json`):

    {"grid": [132], "block": [128], "shared": 0,
     "parameters": [{"dtype": "bfloat16", "shape": [4096, 128]}, {"type": "i32", "value": 4096}]}
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonhook._display import Brief

FORMAT = 1
SCALARS: Mapping[str, str] = {  # struct's format of each of Triton's scalar types
    **{"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q"},
    **{"u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"},
    **{"fp16": "e", "bf16": "H", "fp32": "f", "f32": "f", "fp64": "d"},
}
POISON = bytes.fromhex("6bc954d135e74ab2")  # of memory that nothing has written: two numbers of float32
DTYPE_BYTES: Mapping[str, int] = {  # bytes of an element, by torch's name of the dtype
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
ELEMENT_BITS = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)  # by CUtensorMapDataType
NOT_FINITE = ("inf", "-inf", "nan")  # as text in JSON
ADDRESSES = 1 << 64  # sums of addresses wrap around
_ROWS, _ENDLESS = 1 << 30, 0x7FFF_0000  # sizes of the dimensions of packed rows: rows, minimum of the endless one


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation on the GPU that arguments point into.

    size: in bytes. dtype: of the first argument that points into it. values: a file beside the record with its bytes
    before the launch; None if they were not kept.
    """

    size: int
    dtype: str
    values: str | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is a tensor. buffer: an index into the launch's buffers; None for a null pointer. offset: in
    bytes."""

    name: str
    buffer: int | None
    offset: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """An argument that is a number. type: Triton's, a key of SCALARS."""

    name: str
    type: str
    value: float

    @property
    def bytes(self) -> bytes:
        """The value's bytes in the kernel's parameters."""
        if self.type == "bf16":  # the upper half of a float: Triton's launcher drops the lower half as well
            return struct.pack("<f", self.value)[2:]
        return struct.pack(f"<{SCALARS[self.type]}", self.value)


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch memory that the launcher adds as an argument. size: in bytes for the whole launch; 0 is a null
    pointer."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """How TMA copies boxes: the arguments of cuTensorMapEncodeTiled, with the driver's numbers, innermost dimension
    first. element: CUtensorMapDataType. strides: in bytes, without the innermost. box: elements along each
    dimension. steps: distance between these. by_host: encoded by host code as in tensor_map.py, not by the driver,
    which sets other bits."""

    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    promotion: int = 0
    fill: int = 0
    by_host: bool = False

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return ELEMENT_BITS[self.element]

    @property
    def packed_rows(self) -> tuple[frozenset[int], int]:
        """The dimensions of packed ("ragged") rows, as indices of `strides`, and the distance from the address to the
        first row in bytes. Empty and 0 for other descriptors.

        The sum of two coordinates is a row plus 2^30, so that the GPU checks where the rows of one sequence end. Either
        the address lies 2^30 rows before the memory (quack's copy_utils.py), or a third dimension goes that far back
        (Triton's tools/ragged_tma.py: 2^30 of its strides and 2^30 rows wrap around to nothing).
        """
        sizes = self.shape[1:]
        if _ROWS not in sizes:
            return self._rows_of_a_box()
        endless = {number for number, size in enumerate(sizes) if size >= _ENDLESS}
        for row in (number for number, size in enumerate(sizes) if size == _ROWS):
            stride = self.strides[row]
            ends = {number for number in endless if self.strides[number] == stride}
            back = {number for number in endless if not (self.strides[number] + stride) * _ROWS % ADDRESSES}
            if len(ends) == 1 and len(back) <= 1:
                return frozenset({row, *ends, *back}), 0 if back else stride * _ROWS
        return frozenset(), 0

    def _rows_of_a_box(self) -> tuple[frozenset[int], int]:
        """Find packed rows as in `ragged_rows` of sm120_attn: two dimensions have the stride of a row. One is as long
        as the box, and the address lies its length before the memory; the other has a box of 1."""
        for box, (size, copied, stride) in enumerate(zip(self.shape[1:], self.box[1:], self.strides, strict=True)):
            ends = [
                row
                for row, (rows, one) in enumerate(zip(self.shape[1:], self.box[1:], strict=True))
                if row != box and self.strides[row] == stride and rows > 1 and one == 1
            ]
            if size == copied > 1 and len(ends) == 1:
                return frozenset({box, *ends}), stride * size
        return frozenset(), 0

    @property
    def begin(self) -> int:
        """Distance from the address to the begin of its memory, in bytes."""
        return self.packed_rows[1]

    @property
    def bytes(self) -> int:
        """Bytes from the begin of the first element to the end of the last. Packed rows: only the first row counts."""
        return self._span(self.packed_rows[0])

    @property
    def reach(self) -> int:
        """The same as `bytes`, but with all packed rows that the sizes allow."""
        return self._span(frozenset())

    def _span(self, without: frozenset[int]) -> int:
        sizes = enumerate(zip(self.shape[1:], self.strides, strict=True))
        last = sum((count - 1) * stride for number, (count, stride) in sizes if number not in without)
        return last + -(-self.shape[0] * self.bits // 8)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument that is a TMA descriptor made by the host, 128 bytes. buffer, offset: those of the address inside,
    as in Pointer; with packed rows the offset may be negative."""

    name: str
    buffer: int
    offset: int
    tiling: Tiling


@dataclass(frozen=True, slots=True)
class Packed:
    """An argument of several parts. data: its bytes, in hex. pointers: the pointers inside, where `data` is zero:
    (position, buffer, offset in bytes)."""

    name: str
    data: str
    pointers: tuple[tuple[int, int, int], ...] = ()

    def filled(self, addresses: Sequence[int]) -> bytes:
        """Fill in the pointers, and return the bytes for the kernel. addresses: address of each buffer."""
        made = bytearray.fromhex(self.data)
        for at, buffer, offset in self.pointers:
            made[at : at + 8] = ((addresses[buffer] + offset) % ADDRESSES).to_bytes(8, "little")
        return bytes(made)


Parameter = Pointer | Scalar | Scratch | Descriptor | Packed


def buffers_of(parameter: Parameter) -> tuple[int, ...]:
    """Return the numbers of the buffers that an argument points into."""
    if isinstance(parameter, Packed):
        return tuple(buffer for _, buffer, _ in parameter.pointers)
    known = isinstance(parameter, (Pointer, Descriptor)) and parameter.buffer is not None
    return (parameter.buffer,) if known else ()  # type: ignore[union-attr,return-value]


def with_buffers(parameter: Parameter, places: Mapping[int, int]) -> Parameter:
    """Renumber the buffers of an argument. places: new number by old number."""
    if isinstance(parameter, Packed):
        return replace(parameter, pointers=tuple((at, places[old], offset) for at, old, offset in parameter.pointers))
    if isinstance(parameter, (Pointer, Descriptor)) and parameter.buffer is not None:
        return replace(parameter, buffer=places[parameter.buffer])
    return parameter


@dataclass(frozen=True, slots=True, repr=False)
class Launch(Brief):
    """One launch of a kernel.

    kernel: the entry's name at the time of the launch; None if a record written by hand names none. grid: in blocks,
    not clusters. block: in threads. cluster: in blocks. shared: dynamic shared memory in bytes. pdl: with programmatic
    stream serialization.
    """

    kernel: str | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: tuple[Parameter, ...]
    buffers: tuple[Buffer, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    cooperative: bool = False
    pdl: bool = False

    @property
    def key(self) -> str:
        """Hash of everything except the buffers' contents: equal for launches of the same kind."""
        document = to_document(self)
        for buffer in document["buffers"]:
            del buffer["values"]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def problem(self) -> str:
        """Hash of the arguments and of the buffers' sizes, without the boxes of descriptors: equal for launches of
        several configurations of one autotuned kernel with the same arguments."""
        arguments = [_problem(parameter) for parameter in self.parameters if not isinstance(parameter, Scratch)]
        known = repr((arguments, [buffer.size for buffer in self.buffers]))
        return hashlib.sha256(known.encode()).hexdigest()[:12]

    @property
    def bytes(self) -> int:
        """Total size of all buffers, in bytes."""
        return sum(buffer.size for buffer in self.buffers)

    @property
    def summary(self) -> str:
        """One line of text: grid, block and arguments."""
        shown = [_shown(parameter) for parameter in self.parameters if not isinstance(parameter, Scratch)]
        return f"grid {'x'.join(map(str, self.grid))}, block {'x'.join(map(str, self.block))}: {', '.join(shown)}"


def _problem(parameter: Parameter) -> Parameter:
    if not isinstance(parameter, Descriptor):
        return parameter
    return replace(parameter, tiling=replace(parameter.tiling, box=(), swizzle=0))


def _shown(parameter: Parameter) -> str:
    if isinstance(parameter, Scalar):
        return f"{parameter.name}={parameter.value:g}"
    if isinstance(parameter, Descriptor):
        shape, box = ([*reversed(sizes)] for sizes in (parameter.tiling.shape, parameter.tiling.box))
        return f"{parameter.name} descriptor of {shape}, boxes of {box}"
    if isinstance(parameter, Packed):
        return f"{parameter.name} of {len(parameter.data) // 2} bytes"
    assert isinstance(parameter, Pointer)
    if parameter.buffer is None:
        return f"{parameter.name}=None"
    return f"{parameter.name} {parameter.dtype}{list(parameter.shape or ())}"


def to_document(launch: Launch) -> dict[str, Any]:
    """Convert a launch to JSON values; `schema` reads them back. JSON has no infinity and no NaN: these become text."""
    kinds = {Pointer: "pointer", Scalar: "scalar", Scratch: "scratch", Descriptor: "descriptor", Packed: "packed"}
    parameters = [{"kind": kinds[type(parameter)], **_fields(parameter)} for parameter in launch.parameters]
    for parameter in parameters:
        if isinstance(value := parameter.get("value"), float) and not math.isfinite(value):
            parameter["value"] = str(value)
        elif "tiling" in parameter:
            parameter["tiling"] = _fields(parameter["tiling"])
    return {"format": FORMAT, **_fields(launch), "parameters": parameters, "buffers": [*map(_fields, launch.buffers)]}


def _fields(value: Any) -> dict[str, Any]:
    """Convert a dataclass to a dict, one level deep. dataclasses.asdict visits every number, and takes ten times as
    long."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
