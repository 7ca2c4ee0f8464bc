"""The JSON schema of a launch, recorded or written by hand, and a function that reads it."""

from __future__ import annotations

import math
import struct
from typing import Annotated, Literal

from msgspec import Meta

from tritonhook._util.schema import (
    Count,
    DocumentError,
    Fields,
    FileName,
    Positive,
    Whole,
    as_schema,
    like,
    one_of,
    read_json,
)
from tritonhook.capture.launches.record import (
    DTYPE_BYTES,
    ELEMENT_BITS,
    FORMAT,
    NOT_FINITE,
    SCALARS,
    Buffer,
    Descriptor,
    Launch,
    Packed,
    Parameter,
    Pointer,
    Scalar,
    Scratch,
    Tiling,
    to_document,
)
from tritonhook.errors import CaptureError

Extent = Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=3)]
Dtype = Annotated[str, one_of(DTYPE_BYTES)]
ScalarType = Annotated[str, one_of(SCALARS)]
_NotFinite = Annotated[str, one_of(NOT_FINITE)]


class BufferFields(Fields):
    """One allocation that arguments point into. size: in bytes. values: name of the file with its bytes, in the same
    folder."""

    size: Count
    dtype: Dtype
    values: FileName | None = None


_Sizes = Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=5)]
_Element = Annotated[int, Meta(ge=0, lt=len(ELEMENT_BITS))]
_Hex = Annotated[str, Meta(pattern=r"\A([0-9a-f]{2})*\Z")]
_Choice = Annotated[int, Meta(ge=0, le=15)]


class TilingFields(Fields):
    """The fields of a TMA descriptor: arguments of cuTensorMapEncodeTiled, with the driver's enum values, innermost
    dimension first.

    element: CUtensorMapDataType. shape: in elements. strides: in bytes, without the innermost dimension. box: number of
    elements copied along each dimension. steps: distance between these elements. promotion: L2 promotion. fill: value
    of elements outside of the tensor. by_host: true if host code encoded the descriptor, not the driver.
    """

    element: _Element
    shape: _Sizes
    strides: Annotated[tuple[Count, ...], Meta(max_length=4)]
    box: _Sizes
    steps: _Sizes
    interleave: _Choice = 0
    swizzle: _Choice = 0
    promotion: _Choice = 0
    fill: _Choice = 0
    by_host: bool = False

    @property
    def tiling(self) -> Tiling:
        """The fields as a Tiling. Raises DocumentError if the lists have different numbers of dimensions."""
        rank = len(self.shape)
        if not rank == len(self.strides) + 1 == len(self.box) == len(self.steps):
            raise DocumentError(
                f"a descriptor of {rank} dimensions needs {rank} numbers in box and steps, {rank - 1} strides"
            )
        return like(self, Tiling)


class ParameterFields(Fields):
    """One argument. kind: by default "scalar" if `type` is set, else "pointer".

    name: for messages. dtype, shape, stride: fields of a tensor; stride is in elements. values: file with the bytes of
    a tensor without `buffer`, in the same folder. buffer: index into `buffers`; null means a null pointer. offset: in
    bytes. type, value: fields of a scalar. size: bytes of scratch memory. tiling: fields of a TMA descriptor. data:
    bytes of a packed argument, in hex. pointers: (byte position, buffer, offset) of each pointer in a packed argument.
    """

    kind: Literal["pointer", "scalar", "scratch", "descriptor", "packed"] | None = None
    name: str | int | None = None
    dtype: Dtype | None = None
    shape: list[Count] | None = None
    stride: list[Whole] | None = None
    values: FileName | None = None
    buffer: Count | Literal["new"] | None = "new"
    offset: Whole = 0
    type: ScalarType | None = None
    value: int | float | bool | _NotFinite | None = None
    size: Count = 0
    tiling: TilingFields | None = None
    data: _Hex | None = None
    pointers: list[tuple[Count, Count, Count]] = []


class LaunchFields(Fields):
    """One launch of a kernel.

    grid: in blocks. block: in threads. cluster: in blocks. shared: bytes of dynamic shared memory. pdl: true if
    launched with programmatic stream serialization. kernel: name of the entry point.
    """

    grid: Extent
    block: Extent
    parameters: list[ParameterFields]
    buffers: tuple[BufferFields, ...] = ()
    kernel: str | None = None
    cluster: Extent = (1,)
    shared: Count = 0
    cooperative: bool = False
    pdl: bool = False
    format: int = FORMAT

    @classmethod
    def of(cls, launch: Launch) -> LaunchFields:
        return as_schema(to_document(launch), cls)

    @property
    def launch(self) -> Launch:
        """The fields as a Launch. Raises DocumentError if they contradict each other."""
        if self.format != FORMAT:
            raise DocumentError(f"format {self.format}, not {FORMAT}")
        buffers = [Buffer(item.size, item.dtype, item.values) for item in self.buffers]
        parameters = tuple(_parameter(index, item, buffers) for index, item in enumerate(self.parameters))
        grid, block, cluster = map(_extent, (self.grid, self.block, self.cluster))
        rest = self.shared, self.cooperative, self.pdl
        return Launch(self.kernel, grid, block, parameters, tuple(buffers), cluster, *rest)


def from_json(data: bytes, source: str) -> Launch:
    """Parse the JSON of a launch. source: name of the file, for the message. Raises CaptureError if the JSON is not a
    launch."""
    try:
        return read_json(data, LaunchFields).launch
    except (DocumentError, struct.error) as error:
        raise CaptureError(f"{source}: not a recorded launch: {error}") from None


def _parameter(index: int, given: ParameterFields, buffers: list[Buffer]) -> Parameter:
    """Convert one parameter. For a hand-written tensor without a buffer, append a buffer to `buffers`."""
    name = str(index if given.name is None else given.name)
    kind = given.kind or ("scalar" if given.type is not None else "pointer")
    if kind == "scratch":
        return Scratch(given.size)
    if kind == "scalar":
        if given.type is None or given.value is None:
            raise DocumentError(f"parameter {name}: a scalar needs type and value")
        value = float(given.value) if isinstance(given.value, str) else given.value
        scalar = Scalar(name, given.type, value)
        try:
            _ = scalar.bytes
        except (struct.error, OverflowError) as error:
            raise DocumentError(f"parameter {name}: {value!r} does not fit {given.type}: {error}") from None
        return scalar
    if kind == "descriptor":
        return _descriptor(name, given, buffers)
    if kind == "packed":
        return _packed(name, given, buffers)
    shape = None if given.shape is None else tuple(given.shape)
    number = None if given.buffer == "new" else given.buffer
    if given.buffer == "new":
        if shape is None or given.dtype is None:
            raise DocumentError(f"parameter {name}: a tensor needs dtype and shape, a scalar type and value")
        number = len(buffers)
        buffers.append(Buffer(math.prod(shape) * DTYPE_BYTES[given.dtype], given.dtype, given.values))
    if number is not None and not (number < len(buffers) and 0 <= given.offset <= buffers[number].size):
        raise DocumentError(f"parameter {name}: buffer {number} is missing or ends before offset {given.offset}")
    stride = None if given.stride is None else tuple(given.stride)
    return Pointer(name, number, given.offset, given.dtype, shape, stride)


def _descriptor(name: str, given: ParameterFields, buffers: list[Buffer]) -> Descriptor:
    if given.tiling is None or not isinstance(given.buffer, int):
        raise DocumentError(f"parameter {name}: a descriptor needs tiling and buffer")
    tiling = given.tiling.tiling
    begin = given.offset + tiling.begin
    if not (given.buffer < len(buffers) and 0 <= begin <= buffers[given.buffer].size - tiling.bytes):
        raise DocumentError(f"parameter {name}: the descriptor reaches outside of its buffer")
    return Descriptor(name, given.buffer, given.offset, tiling)


def _packed(name: str, given: ParameterFields, buffers: list[Buffer]) -> Packed:
    if given.data is None:
        raise DocumentError(f"parameter {name}: a packed argument needs data")
    for at, buffer, offset in given.pointers:
        if at + 8 > len(given.data) // 2:
            raise DocumentError(f"parameter {name}: the pointer at byte {at} lies outside of the data")
        if not (buffer < len(buffers) and offset <= buffers[buffer].size):
            raise DocumentError(f"parameter {name}: buffer {buffer} is missing or ends before offset {offset}")
    return Packed(name, given.data, tuple(given.pointers))


def _extent(values: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
