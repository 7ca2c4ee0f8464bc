"""A GPU that is none: a libcuda and a pynvml of Python functions over one model of device memory.

The model is the mechanism of docs/explanation/gpu-memory.md: one local-memory pool per context, sized for the deepest
stack launched so far, times all threads the GPU can hold.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tritonhook.cubin.image import Cubin
from tritonhook.device.nvml import Nvml
from tritonhook.memory.watcher import Watch
from tritonhook.memwatch import watch

MIB = 1 << 20
UUID = "11111111-2222-3333-4444-555555555555"
CONTEXT = 500 * MIB


class FakeGpu:
    """sms, threads: of the pool. supported: whether NVML gives memory figures. lost: whether the GPU is gone."""

    def __init__(self, sms: int = 132, threads: int = 2048, arch: int = 90, total: int = 80 << 30) -> None:
        self.sms, self.threads, self.arch, self.total = sms, threads, arch, total
        self.own = 0  # of this process, without the pool
        self.others = 3 * MIB
        self.limit = 1024
        self.limits = {1: MIB, 2: 8 * MIB}
        self.context = False
        self.initialised = False
        self.capturing = False
        self.supported, self.lost = True, False
        self.buffers: set[str] = set()
        self.modules: dict[int, Cubin] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.allocations: dict[int, int] = {}
        self.calls: list[str] = []

    @property
    def pool(self) -> int:
        return (self.limit - 1024) * self.sms * self.threads

    @property
    def used(self) -> int:
        return self.own + self.others + (self.pool if self.context else 0)

    def grow_stack(self, need: int) -> int:
        """Launch something that needs this much stack; returns a CUresult."""
        if need > self.limit:
            grown = (need - self.limit) * self.sms * self.threads
            if self.used + grown > self.total:
                return 2
            self.limit = need
        return 0

    def use(self, buffer: str, size: int) -> None:
        if buffer not in self.buffers:
            self.buffers.add(buffer)
            self.own += size


def _set(reference: Any, value: int) -> int:
    reference._obj.value = value
    return 0


class FakeCuda:
    """The functions of libcuda that tritonhook calls. Arguments are ctypes values, results CUresults."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            object.__getattribute__(self, "gpu").calls.append(name)
        return object.__getattribute__(self, name)

    def cuGetErrorName(self, code, text):
        names = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 100: b"CUDA_ERROR_NO_DEVICE", 3: b"CUDA_ERROR_NOT_INITIALIZED"}
        text._obj.value = names.get(code)
        return 0

    def cuInit(self, flags):
        self.gpu.initialised = True
        return 0

    def cuDeviceGetCount(self, count):
        return _set(count, 1)

    def cuDeviceGet(self, device, ordinal):
        return _set(device, ordinal)

    def cuDeviceGetUuid_v2(self, raw, device):
        assert device == 0
        raw._obj[:] = list(bytes.fromhex(UUID.replace("-", "")))
        return 0

    def cuDeviceGetName(self, text, size, device):
        assert device == 0
        text.value = b"Fake H100"
        return 0

    def cuDeviceGetAttribute(self, value, number, device):
        assert device == 0
        major, minor = divmod(self.gpu.arch, 10)
        return _set(value, {16: self.gpu.sms, 39: self.gpu.threads, 75: major, 76: minor}[number])

    def cuDriverGetVersion(self, value):
        return _set(value, 13000)

    def cuCtxGetCurrent(self, handle):
        if not self.gpu.initialised:
            return 3
        return _set(handle, 1 if self.gpu.context else 0)

    def cuCtxGetDevice(self, handle):
        return _set(handle, 0)

    def cuCtxCreate_v2(self, handle, flags, device):
        self.gpu.context, self.gpu.initialised = True, True
        self.gpu.own += CONTEXT
        return _set(handle, 1)

    def cuCtxSynchronize(self):
        return 0

    def cuCtxGetLimit(self, value, which):
        return _set(value, self.gpu.limit)

    def cuMemGetInfo_v2(self, free, total):
        _set(total, self.gpu.total)
        return _set(free, self.gpu.total - self.gpu.used)

    def cuStreamIsCapturing(self, stream, status):
        return _set(status, int(self.gpu.capturing))

    def cuModuleLoadData(self, handle, image):
        cubin = Cubin.from_bytes(image)
        number = len(self.gpu.modules) + 1
        self.gpu.modules[number] = cubin
        self.gpu.own += sum(s.size for s in cubin.sections if s.name == ".nv.global")
        return _set(handle, number)

    def cuModuleUnload(self, module):
        return 0

    def cuModuleGetFunction(self, handle, module, name):
        number = len(self.gpu.functions) + 1
        self.gpu.functions[number] = (module.value, name.decode())
        return _set(handle, number)

    def cuLaunchKernel(self, function, *rest):
        module, name = self.gpu.functions[function.value]
        resources = self.gpu.modules[module].resources[name]
        if "vprintf" in resources.externs:
            self.gpu.use("fifo", self.gpu.limits[1])
        if "malloc" in resources.externs:
            self.gpu.use("heap", self.gpu.limits[2])
        return self.gpu.grow_stack(max(resources.min_stack or 0, resources.stack or 0))

    def cuMemAlloc_v2(self, address, size):
        if self.gpu.used + size.value > self.gpu.total:
            return 2
        number = (len(self.gpu.allocations) + 1) << 32
        self.gpu.allocations[number] = size.value
        self.gpu.own += size.value
        return _set(address, number)

    def cuMemFree_v2(self, address):
        self.gpu.own -= self.gpu.allocations.pop(address.value)
        return 0


class NVMLError(Exception):
    """As pynvml's: subclasses are named after the constants."""


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class FakeNvml:
    """The functions of pynvml that tritonhook calls. uuids: of the machine's GPUs."""

    nvmlMemory_v2 = 0x02000028
    NVMLError = NVMLError

    def __init__(self, gpu: FakeGpu, uuids: tuple[str, ...] = (f"GPU-{UUID}",), init_error: Any = None) -> None:
        self.gpu, self.uuids, self.init_error = gpu, uuids, init_error
        self.asked: list[str] = []
        self.pids: dict[int, int | None] | None = None
        self.reserved_in_used = self.reserved_in_total = 0

    def nvmlInit(self):
        if self.init_error is not None:
            raise self.init_error

    def nvmlShutdown(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "595.91.07"

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids:
            raise NVMLError_NotFound("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetName(self, handle):
        return "Fake H100"

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        self.asked.append("memory")
        if self.gpu.lost:
            raise NVMLError_GpuIsLost("GPU is lost")
        if not self.gpu.supported:
            raise NVMLError_NotSupported("Not Supported")
        other = 0 if handle == self.uuids[0] else self.gpu.own
        used = self.gpu.used - other + (self.reserved_in_used if version == self.nvmlMemory_v2 else 0)
        return SimpleNamespace(used=used, total=self.gpu.total + self.reserved_in_total)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        import os

        self.asked.append("processes")
        pids = {os.getpid(): self.gpu.own, 7: self.gpu.others} if self.pids is None else self.pids
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in pids.items()]


def fake_driver(gpu: FakeGpu) -> Any:
    from tritonhook.device.cuda_driver import Driver

    return Driver(FakeCuda(gpu))


# --- a watched program -------------------------------------------------------------------------


class Chain:
    """As Triton's HookChain."""

    def __init__(self) -> None:
        self.calls: list[Callable[..., None]] = []

    def add(self, call):
        self.calls.append(call)

    def remove(self, call):
        self.calls.remove(call)

    def __call__(self, *arguments):
        for call in self.calls:
            call(*arguments)


NAMES = ("kernel_load_start_hook", "kernel_load_end_hook", "launch_enter_hook", "launch_exit_hook")


class Program:
    """A program on the model: makes a context, loads and launches kernels through Triton's hooks."""

    def __init__(self, gpu: FakeGpu | None = None) -> None:
        self.gpu = gpu or FakeGpu()
        self.driver = fake_driver(self.gpu)
        self.hooks = SimpleNamespace(**{name: Chain() for name in NAMES})

    def watch(self, nvml: Any = "ours", **options: Any) -> Watch:
        library = FakeNvml(self.gpu) if nvml == "ours" else nvml
        return watch(
            options.pop("period_ms", 1),
            driver=options.pop("driver", self.driver),
            nvml=Nvml(library) if library else None,
            hooks=self.hooks,
        )

    def start(self) -> None:
        self.driver.create_context(0)

    def load(self, kernel: str, size: int = 80 * MIB) -> None:
        self.hooks.kernel_load_start_hook(None, None, kernel, {}, "hash")
        self.gpu.own += size
        self.hooks.kernel_load_end_hook(1, 2, kernel, {}, "hash")

    def launch(self, kernel: str, stack: int = 0, function: int | None = None) -> None:
        metadata = SimpleNamespace(data={"name": kernel, "function": function or hash(kernel), "stream": 0})
        self.hooks.launch_enter_hook(metadata)
        self.gpu.grow_stack(stack)
        self.hooks.launch_exit_hook(metadata)


__all__ = [
    "NAMES",
    "UUID",
    "FakeCuda",
    "FakeGpu",
    "FakeNvml",
    "NVMLError_LibraryNotFound",
    "Program",
    "ctypes",
    "fake_driver",
]
