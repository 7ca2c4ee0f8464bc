"""Launch: one launch of a kernel, with all that is needed to repeat it: grid, block and every argument.

recorder.py records launches, and timing/replay.py repeats them. The JSON can also be written by hand
(`tritonhook ab a.cubin b.cubin --args launch.json`):

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
POISON = bytes.fromhex("6bc954d135e74ab2")  # fills memory that nothing has written; as two float32: -5.7e10, -1.2e-8
DTYPE_BYTES: Mapping[str, int] = {  # bytes of an element, by torch's dtype name
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
ELEMENT_BITS = (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6)  # by CUtensorMapDataType
NOT_FINITE = ("inf", "-inf", "nan")  # JSON has no such numbers: they are written as text
ADDRESSES = 1 << 64  # number of addresses; sums of addresses wrap around at it
# Sizes that mark the dimensions of packed rows (Tiling.packed_rows): exactly _ROWS for the dimension of the rows,
# _ENDLESS or more for a dimension without a limit.
_ROWS, _ENDLESS = 1 << 30, 0x7FFF_0000


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation on the GPU that arguments point into.

    size: in bytes. dtype: dtype of the first argument that points into it. values: name of the file with its bytes
    before the launch, in the folder of the launch's JSON file; None if they were not kept.
    """

    size: int
    dtype: str
    values: str | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is a tensor. buffer: index into the launch's buffers; None for a null pointer. offset: in bytes.
    stride: in elements."""

    name: str
    buffer: int | None
    offset: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """An argument that is a number. type: Triton's type, a key of SCALARS."""

    name: str
    type: str
    value: float

    @property
    def bytes(self) -> bytes:
        """The value's bytes in the kernel's parameters."""
        if self.type == "bf16":  # the upper half of a float32, truncated as in Triton's launcher
            return struct.pack("<f", self.value)[2:]
        return struct.pack(f"<{SCALARS[self.type]}", self.value)


@dataclass(frozen=True, slots=True)
class Scratch:
    """An argument that the launcher adds: a pointer to scratch memory. size: bytes for the whole launch; 0 means a null
    pointer."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """The fields of a TMA descriptor: arguments of cuTensorMapEncodeTiled, with the driver's enum values, innermost
    dimension first. element: CUtensorMapDataType. shape: in elements. strides: in bytes, without the innermost
    dimension. box: number of elements copied along each dimension. steps: distance between these elements. by_host:
    True if host code encoded the descriptor (tensor_bits.py); the driver sets slightly different bits."""

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
        """Size of an element in bits."""
        return ELEMENT_BITS[self.element]

    @property
    def packed_rows(self) -> tuple[frozenset[int], int]:
        """(Dimensions of packed rows as indices of `strides`, distance in bytes from the address to the first row).
        Empty and 0 for descriptors without packed rows.

        In a descriptor for packed ("ragged") sequences, two dimensions have the stride of a row. The sum of their
        coordinates is a row number plus 2^30. So the GPU's bounds check of one coordinate can stop at the last row of a
        sequence. The 2^30 rows are subtracted in one of two ways: the address lies 2^30 rows before the memory (quack's
        copy_utils.py), or a third dimension's stride times 2^30 cancels them modulo 2^64 (Triton's
        tools/ragged_tma.py).
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
        """Find packed rows of the kind that `ragged_rows` of sm120_attn makes. Two dimensions have the stride of a row.
        The first is as long as its box, and the address lies that many rows before the memory. The second has a box of
        1. Returns the same pair as `packed_rows`."""
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
        """Distance in bytes from the descriptor's address to the first byte that TMA can access."""
        return self.packed_rows[1]

    @property
    def bytes(self) -> int:
        """Number of bytes from the first element to the end of the last. With packed rows, only the first row is
        counted."""
        return self._span(self.packed_rows[0])

    @property
    def reach(self) -> int:
        """Number of bytes from the first element to the end of the last, including all packed rows that the sizes
        allow."""
        return self._span(frozenset())

    def _span(self, without: frozenset[int]) -> int:
        sizes = enumerate(zip(self.shape[1:], self.strides, strict=True))
        last = sum((count - 1) * stride for number, (count, stride) in sizes if number not in without)
        return last + -(-self.shape[0] * self.bits // 8)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An argument that is a TMA descriptor made by the host, of 128 bytes. buffer, offset: the place to which the
    encoded address points, as in Pointer; with packed rows the offset may be negative."""

    name: str
    buffer: int
    offset: int
    tiling: Tiling


@dataclass(frozen=True, slots=True)
class Packed:
    """An argument of several values, e.g. a struct. data: its bytes in hex, with zeros for pointers. pointers: (byte
    position in the argument, buffer, offset in bytes) of each pointer in it."""

    name: str
    data: str
    pointers: tuple[tuple[int, int, int], ...] = ()

    def filled(self, addresses: Sequence[int]) -> bytes:
        """Return the argument's bytes with its pointers filled in. addresses: address of each buffer."""
        made = bytearray.fromhex(self.data)
        for at, buffer, offset in self.pointers:
            made[at : at + 8] = ((addresses[buffer] + offset) % ADDRESSES).to_bytes(8, "little")
        return bytes(made)


Parameter = Pointer | Scalar | Scratch | Descriptor | Packed


def buffers_of(parameter: Parameter) -> tuple[int, ...]:
    """Return the indices of the buffers that an argument points into."""
    if isinstance(parameter, Packed):
        return tuple(buffer for _, buffer, _ in parameter.pointers)
    known = isinstance(parameter, (Pointer, Descriptor)) and parameter.buffer is not None
    return (parameter.buffer,) if known else ()  # type: ignore[union-attr,return-value]


def with_buffers(parameter: Parameter, places: Mapping[int, int]) -> Parameter:
    """Return an argument with other buffer indices. places: new index by old index."""
    if isinstance(parameter, Packed):
        return replace(parameter, pointers=tuple((at, places[old], offset) for at, old, offset in parameter.pointers))
    if isinstance(parameter, (Pointer, Descriptor)) and parameter.buffer is not None:
        return replace(parameter, buffer=places[parameter.buffer])
    return parameter


@dataclass(frozen=True, slots=True, repr=False)
class Launch(Brief):
    """One launch of a kernel.

    kernel: name of the entry point at the launch; None in a hand-written file without a name. grid: in blocks, not in
    clusters. block: in threads. cluster: in blocks. shared: dynamic shared memory in bytes. pdl: True if launched with
    programmatic stream serialization.
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
        """Hash of all fields except the buffers' contents. Launches with the same key are recorded once and counted."""
        document = to_document(self)
        for buffer in document["buffers"]:
            del buffer["values"]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def problem(self) -> str:
        """Hash of the arguments and the buffers' sizes, without the boxes and swizzles of descriptors. It is equal for
        launches with the same arguments in different configurations of an autotuned kernel."""
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
    """Convert a launch to JSON values, which `schema` reads. Infinity and NaN become text, because JSON has neither."""
    kinds = {Pointer: "pointer", Scalar: "scalar", Scratch: "scratch", Descriptor: "descriptor", Packed: "packed"}
    parameters = [{"kind": kinds[type(parameter)], **_fields(parameter)} for parameter in launch.parameters]
    for parameter in parameters:
        if isinstance(value := parameter.get("value"), float) and not math.isfinite(value):
            parameter["value"] = str(value)
        elif "tiling" in parameter:
            parameter["tiling"] = _fields(parameter["tiling"])
    return {"format": FORMAT, **_fields(launch), "parameters": parameters, "buffers": [*map(_fields, launch.buffers)]}


def _fields(value: Any) -> dict[str, Any]:
    """Convert a dataclass to a dict, without converting its values. dataclasses.asdict converts each number too, and
    takes ten times as long."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
