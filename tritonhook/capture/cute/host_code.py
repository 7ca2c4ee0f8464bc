"""What the compiled host code of a CuTe DSL function would launch: it is called on stand-ins of the CUDA runtime.

The DSL compiles a function to host code, which works out the grid and each kernel's arguments, encodes TMA descriptors,
and calls the CUDA runtime. Here a second execution engine runs the same code with stand-ins for these calls. Nothing is
launched, and no GPU is asked. Where a tensor's address goes into an argument is found by another call, in which each
tensor lies elsewhere: bytes that move with a tensor are pointers to it. Bytes that nothing has written, between the
parts of an argument, are found by a call on a stack that was filled with something else.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tritonhook.capture.cute import modules
from tritonhook.capture.launches.arguments import Unrecordable
from tritonhook.capture.launches.record import DTYPE_BYTES, Buffer, Launch, Packed, Pointer
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import parameter_places

_LIMIT = 227 << 10  # bytes of shared memory: what the stand-in of a device has of everything
_COOPERATIVE, _CLUSTER, _SCHEDULING, _STREAM_SERIALIZATION = 2, 4, 5, 6  # cudaLaunchAttributeID
_DTYPES = {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2", "float8e8m0fnu": "float8_e8m0fnu"}
_FILL = """module { llvm.func @fill(%byte: i8) {
  %size = llvm.mlir.constant(16384 : i64) : i64
  %place = llvm.alloca %size x i8 : (i64) -> !llvm.ptr
  "llvm.intr.memset"(%place, %byte, %size) <{isVolatile = true}> : (!llvm.ptr, i8, i64) -> ()
  llvm.return } }"""
_I32, _POINTER = ctypes.c_int32, ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor among the arguments of a call. at: where its descriptor lies, which begins with its address."""

    at: int
    address: int
    size: int
    dtype: str

    @classmethod
    def of(cls, tensor: Any) -> Tensor:
        """Read one of the DSL's runtime tensors."""
        shape, stride = _flat(tensor.shape), _flat(tensor.stride)
        bits = int(tensor.element_type.width)
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        name = tensor.element_type.__name__.lower()
        dtype = _DTYPES.get(name, name)
        (at,) = tensor.__c_pointers__()
        size = -(-extent * bits // 8) if all(shape) else 0
        return cls(int(at), int(tensor.data_ptr), size, dtype if dtype in DTYPE_BYTES else "uint8")


@dataclass(frozen=True, slots=True)
class Called:
    """One call of cudaLaunchKernelEx. parameters: the bytes of each."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    attributes: dict[int, tuple[int, ...]]
    parameters: tuple[bytes, ...]


@dataclass(eq=False)
class HostCode:
    """The host code of a compiled function. cubins: those that it carries, by kernel."""

    function: Any
    cubins: dict[str, Cubin] = field(init=False)
    _called: list[Called] = field(default_factory=list)
    _problem: str | None = None

    def __post_init__(self) -> None:
        from cutlass._mlir import ir
        from cutlass._mlir.execution_engine import ExecutionEngine

        module = getattr(self.function, "ir_module", None)
        if module is None:
            raise Unrecordable("a compiled function has no host code")
        found = modules.cubins(modules.strings(module))
        self.cubins = {kernel: cubin for cubin in found for kernel in cubin.kernels}
        self._names: list[str] = []  # of kernels; a handle is an index, from 1
        self._engine = ExecutionEngine(module, opt_level=0, shared_libs=[])
        with module.context, ir.Location.unknown():
            self._filling = ExecutionEngine(ir.Module.parse(_FILL), opt_level=0, shared_libs=[])
        self._fill = ctypes.CFUNCTYPE(None, _POINTER)(self._filling.raw_lookup("fill"))
        self._callbacks = dict(self._stand_ins())
        for name, callback in self._callbacks.items():
            self._engine.raw_register_runtime(name, ctypes.cast(callback, _POINTER))
        library, error, device = _POINTER(), _I32(0), _I32(0)
        place = ctypes.pointer(ctypes.pointer(library))
        self._packed("cuda_init", place, ctypes.pointer(error))
        self._packed("cuda_load_to_device", place, ctypes.pointer(device), ctypes.pointer(error))
        self._entry = self._engine.lookup(self.function.function_name)

    def _packed(self, name: str, *arguments: Any) -> None:
        if not (address := self._engine.raw_lookup(name)):
            raise Unrecordable(f"{self.function.function_name}: its host code has no {name}")
        ctypes.CFUNCTYPE(_I32, _POINTER)(address)(_pointers(arguments))

    def launches(self, arguments: Sequence[Any], tensors: Sequence[Tensor]) -> list[tuple[Cubin, Launch]]:
        """What a call launches, each with the cubin of its kernel. arguments: as the DSL passes them. tensors: all that
        are among these. Raises Unrecordable."""
        buffers = _buffers(tensors)
        before, other = self._call(arguments), self._call(arguments, 0xFF)
        away = random.Random(0)
        moves = {address: (away.getrandbits(16) | 1) << 24 for address, _, _ in buffers}
        places = [ctypes.c_uint64.from_address(tensor.at) for tensor in tensors]
        try:
            for place, tensor in zip(places, tensors, strict=True):
                place.value = tensor.address + moves[tensor.address]
            after = self._call(arguments)
        finally:
            for place, tensor in zip(places, tensors, strict=True):
                place.value = tensor.address
        moved = [(address, size, moves[address]) for address, size, _ in buffers]
        made = tuple(Buffer(size, dtype) for _, size, dtype in buffers)
        return [
            (self.cubins[one.kernel], _launch(one, same, there, moved, made))
            for one, same, there in zip(before, other, after, strict=True)
        ]

    def _call(self, arguments: Sequence[Any], filled: int = 0) -> list[Called]:
        """What a call launches, on a stack of these bytes."""
        self._called, self._problem, result = [], None, _I32(0)
        self._fill(_pointers([ctypes.pointer(ctypes.c_uint8(filled))]))
        self._entry(_pointers([*arguments, ctypes.pointer(result)]))
        if self._problem or result.value:
            why = self._problem or f"its host code ended with error {result.value}"
            raise Unrecordable(f"{self.function.function_name}: {why}")
        return self._called

    # --- stand-ins of the CUDA runtime

    def _stand_ins(self) -> Iterator[tuple[str, Any]]:
        def made(count: int, call: Callable[..., Any]) -> Any:
            return ctypes.CFUNCTYPE(_I32, *[_POINTER] * count)(lambda *given: call(*given) or 0)

        yield "_cudaLibraryLoadData", made(8, lambda library, *_: _put(library, 1, ctypes.c_uint64))
        yield "_cudaLibraryGetKernel", made(3, self._kernel)
        yield "_cudaGetDevice", made(1, lambda device: _put(device, 0))
        yield "_cudaDeviceGetAttribute", made(3, lambda value, *_: _put(value, _LIMIT))
        yield "_cuKernelGetAttribute", made(4, lambda value, *_: _put(value, 0))
        yield "_cudaKernelSetAttributeForDevice", made(4, lambda *_: 0)
        yield "_cudaFuncSetAttribute", made(3, lambda *_: 0)
        yield "_cudaLaunchKernelEx", made(3, self._launched)
        for name, count in (("_cudaLaunchKernel", 10), ("_cudaOccupancyMaxActiveBlocksPerMultiprocessor", 4)):
            yield name, made(count, lambda *_, name=name: self._refuse(f"its host code calls {name[1:]}"))

    def _refuse(self, why: str) -> None:
        self._problem = self._problem or why

    def _kernel(self, handle: int, library: int, name: int) -> None:
        self._names.append(ctypes.string_at(name).decode())
        _put(handle, len(self._names), ctypes.c_uint64)

    def _launched(self, config: int, handle: int, parameters: int) -> None:
        """cudaLaunchConfig_t: grid, block, dynamic shared memory, stream, attributes, how many."""
        gx, gy, gz, bx, by, bz = (ctypes.c_uint32 * 6).from_address(config)
        shared, _, attributes, count = (ctypes.c_uint64 * 4).from_address(config + 24)
        found = {}
        for number in range(count & 0xFFFF_FFFF):
            place = attributes + 72 * number
            found[ctypes.c_uint32.from_address(place).value] = tuple((ctypes.c_uint32 * 3).from_address(place + 8))
        name = self._names[handle - 1]
        if name not in self.cubins or not (sizes := parameter_places(self.cubins[name].data, name)):
            return self._refuse(f"the parameters of {name} are not known")
        places = (ctypes.c_uint64 * len(sizes)).from_address(parameters)
        given = tuple(ctypes.string_at(place, size) for place, (_, size) in zip(places, sizes, strict=True))
        self._called.append(Called(name, (gx, gy, gz), (bx, by, bz), int(shared), found, given))
        return None


def _put(place: int, value: int, kind: Any = _I32) -> None:
    kind.from_address(place).value = value


def _pointers(arguments: Sequence[Any]) -> Any:
    values = [one if isinstance(one, int) else ctypes.cast(one, _POINTER) for one in arguments]
    return (_POINTER * len(values))(*values)


def _flat(sizes: Any) -> list[int]:
    return [one for part in sizes for one in _flat(part)] if isinstance(sizes, (tuple, list)) else [int(sizes)]


# --- the launch ----------------------------------------------------------------------------------


def _buffers(tensors: Sequence[Tensor]) -> list[tuple[int, int, str]]:
    """(address, size, dtype) of each allocation. Tensors that begin at one address share it."""
    found: dict[int, tuple[int, str]] = {}
    for tensor in tensors:
        size, dtype = found.get(tensor.address, (0, tensor.dtype))
        found[tensor.address] = max(size, tensor.size), dtype
    made = sorted((address, size, dtype) for address, (size, dtype) in found.items())
    for (address, size, _), (behind, _, _) in pairwise(made):
        if address + size > behind:
            raise Unrecordable("two of its tensors overlap, and begin at different addresses")
    if any(not address for address, _, _ in made):
        raise Unrecordable("a tensor has no memory")
    return made


def _launch(
    one: Called, same: Called, there: Called, buffers: Sequence[tuple[int, int, int]], made: tuple[Buffer, ...]
) -> Launch:
    """same: the call on another stack. there: the one with tensors elsewhere."""
    unknown = {number for number, value in one.attributes.items() if value[0]} - {
        *(_COOPERATIVE, _CLUSTER, _SCHEDULING, _STREAM_SERIALIZATION)
    }
    if unknown:
        raise Unrecordable(f"{one.kernel}: launch attribute {min(unknown)}")
    every = zip(one.parameters, same.parameters, there.parameters, strict=True)
    parameters = tuple(_parameter(one.kernel, number, *sides, buffers, made) for number, sides in enumerate(every))
    x, y, z = one.attributes.get(_CLUSTER, (1, 1, 1))
    flags = (bool(one.attributes.get(which, (0,))[0] & 1) for which in (_COOPERATIVE, _STREAM_SERIALIZATION))
    return Launch(one.kernel, one.grid, one.block, parameters, made, (x or 1, y or 1, z or 1), one.shared, *flags)


def _parameter(
    kernel: str,
    number: int,
    given: bytes,
    same: bytes,
    moved: bytes,
    buffers: Sequence[tuple[int, int, int]],
    made: Sequence[Buffer],
) -> Pointer | Packed:
    here = bytes(a if a == b else 0 for a, b in zip(given, same, strict=True))
    there = bytes(c if a == b else 0 for a, b, c in zip(given, same, moved, strict=True))
    pointers = []
    data = bytearray(here)
    for at in range(0, len(here), 8):
        old, new = (int.from_bytes(side[at : at + 8], "little") for side in (here, there))
        if old == new:
            continue
        fitting = [
            (at, index, old - address)
            for index, (address, size, move) in enumerate(buffers)
            if new - old == move and 0 <= old - address <= size
        ]
        if len(fitting) != 1 or at + 8 > len(here):
            raise Unrecordable(f"{kernel}: argument {number} depends on an address, and is no pointer into a tensor")
        pointers += fitting
        data[at : at + 8] = bytes(8)
    if len(here) == 8 and pointers:
        ((_, index, offset),) = pointers
        return Pointer(str(number), index, offset, made[index].dtype)
    return Packed(str(number), data.hex(), tuple(pointers))
