"""Read the arguments of a launch, in the form in which Triton's launchers pass them to the kernel: pointers, scalars,
TMA descriptors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from tritonhook.capture.launches.record import (
    ADDRESSES,
    DTYPE_BYTES,
    SCALARS,
    Buffer,
    Descriptor,
    Packed,
    Parameter,
    Pointer,
    Scalar,
    Tiling,
)

MOST_BUFFER = 8 << 30  # bytes; of a larger allocation, only the tensor's part is recorded
_ELEMENTS = {8: 10, 9: 8, 10: 9}  # the driver's number of an element type, by its number in device code, if they differ
_OUTSIDE = "a TMA descriptor that reaches outside of its tensor's memory"
_OF_NO_TENSOR = "a TMA descriptor of memory that belongs to no known tensor"
ENCODED = "nvTmaDesc"  # Triton's type of an argument that is an encoded descriptor
_TF32, _L2_128B = 11, 2  # CUtensorMapDataType, CUtensorMapL2promotion: Triton's values


class Unrecordable(Exception):
    """Raised if a launch cannot be recorded; the message is the reason."""


class Arguments:
    """The arguments of one launch, and the allocations that they point into. Views of one allocation share a buffer.

    descriptors: Triton's `tensordesc_meta`, in order; empty if the kernel takes each descriptor as separate arguments.
    storages: (tensor, start in bytes, size in bytes) of each buffer.
    """

    def __init__(self, kernel: str, descriptors: Sequence[Mapping[str, Any]] = ()) -> None:
        self.parameters: list[Parameter] = []
        self.buffers: list[Buffer] = []
        self.storages: list[Any] = []
        self._kernel, self._descriptors = kernel, iter(descriptors)
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, name: str, kind: Any, argument: Any) -> None:
        """Add one argument, or all arguments of a tuple. A constexpr is skipped, because it is not a parameter of the
        kernel. kind: Triton's type, e.g. "*fp16". Raises Unrecordable for an unknown type or for a pointer to unknown
        memory."""
        if isinstance(kind, tuple):
            for number, (inner, value) in enumerate(zip(kind, argument, strict=True)):
                self.add(f"{name}.{number}", inner, value)
        elif kind == "constexpr":
            return
        elif kind.startswith("*"):
            self.parameters.append(self._pointer(name, argument))
        elif kind in SCALARS:
            value = float(argument) if kind.startswith(("f", "b")) else int(argument)
            self.parameters.append(Scalar(name, kind, value))
        elif kind.startswith("tensordesc"):
            self._add_descriptor(name, argument)
        elif kind == ENCODED:
            self.parameters.append(self._encoded(name, argument))
        else:
            raise self._refused(name, f"of the unsupported type {kind}; time the kernel as MODULE:FUNCTION instead")

    def descriptor(self, name: str, address: int, tiling: Tiling, tensor: Any) -> Descriptor:
        """Make a descriptor from its address. tensor: the tensor that contains the byte at address + tiling.begin.
        Raises Unrecordable if it is None."""
        if tensor is None:
            raise self._refused(name, _OF_NO_TENSOR)
        number, offset = self.place(tensor, (address + tiling.begin) % ADDRESSES)
        return self._within(Descriptor(name, number, offset - tiling.begin, tiling))

    def _encoded(self, name: str, argument: Any) -> Descriptor | Packed:
        """Read a descriptor that the program has encoded. The result has the descriptor's fields, or only its bytes if
        the fields are unknown, as for im2col. In both cases the first 8 bytes are the address."""
        from tritonhook.capture.launches import tensor_map
        from tritonhook.capture.launches.live_tensors import LIVE_TENSORS

        data = tensor_map.bytes_of(argument)
        if data is None:
            raise self._refused(name, f"a {type(argument).__name__}, not a known kind of TMA descriptor")
        address, tiling = tensor_map.decoded(data) or (int.from_bytes(data[:8], "little"), None)
        begin = (address + (tiling.begin if tiling else 0)) % ADDRESSES
        tensor = LIVE_TENSORS.at({begin}).get(begin)
        if tiling is not None:
            return self.descriptor(name, address, tiling, tensor)
        if tensor is None:
            raise self._refused(name, _OF_NO_TENSOR)
        return self._in_bytes(name, data, tensor)

    def _in_bytes(self, name: str, data: bytes, tensor: Any) -> Packed:
        address = int.from_bytes(data[:8], "little")
        return Packed(name, data[8:].rjust(len(data), b"\0").hex(), ((0, *self.place(tensor, address)),))

    def _im2col(self, base: Pointer, given: Any, about: Mapping[str, Any]) -> Packed:
        """Encode an im2col descriptor with the driver, as Triton's launcher does, and keep its bytes."""
        from tritonhook.capture.launches.tensor_map import bytes_of

        data = None
        with suppress(Exception):  # there may be no GPU
            encode = import_module("triton.backends.nvidia.driver").make_tensordesc_arg
            more = (None,) * (len(inspect.signature(encode).parameters) - 2)  # parameters added in Triton 3.8
            data = bytes_of(encode(given, about, *more)[0])
        if data is None or int.from_bytes(data[:8], "little") != given.base.data_ptr():
            raise self._refused(base.name, "a TMA descriptor of im2col, which only the driver of a GPU can encode")
        return self._in_bytes(base.name, data, getattr(given.base, "base", given.base))

    def _add_descriptor(self, name: str, argument: Any) -> None:
        """Add a descriptor, or on a GPU without TMA its base pointer and fields. Then add shape and strides, which
        Triton's launcher always passes as well."""
        base = self._pointer(name, argument.base)
        shape, strides = [*map(int, argument.shape)], [*map(int, argument.strides)]
        about = next(self._descriptors, None)
        if about is None:
            self.parameters.append(base)
            self._add_numbers(name, "i64", shape, strides)
            flags = [
                argument.padding == "nan",
                getattr(argument, "round_f32_to_tf32", None),
            ]  # the second flag was added in Triton 3.7
            self.parameters += [Scalar(f"{name}.flag", "i1", int(flag)) for flag in flags if flag is not None]
        elif about.get("is_im2col"):
            self.parameters.append(self._im2col(base, argument, about))
        else:
            descriptor = self._descriptor(base, argument, about)
            self.parameters.append(descriptor)
            if about["fp4_padded"] and not hasattr(
                argument, "round_f32_to_tf32"
            ):  # Triton 3.6 passes the encoded shape
                shape = [*reversed(descriptor.tiling.shape)]
        self._add_numbers(name, "i32", shape)
        self._add_numbers(name, "i64", (), strides)

    def _add_numbers(self, name: str, kind: str, shape: Sequence[int], strides: Sequence[int] = ()) -> None:
        self.parameters += [Scalar(f"{name}.shape.{number}", kind, size) for number, size in enumerate(shape)]
        self.parameters += [Scalar(f"{name}.stride.{number}", kind, size) for number, size in enumerate(strides)]

    def _descriptor(self, base: Pointer, given: Any, about: Mapping[str, Any]) -> Descriptor:
        if base.buffer is None:
            raise self._refused(base.name, _OUTSIDE)
        return self._within(Descriptor(base.name, base.buffer, base.offset, tiling_of(given, about)))

    def _within(self, made: Descriptor) -> Descriptor:
        begin, size = made.offset + made.tiling.begin, self.buffers[made.buffer].size
        if not 0 <= begin <= size - made.tiling.bytes:
            raise self._refused(made.name, _OUTSIDE)
        return made

    def _refused(self, name: str, what: str) -> Unrecordable:
        return Unrecordable(f"{self._kernel}: argument {name} is {what}")

    def _pointer(self, name: str, argument: Any) -> Pointer:
        if argument is None:
            return Pointer(name, None)
        tensor = getattr(argument, "base", argument)  # `argument` may be Triton's TensorWrapper
        if not hasattr(tensor, "untyped_storage") and hasattr(argument, "data_ptr"):  # Triton needs only data_ptr()
            from tritonhook.capture.launches.live_tensors import LIVE_TENSORS

            tensor = LIVE_TENSORS.at({address := argument.data_ptr()}).get(address, tensor)
        dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
        if dtype not in DTYPE_BYTES or not hasattr(tensor, "untyped_storage"):
            raise self._refused(name, f"a {type(argument).__name__}, not a tensor of known type")
        number, offset = self.place(tensor, argument.data_ptr())
        return Pointer(name, number, offset, dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def place(self, tensor: Any, address: int) -> tuple[int, int]:
        """Return (number of the buffer for a tensor's allocation, offset of an address in it in bytes). Add the buffer
        if it is new."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        dtype = dtype if dtype in DTYPE_BYTES else "uint8"
        whole = tensor.untyped_storage()
        start, size = whole.data_ptr(), whole.nbytes()
        offset = address - start
        if size > MOST_BUFFER:
            size = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            begin = tensor.data_ptr()
            start, offset, size = begin, address - begin, size * DTYPE_BYTES[dtype]
        key = (start, size) if start else (whole._cdata, start, size)  # all allocations without memory begin at 0
        if key not in self._numbers:
            self._numbers[key] = len(self.buffers)
            self.buffers.append(Buffer(size, dtype))
            self.storages.append((tensor, start - whole.data_ptr(), size))
        return self._numbers[key], offset


def tiling_of(descriptor: Any, about: Mapping[str, Any]) -> Tiling:
    """Convert Triton's descriptor to the Tiling that its launcher passes to the driver. about: the descriptor's item in
    `tensordesc_meta`. Triton's first dimension is the outermost, Tiling's first the innermost."""
    size, shape = int(about["elem_size"]), [*map(int, descriptor.shape)]
    element = _ELEMENTS.get(int(about["elem_type"]), int(about["elem_type"]))
    return Tiling(
        _TF32 if getattr(descriptor, "round_f32_to_tf32", False) else element,
        tuple(reversed([*shape[:-1], shape[-1] * (2 if about["fp4_padded"] else 1)])),
        tuple(size * int(stride) for stride in reversed(descriptor.strides[:-1])),
        tuple(map(int, reversed(about["block_size"]))),
        (1,) * len(shape),
        swizzle=int(about["swizzle"]),
        promotion=_L2_128B,
        fill=int(descriptor.padding == "nan"),
    )
