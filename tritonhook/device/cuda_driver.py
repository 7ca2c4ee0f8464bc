"""The CUDA driver API, through ctypes: devices, limits, free memory, modules, launches.

Only this file calls libcuda. Only `init` initialises CUDA and only `create_context` creates a context: a process must
do neither before it forks. Other methods use the current context, which Triton and torch also use.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tritonhook.errors import DeviceError

if TYPE_CHECKING:
    from tritonhook.capture.launches.record import Tiling

_STACK_SIZE = 0  # enum CUlimit
_SMS, _THREADS_PER_SM, _MAJOR, _MINOR = 16, 39, 75, 76  # enum CUdevice_attribute
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTERS, _FUNCTION_SHARED_MODE = 8, 14, 17  # enum CUfunction_attribute
_COOPERATIVE, _CLUSTER, _CLUSTER_SCHEDULING, _STREAM_SERIALIZATION, _SHARED_MODE = 2, 4, 5, 6, 18  # CUlaunchAttributeID
_OVERSIZED = 3  # CU_SHARED_MEMORY_MODE_ALLOW_OVERSIZED_SHARED_MEMORY
_LARGEST_SHARED = 228 << 10  # up to so many bytes of dynamic shared memory need no mode _OVERSIZED
_SMALL_TENSOR = 1 << 17  # bytes; smaller tensors need the correction in `tensor_map`
_MEMORY_TYPE = 2  # enum CUpointer_attribute
_SPREAD = 1  # CU_CLUSTER_SCHEDULING_POLICY_SPREAD, which Triton uses, too
_NO_DEVICE, _STREAM_CAPTURE = 100, range(900, 910)  # enum CUresult


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: the id, and the value as a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def launch_config(
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    cluster: tuple[int, int, int] = (1, 1, 1),
    cooperative: bool = False,
    pdl: bool = False,
) -> LaunchConfig:
    """Make the configuration of a launch. The caller sets its `stream` before each launch.

    shared: bytes of dynamic shared memory. pdl: programmatic dependent launch.
    """
    wanted: list[tuple[int, tuple[int, ...]]] = []
    if cluster != (1, 1, 1):
        wanted += [(_CLUSTER, cluster), (_CLUSTER_SCHEDULING, (_SPREAD,))]
    if cooperative:
        wanted.append((_COOPERATIVE, (1,)))
    if pdl:
        wanted.append((_STREAM_SERIALIZATION, (1,)))
    if shared > _LARGEST_SHARED:
        wanted.append((_SHARED_MODE, (_OVERSIZED,)))
    attributes = (_Attribute * max(len(wanted), 1))()
    for attribute, (number, values) in zip(attributes, wanted, strict=False):
        attribute.id = number
        attribute.value[: len(values)] = values
    return LaunchConfig(*grid, *block, shared, None, attributes, len(wanted))


def argument_pointers(arguments: Sequence[Any]) -> Any:
    """Make the kernelParams array of a launch from ctypes values. The values must live as long as the array."""
    return (ctypes.c_void_p * max(len(arguments), 1))(*(ctypes.addressof(value) for value in arguments))


class CudaError(DeviceError):
    """A driver call failed. code: the CUresult, e.g. 2 for CUDA_ERROR_OUT_OF_MEMORY."""


def load_library() -> Any:
    """Load libcuda. Raises DeviceError if there is no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        missing = "No such file" in str(error)
        reason = "libcuda.so.1 is not found" if missing else str(error)
        raise DeviceError(f"no NVIDIA driver here: {reason}", "LIBRARY_NOT_FOUND") from None


def gpu_name() -> str:
    """Return the name of the first GPU that this process may use; "" if there is none. Initialises CUDA."""
    try:
        driver = Driver()
        driver.init()
        return driver.name(driver.device(0))
    except DeviceError:
        return ""


class Driver:
    """The CUDA driver of this process. library: libcuda, or its replacement in tests. Methods raise CudaError."""

    def __init__(self, library: Any = None) -> None:
        self._cuda = load_library() if library is None else library

    def _result(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._cuda, name)(*arguments))

    def _call(self, name: str, *arguments: Any) -> None:
        if code := self._result(name, *arguments):
            raise CudaError(f"{name}: {self._error(code)}", code)

    def _read(self, kind: Any, name: str, *arguments: Any) -> int:
        """Call the driver and return the value that it writes to its first argument. kind: ctypes type of the value."""
        value = kind()
        self._call(name, ctypes.byref(value), *arguments)
        return int(value.value or 0)

    def _error(self, code: int) -> str:
        text = ctypes.c_char_p()
        try:
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
        except AttributeError:
            text.value = None
        return text.value.decode() if text.value else f"CUresult {code}"

    # --- devices

    def init(self) -> None:
        """Initialise CUDA. Needed once before any other call, unless another library has initialised it."""
        code = self._result("cuInit", 0)
        if code:
            what = "no GPU that this process may use" if code == _NO_DEVICE else "the driver cannot be started"
            raise CudaError(f"{what}: cuInit returned {self._error(code)}", code)

    def device_count(self) -> int:
        """Count the devices that CUDA_VISIBLE_DEVICES leaves visible."""
        return self._read(ctypes.c_int, "cuDeviceGetCount")

    def device(self, ordinal: int) -> int:
        return self._read(ctypes.c_int, "cuDeviceGet", ordinal)

    def uuid(self, device: int) -> str:
        """Read a device's UUID, without NVML's prefix "GPU-" or "MIG-". A MIG device has its own UUID."""
        raw = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(raw), device)
        return str(uuid.UUID(bytes=bytes(raw)))

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), device)
        return text.value.decode("utf-8", "replace")

    def attribute(self, device: int, number: int) -> int:
        return self._read(ctypes.c_int, "cuDeviceGetAttribute", number, device)

    def multiprocessors(self, device: int) -> int:
        return self.attribute(device, _SMS)

    def threads_per_multiprocessor(self, device: int) -> int:
        return self.attribute(device, _THREADS_PER_SM)

    def arch(self, device: int) -> int:
        return 10 * self.attribute(device, _MAJOR) + self.attribute(device, _MINOR)

    def version(self) -> str:
        """Read the CUDA version of the driver, e.g. "13.0"."""
        number = self._read(ctypes.c_int, "cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    # --- the current context

    def has_context(self) -> bool:
        """Return True if this thread has a current context. Never creates one."""
        handle = ctypes.c_void_p()
        code = self._result("cuCtxGetCurrent", ctypes.byref(handle))
        return code == 0 and bool(handle.value)

    def current_device(self) -> int:
        return self._read(ctypes.c_int, "cuCtxGetDevice")

    def create_context(self, device: int) -> int:
        return self._read(ctypes.c_void_p, "cuCtxCreate_v2", 0, device)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def stack_limit(self) -> int:
        """Read the current context's stack limit in bytes per thread. The driver raises it for a kernel that needs more
        stack."""
        return self._read(ctypes.c_size_t, "cuCtxGetLimit", _STACK_SIZE)

    def memory(self) -> tuple[int, int]:
        """Read (free, total) bytes of the current context's device, for all processes together."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def is_capturing(self, stream: int) -> bool:
        """Return True if a CUDA graph is being captured on the stream, or if the driver refuses the call because of a
        capture."""
        status = ctypes.c_int()
        code = self._result("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0 if code == 0 else code in _STREAM_CAPTURE

    # --- modules, launches, memory

    def load(self, image: bytes) -> int:
        return self._read(ctypes.c_void_p, "cuModuleLoadData", image)

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def function(self, module: int, name: str) -> int:
        return self._read(ctypes.c_void_p, "cuModuleGetFunction", ctypes.c_void_p(module), name.encode())

    def launch(
        self, function: int, arguments: Sequence[Any] = (), grid: int = 1, block: int = 32, stream: int = 0
    ) -> None:
        """Launch a kernel on one-dimensional grid and block. arguments: ctypes values. stream: 0 is the default
        stream."""
        shape = (grid, 1, 1, block, 1, 1)
        where = ctypes.c_void_p(stream or None)
        self._call("cuLaunchKernel", ctypes.c_void_p(function), *shape, 0, where, argument_pointers(arguments), None)

    def set_dynamic_shared(self, function: int, size: int) -> None:
        """Raise a kernel's limit of dynamic shared memory to `size` bytes. A launch with more than 48 KiB needs
        this."""
        if size > _LARGEST_SHARED:
            self._call("cuFuncSetAttribute", ctypes.c_void_p(function), _FUNCTION_SHARED_MODE, _OVERSIZED)
        self._call("cuFuncSetAttribute", ctypes.c_void_p(function), _MAX_DYNAMIC_SHARED, size)

    def allow_large_clusters(self, function: int) -> None:
        """Allow a kernel to run in clusters of more than 8 blocks, if the GPU supports them."""
        self._call("cuFuncSetAttribute", ctypes.c_void_p(function), _NON_PORTABLE_CLUSTERS, 1)

    def parameter_sizes(self, function: int) -> tuple[int, ...] | None:
        """Read the size in bytes of each parameter of a kernel; None if the driver is older than CUDA 12.4."""
        if not hasattr(self._cuda, "cuFuncGetParamInfo"):
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        handle = ctypes.c_void_p(function)
        while not self._result("cuFuncGetParamInfo", handle, len(sizes), ctypes.byref(offset), ctypes.byref(size)):
            sizes.append(size.value)
        return tuple(sizes)

    def tensor_map(self, tiling: Tiling, address: int) -> Any:
        """Make the TMA descriptor of the tensor at an address, as a launch argument: 128 bytes, aligned to 64."""
        rank, room = len(tiling.shape), (ctypes.c_ubyte * 192)()
        made = (ctypes.c_ubyte * 128).from_buffer(room, -ctypes.addressof(room) % 64)
        sizes = [(ctypes.c_uint64 * rank)(*sizes) for sizes in (tiling.shape, tiling.strides)]
        boxes = [(ctypes.c_uint * rank)(*counts) for counts in (tiling.box, tiling.steps)]
        rest = tiling.interleave, tiling.swizzle, tiling.promotion, tiling.fill
        where = ctypes.c_void_p(address)
        self._call("cuTensorMapEncodeTiled", made, tiling.element, rank, where, *sizes, *boxes, *rest)
        if tiling.reach < _SMALL_TENSOR and tuple(map(int, self.version().split("."))) <= (13, 1):
            made[10] &= ~(1 << 5)  # these drivers set a bit wrongly for small tensors; CUTLASS and Triton clear it, too
        return made

    def launch_config(self, function: int, config: LaunchConfig, arguments: Any) -> None:
        """Launch a kernel with cuLaunchKernelEx. arguments: result of `argument_pointers`."""
        self._call("cuLaunchKernelEx", ctypes.byref(config), ctypes.c_void_p(function), arguments, None)

    def allocate(self, size: int) -> int:
        return self._read(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(size))

    def is_pointer(self, address: int) -> bool:
        """Return True if an address is memory that the CUDA driver manages."""
        kind = ctypes.c_uint()
        return not self._result("cuPointerGetAttribute", ctypes.byref(kind), _MEMORY_TYPE, ctypes.c_uint64(address))

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes from the host to the GPU."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the GPU to the host."""
        data = bytearray(size)
        if size:
            view = (ctypes.c_ubyte * size).from_buffer(data)
            self._call("cuMemcpyDtoH_v2", view, ctypes.c_uint64(address), ctypes.c_size_t(size))
            del view
        return bytes(data)

    def copy(self, to: int, address: int, size: int) -> None:
        """Copy bytes between two addresses of the GPU."""
        self._call("cuMemcpyDtoD_v2", ctypes.c_uint64(to), ctypes.c_uint64(address), ctypes.c_size_t(size))

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set each of `size` bytes of GPU memory to `byte`."""
        self._call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
