"""The CuTe DSL in a dry run. It compiles for the architecture in CUTE_DSL_ARCH, and its host code runs on stand-ins
of the CUDA runtime, which launch nothing. Each launch is recorded as on a GPU (capture/cute/launches.py)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from itertools import count
from typing import Any

from tritonhook.capture.cute import runtime
from tritonhook.capture.patching import patched

_ON_CUDA = 2  # DLDeviceType
_LIMIT = 227 << 10  # bytes of shared memory; the stand-in's answer for every device attribute
_handles = count(1)


def nothing_launched() -> ExitStack:
    """Stop the DSL from launching what it compiles from now on, until the stack is closed. The DSL must be imported."""
    with suppress(ImportError):  # TVM FFI is optional
        import_module("cutlass.cutlass_dsl.tvm_ffi_provider")
    with ExitStack() as stack:
        for undo in _stand_ins(runtime.of_process()):
            stack.callback(undo)
        for module, owner_name, name, wrap in (
            ("cutlass_dsl.cuda_jit_executor", "CudaDialectJitCompiledFunction", "num_devices", _one),
            ("cute.runtime", "_Tensor", "__init__", _on_the_gpu),
            ("cutlass_dsl.tvm_ffi_provider", "TVMFFIJitCompiledFunction", "__call__", _given_on_the_gpu),
            ("cutlass_dsl.tvm_ffi_provider", "TVMFFIJitCompiledFunctionWithKwargs", "__call__", _given_on_the_gpu),
        ):
            if name in vars(owner := getattr(sys.modules.get(f"cutlass.{module}"), owner_name, object)):
                stack.enter_context(patched((owner, name, wrap)))
        return stack.pop_all()


# --- stand-ins of the CUDA runtime ---------------------------------------------------------------


def _stand_ins(library: runtime.Runtime) -> list[Callable[[], None]]:
    def puts(value: Callable[[], int], kind: Any = ctypes.c_int32) -> Callable[..., int]:
        def put(place: int, *_: int) -> int:
            kind.from_address(place).value = value()
            return 0

        return put

    def loaded_once(state: int, init: int, load: int, _: int) -> int:
        """Load the library and its kernels once, as the runtime does; `init` and `load` are host code."""
        if ctypes.c_uint64.from_address(state).value:
            return 0
        error = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64)(init)(state)
        return int(error or ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32)(load)(state, 0))

    handle = puts(lambda: next(_handles) << 4, ctypes.c_uint64)
    functions: dict[str, tuple[int, Callable[..., int] | None]] = {
        runtime.LOAD: (8, handle),
        runtime.KERNEL: (3, handle),
        runtime.LAUNCH: (3, None),
        runtime.PLAIN_LAUNCH: (10, None),
        "_cudaGetDevice": (1, puts(lambda: 0)),
        "_cudaGetDeviceCount": (1, puts(lambda: 1)),
        "_cudaSetDevice": (1, None),
        "_cudaDeviceGetAttribute": (3, puts(lambda: _LIMIT)),
        "_cuKernelGetAttribute": (4, puts(lambda: 0)),
        "_cudaKernelSetAttributeForDevice": (4, None),
        "_cudaFuncSetAttribute": (3, None),
        "_cudaOccupancyMaxActiveBlocksPerMultiprocessor": (4, puts(lambda: 1)),
        "_cudaLibraryUnload": (1, None),
        "cuda_dialect_init_library_once": (4, loaded_once),
        "cuda_dialect_unload_library_once": (1, None),
    }
    there = {name: how for name, how in functions.items() if name in library.table}
    return [library.stand_in(name, *how) for name, how in there.items()]


def _one(original: Any) -> Any:
    return property(lambda function: 1)


# --- tensors -------------------------------------------------------------------------------------


class _Moved:
    """A torch tensor for readers of DLPack, which reports the GPU as its device."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.detach().__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        place = pointer(ctypes.py_object(capsule), b"dltensor") + ctypes.sizeof(ctypes.c_void_p)  # after address
        ctypes.c_int32.from_address(place).value = _ON_CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _ON_CUDA, 0


def _moved(value: Any) -> Any:
    return _Moved(value) if hasattr(value, "untyped_storage") and value.is_cuda else value


def _on_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the DSL treat tensors as GPU tensors: their memory is global memory, not generic."""
    return lambda made, tensor, *given, **options: original(made, _moved(tensor), *given, **options)


def _given_on_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let TVM FFI treat tensors as GPU tensors: it asks torch for the device, not the tensor."""

    def call(function: Any, *given: Any, **named: Any) -> Any:
        return original(function, *map(_for_ffi, given), **{name: _for_ffi(value) for name, value in named.items()})

    return call


def _for_ffi(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        made = map(_for_ffi, value)
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(moved := _moved(value), _Moved):
        return sys.modules["tvm_ffi"].from_dlpack(moved)
    return value
