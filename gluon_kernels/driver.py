"""Launch a compiled Triton kernel through the CUDA driver, with arguments that are laid out in memory once.

Triton's own launch computes types, a cache key and tensor maps for each call: 100 to 250 us of Python. This module
works for any kernel.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
WARP_THREADS = 32
# Values of CUtensorMapInterleave, CUtensorMapL2promotion and CUtensorMapFloatOOBfill, the same as in Triton.
NO_INTERLEAVE, L2_128_BYTES, FILL_WITH_ZEROS = 0, 2, 0
# Values of CUstreamCaptureMode and of CUresult.
RELAXED_CAPTURE, NOT_INITIALIZED = 2, 3
# Triton's type of a scalar argument -> its format character in `struct`.
NUMBERS = {"fp32": "f", "i32": "i", "i64": "q"}


class Unsupported(Exception):
    """Error: only Triton itself can launch this kernel safely. The message is the reason."""


@cache
def driver() -> Any:
    """Load libcuda. Calls keep the GIL, as each takes about 1 us. Raises Unsupported if it is older than CUDA 12.4."""
    try:
        found = ctypes.PyDLL("libcuda.so.1")
        pointer, word = ctypes.c_void_p, ctypes.c_uint32
        found.cuTensorMapEncodeTiled.argtypes = [pointer, word, word, *[pointer] * 5, *[word] * 4]
        found.cuTensorMapReplaceAddress.argtypes = [pointer, pointer]
        found.cuFuncGetParamInfo.argtypes = [pointer, ctypes.c_size_t, pointer, pointer]
        found.cuThreadExchangeStreamCaptureMode.argtypes = [pointer]
        found.cuLaunchKernel.argtypes = [pointer, *[word] * 7, *[pointer] * 3]
    except (OSError, AttributeError) as error:  # no driver, or one older than CUDA 12.4
        raise Unsupported(str(error)) from None
    return found


@contextmanager
def uncaptured() -> Iterator[None]:
    """Let this thread copy and allocate while another stream is captured into a CUDA graph.

    Has no effect if the driver is older than CUDA 12.4, or if this process has not initialised it, as in a dry run.
    """
    mode = ctypes.c_int(RELAXED_CAPTURE)
    try:
        exchange = driver().cuThreadExchangeStreamCaptureMode
        result = exchange(ctypes.byref(mode))
    except Unsupported:
        result = NOT_INITIALIZED
    if result == NOT_INITIALIZED:
        yield
        return
    succeed("cuThreadExchangeStreamCaptureMode", result)
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def succeed(call: str, result: int) -> None:
    if result:
        raise RuntimeError(f"{call} failed: CUDA error {result}")


class Field:
    """One kernel parameter: its bytes, and the name of the tensor whose address it holds, or ""."""

    def __init__(self, data: bytes, alignment: int, tensor: str = "", tensor_map: bool = False) -> None:
        self.data, self.alignment, self.tensor, self.tensor_map = data, alignment, tensor, tensor_map


def fields(
    signature: dict[str, str], maps: Sequence[Any], arguments: dict[str, Any], tensors: dict[str, str]
) -> Iterator[Field]:
    """List the parameters of a kernel in order, without the parameters that Triton appends.

    `signature`: the kernel's argument types by name. `maps`: metadata of its tensor descriptors. `arguments`: values of
    the launch by name. `tensors`: argument -> name of its tensor, for the tensors that change from call to call.
    """
    described = iter(maps)
    for argument, kind in signature.items():
        if kind == "constexpr":
            continue
        value: Any = arguments[argument]
        if kind.startswith("tensordesc"):
            yield Field(tensor_map(value, next(described)), TENSOR_MAP_ALIGNMENT, tensors[argument], tensor_map=True)
            yield from (Field(struct.pack("i", size), 4) for size in value.shape)
            yield from (Field(struct.pack("q", stride), 8) for stride in value.strides)
        elif kind.startswith("*"):
            yield Field(struct.pack("Q", value.data_ptr()), 8, tensors.get(argument, ""))
        elif kind in NUMBERS:
            yield Field(struct.pack(NUMBERS[kind], value), struct.calcsize(NUMBERS[kind]))
        else:
            raise Unsupported(f"argument {argument}: its type {kind} is not supported here")


def tensor_map(descriptor: Any, metadata: dict[str, Any]) -> bytes:
    """Encode the CUtensorMap of a Triton TensorDescriptor."""
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    shape, strides = list(descriptor.shape), list(descriptor.strides)
    rank, size = len(shape), metadata["elem_size"]
    space = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
    place = aligned(ctypes.addressof(space), TENSOR_MAP_ALIGNMENT)
    encoded = driver().cuTensorMapEncodeTiled(
        place, TMA_DTYPE_DEVICE_TO_HOST[metadata["elem_type"]], rank, descriptor.base.data_ptr(),
        (ctypes.c_uint64 * rank)(*reversed(shape)),
        (ctypes.c_uint64 * rank)(*(size * stride for stride in reversed(strides[:-1]))),
        (ctypes.c_uint32 * rank)(*reversed(metadata["block_size"])),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        NO_INTERLEAVE, metadata["swizzle"], L2_128_BYTES, FILL_WITH_ZEROS,
    )  # fmt: skip
    succeed("cuTensorMapEncodeTiled", encoded)
    return ctypes.string_at(place, TENSOR_MAP_BYTES)


def aligned(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment


class Launch:
    """A kernel with its arguments in memory. Calling it writes the tensor addresses and starts the kernel."""

    def __init__(
        self,
        compiled: Any,
        grid: tuple[int, ...],
        arguments: dict[str, Any],
        tensors: dict[str, str],
        order: Sequence[str],
    ) -> None:
        """Prepare launches. `arguments`, `tensors`: see `fields`.

        `order`: names of the tensors, in the order in which a call passes their addresses. A tensor in `arguments` that
        `tensors` does not name has the same address in each call; this object keeps it alive. Raises Unsupported.
        """
        metadata = compiled.metadata
        unusual = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
        for name in unusual:
            if getattr(metadata, name, 0):
                raise Unsupported(f"{name} is {getattr(metadata, name)}")
        if metadata.num_ctas != 1:
            raise Unsupported(f"clusters of {metadata.num_ctas} CTAs")
        maps = getattr(metadata, "tensordesc_meta", None) or ()
        found = list(fields(compiled.src.signature, maps, arguments, tensors))
        found += added_by_triton(compiled.function, parameter_count(compiled.asm["ptx"]), found)
        self._lay_out(found, list(order))
        still = (x for name, x in arguments.items() if hasattr(x, "data_ptr") and name not in tensors)
        self.kept = (compiled, *still)  # keeps the GPU module and the tensors with fixed addresses alive
        self.lock = threading.Lock()
        threads = WARP_THREADS * metadata.num_warps
        x, y, z = (*grid, 1, 1)[:3]
        self.before_stream = tuple(map(ctypes.c_uint32, (x, y, z, threads, 1, 1, metadata.shared)))
        self.function = ctypes.c_void_p(compiled.function)
        self.start, self.replace = driver().cuLaunchKernel, driver().cuTensorMapReplaceAddress

    def _lay_out(self, found: list[Field], tensors: list[str]) -> None:
        offsets, end = [], 0
        for field in found:
            offsets.append(aligned(end, field.alignment))
            end = offsets[-1] + len(field.data)
        self.memory = ctypes.create_string_buffer(end + TENSOR_MAP_ALIGNMENT)
        first = aligned(ctypes.addressof(self.memory), TENSOR_MAP_ALIGNMENT)
        self.pointers: list[tuple[Any, int]] = []
        self.maps: list[tuple[Any, int]] = []
        for field, offset in zip(found, offsets, strict=True):
            place = first + offset
            ctypes.memmove(place, field.data, len(field.data))
            if field.tensor_map:
                self.maps.append((ctypes.c_void_p(place), tensors.index(field.tensor)))
            elif field.tensor:
                self.pointers.append((ctypes.c_uint64.from_address(place), tensors.index(field.tensor)))
        self.parameters = (ctypes.c_void_p * len(found))(*(first + offset for offset in offsets))

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        """Start the kernel. `addresses`: the tensors' addresses, in the order of `order`."""
        with self.lock:
            for place, i in self.pointers:
                place.value = addresses[i]
            for place, i in self.maps:
                self.replace(place, addresses[i])
            result = self.start(self.function, *self.before_stream, stream, self.parameters, None)
        if result:
            succeed("cuLaunchKernel", result)


def parameter_count(ptx: str) -> int:
    """Count the parameters of a module's entry."""
    entry = ptx.index(".entry ")
    return ptx[entry : ptx.index(")", entry)].count(".param ")


def added_by_triton(function: int, count: int, found: list[Field]) -> list[Field]:
    """Make the parameters that Triton appends to `found`: null pointers, as their scratch memory is not used.

    `count`: number of all parameters. Raises Unsupported if a parameter of `function` has another size than its field.
    """
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    for i in range(count):
        info = driver().cuFuncGetParamInfo(function, i, ctypes.byref(offset), ctypes.byref(size))
        succeed("cuFuncGetParamInfo", info)
        sizes.append(size.value)
    expected = [len(field.data) for field in found]
    rest = sizes[len(expected) :]
    if sizes[: len(expected)] != expected or any(size != 8 for size in rest):
        raise Unsupported(f"the kernel's parameters have {sizes} bytes; expected {expected}, then 8 for each pointer")
    return [Field(bytes(8), 8) for _ in rest]
