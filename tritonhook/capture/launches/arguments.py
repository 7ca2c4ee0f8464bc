"""The arguments of a launch as Triton's launchers pass them to the kernel: pointers, numbers, TMA descriptors."""

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
_ELEMENTS = {8: 10, 9: 8, 10: 9}  # the driver's number of a type, if different from the device's
_OUTSIDE = "a TMA descriptor that reaches outside of its tensor's memory"
_OF_NO_TENSOR = "a TMA descriptor of memory that no tensor has"
ENCODED = "nvTmaDesc"  # the type of an argument that is a descriptor in bytes
_TF32, _L2_128B = 11, 2  # CUtensorMapDataType, CUtensorMapL2promotion: Triton's values


class Unrecordable(Exception):
    """A launch that cannot be recorded; the message says why."""


class Arguments:
    """The arguments of one launch, and the allocations that they point into; two views of one allocation share it.

    descriptors: Triton's `tensordesc_meta`, in order; empty if the kernel takes each descriptor as separate arguments.
    storages: for each buffer: (tensor, start in bytes, size in bytes).
    """

    def __init__(self, kernel: str, descriptors: Sequence[Mapping[str, Any]] = ()) -> None:
        self.parameters: list[Parameter] = []
        self.buffers: list[Buffer] = []
        self.storages: list[Any] = []
        self._kernel, self._descriptors = kernel, iter(descriptors)
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, name: str, kind: Any, argument: Any) -> None:
        """Add one argument, or all arguments of a tuple. A constexpr is skipped: it is no parameter of the kernel.
        Raises Unrecordable."""
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
            raise self._refused(name, f"{kind}; time it as MODULE:FUNCTION instead")

    def descriptor(self, name: str, address: int, tiling: Tiling, tensor: Any) -> Descriptor:
        """Make a descriptor from its address. tensor: a tensor with the memory `tiling.begin` bytes after the
        address, or None. Raises Unrecordable for None."""
        if tensor is None:
            raise self._refused(name, _OF_NO_TENSOR)
        number, offset = self.place(tensor, (address + tiling.begin) % ADDRESSES)
        return self._within(Descriptor(name, number, offset - tiling.begin, tiling))

    def _encoded(self, name: str, argument: Any) -> Descriptor | Packed:
        """Read a descriptor that the program encoded: its fields, or its bytes if they are not understood (im2col).
        Either way the address is its first number."""
        from tritonhook.capture.launches import tensor_map
        from tritonhook.capture.launches.live_tensors import LIVE_TENSORS

        data = tensor_map.bytes_of(argument)
        if data is None:
            raise self._refused(name, f"a {type(argument).__name__}, not a TMA descriptor that is known")
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
        """Encode an im2col descriptor by the driver, as Triton's launcher does, and keep its bytes."""
        from tritonhook.capture.launches.tensor_map import bytes_of

        data = None
        with suppress(Exception):  # without a GPU
            encode = import_module("triton.backends.nvidia.driver").make_tensordesc_arg
            more = (None,) * (len(inspect.signature(encode).parameters) - 2)  # since Triton 3.8
            data = bytes_of(encode(given, about, *more)[0])
        if data is None or int.from_bytes(data[:8], "little") != given.base.data_ptr():
            raise self._refused(base.name, "a TMA descriptor of im2col, which only a GPU's driver encodes")
        return self._in_bytes(base.name, data, getattr(given.base, "base", given.base))

    def _add_descriptor(self, name: str, argument: Any) -> None:
        """Add a descriptor, or its parts where the GPU has no TMA; then shape and strides, which Triton's launcher
        always passes."""
        base = self._pointer(name, argument.base)
        shape, strides = [*map(int, argument.shape)], [*map(int, argument.strides)]
        about = next(self._descriptors, None)
        if about is None:
            self.parameters.append(base)
            self._add_numbers(name, "i64", shape, strides)
            flags = [argument.padding == "nan", getattr(argument, "round_f32_to_tf32", None)]  # since Triton 3.7
            self.parameters += [Scalar(f"{name}.flag", "i1", int(flag)) for flag in flags if flag is not None]
        elif about.get("is_im2col"):
            self.parameters.append(self._im2col(base, argument, about))
        else:
            descriptor = self._descriptor(base, argument, about)
            self.parameters.append(descriptor)
            if about["fp4_padded"] and not hasattr(argument, "round_f32_to_tf32"):  # Triton 3.6
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
        tensor = getattr(argument, "base", argument)  # Triton's TensorWrapper
        if not hasattr(tensor, "untyped_storage") and hasattr(argument, "data_ptr"):  # all that Triton asks for
            from tritonhook.capture.launches.live_tensors import LIVE_TENSORS

            tensor = LIVE_TENSORS.at({address := argument.data_ptr()}).get(address, tensor)
        dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
        if dtype not in DTYPE_BYTES or not hasattr(tensor, "untyped_storage"):
            raise self._refused(name, f"a {type(argument).__name__}, not a tensor of known type")
        number, offset = self.place(tensor, argument.data_ptr())
        return Pointer(name, number, offset, dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def place(self, tensor: Any, address: int) -> tuple[int, int]:
        """Return the number of the buffer for a tensor's allocation, and the offset of an address from its begin, in
        bytes. Adds the buffer if it is new."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        dtype = dtype if dtype in DTYPE_BYTES else "uint8"
        whole = tensor.untyped_storage()
        start, size = whole.data_ptr(), whole.nbytes()
        offset = address - start
        if size > MOST_BUFFER:
            size = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            begin = tensor.data_ptr()
            start, offset, size = begin, address - begin, size * DTYPE_BYTES[dtype]
        key = (start, size) if start else (whole._cdata, start, size)  # without memory all begin at 0
        if key not in self._numbers:
            self._numbers[key] = len(self.buffers)
            self.buffers.append(Buffer(size, dtype))
            self.storages.append((tensor, start - whole.data_ptr(), size))
        return self._numbers[key], offset


def tiling_of(descriptor: Any, about: Mapping[str, Any]) -> Tiling:
    """Make the tiling that Triton asks the driver to encode. about: of `tensordesc_meta`. Triton's own dimensions begin
    with the outermost."""
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
