"""The CuTe DSL in a dry run. It compiles for the architecture in CUTE_DSL_ARCH. Its host code calls replacements of
CUDA runtime functions, which launch nothing. Each launch is recorded as on a GPU (capture/cute/launches.py)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import Any

from tritonhook._util.text import say
from tritonhook.capture.cute import launches, runtime
from tritonhook.capture.dry_run.gpu import DryRun, notes
from tritonhook.capture.launches.limits import why_not
from tritonhook.capture.launches.record import Descriptor, Launch
from tritonhook.capture.launches.tensor_map import decoded
from tritonhook.capture.patching import patched
from tritonhook.cubin.resources import reserved_in_image

_ON_CUDA = 2  # DLDeviceType
_LIMIT = 227 << 10  # bytes of shared memory; the value returned for every device attribute
_INVALID, _CLUSTER = 1, 912  # cudaErrorInvalidValue, cudaErrorInvalidClusterSize
_handles = count(1)


def nothing_launched(dry: DryRun) -> ExitStack:
    """Make kernels that the DSL compiles from now on launch nothing, until the returned stack is closed. A launch that
    the GPU would refuse fails. The DSL must be imported."""
    with suppress(ImportError):  # TVM FFI is optional
        import_module("cutlass.cutlass_dsl.tvm_ffi_provider")
    with ExitStack() as stack:
        for undo in _stand_ins(runtime.of_process(), dry):
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


# --- replacements of CUDA runtime functions ------------------------------------------------------


def why_refused(dry: DryRun, *given: int) -> tuple[str, int] | None:
    """Return (reason, CUDA error code) if the GPU would refuse a launch, else None. given: arguments of
    cudaLaunchKernelEx or cudaLaunchKernel."""
    handle, shape, shared, attributes, parameters = launches.launch_of(given)
    kernel = next((one for made in launches.recordings if (one := made.kernels.get(handle)) is not None), None)
    maps: list[Descriptor] = []
    static = registers = 0
    if kernel is not None and kernel.cubin is not None:
        resources = kernel.cubin.resources[kernel.name]
        registers, static = resources.registers or 0, (resources.shared or 0) - reserved_in_image(dry.capability)
        passed = enumerate(map(decoded, kernel.apart(kernel.parameters(parameters))))
        maps = [Descriptor(str(number), 0, *one) for number, one in passed if one is not None]
    name, cluster = "a kernel" if kernel is None else kernel.name, dict(attributes).get(launches.CLUSTER, ())
    x, y, z = (size or 1 for size in cluster or (1, 1, 1))
    launch = Launch(name, shape[:3], shape[3:], tuple(maps), cluster=(x, y, z), shared=shared)  # type: ignore[arg-type]
    why = why_not(launch, dry.arch, max(0, static), registers)
    if why is None:
        return None
    is_cluster = why_not(replace(launch, cluster=(1, 1, 1)), dry.arch, max(0, static), registers) is None
    return f"{name}: {why}", _CLUSTER if is_cluster else _INVALID


def _stand_ins(library: runtime.Runtime, dry: DryRun) -> list[Callable[[], None]]:
    def launched(*given: int) -> int:
        refused = why_refused(dry, *given)
        if refused is None:
            return 0
        why, error = refused
        notes.add(why)
        if dry.launch_anyway:
            return 0
        say(f"tritonhook: {why}")
        return error

    def puts(value: Callable[[], int], kind: Any = ctypes.c_int32) -> Callable[..., int]:
        def put(place: int, *_: int) -> int:
            kind.from_address(place).value = value()
            return 0

        return put

    def loaded_once(state: int, init: int, load: int, _: int) -> int:
        """Load the library and its kernels, the first time only. init, load: addresses of functions in the host
        code."""
        if ctypes.c_uint64.from_address(state).value:
            return 0
        error = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64)(init)(state)
        return int(error or ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_int32)(load)(state, 0))

    handle = puts(lambda: next(_handles) << 4, ctypes.c_uint64)
    functions: dict[str, tuple[int, Callable[..., int] | None]] = {
        runtime.LOAD: (8, handle),
        runtime.KERNEL: (3, handle),
        runtime.LAUNCH: (3, launched),
        runtime.PLAIN_LAUNCH: (10, launched),
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
    """A wrapper of a torch tensor that exports it by DLPack with the GPU as its device."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.detach().__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        # DLTensor begins with the data pointer; the device type follows.
        place = pointer(ctypes.py_object(capsule), b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
        ctypes.c_int32.from_address(place).value = _ON_CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _ON_CUDA, 0


def _moved(value: Any) -> Any:
    return _Moved(value) if hasattr(value, "untyped_storage") and value.is_cuda else value


def _on_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pass tensors to the DSL as GPU tensors, so that it compiles accesses to global memory, not to generic memory."""
    return lambda made, tensor, *given, **options: original(made, _moved(tensor), *given, **options)


def _given_on_the_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pass tensors to TVM FFI as GPU tensors. TVM FFI reads the device inside torch, not from the tensor's attribute
    `device`."""

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
