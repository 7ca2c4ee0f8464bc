"""A replacement of Triton's driver (3.6 to 3.9) for dry runs. A launch runs all of Triton's own code, but starts no
kernel.

It replaces `triton.runtime.driver.active`, the benchmark functions of `triton.testing`, and Triton's cuBLAS binding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.gpu import REAL, DryRun, notes
from tritonhook.capture.launches.arguments import tiling_of
from tritonhook.capture.launches.limits import why_no_grid, why_no_tensor_map
from tritonhook.capture.launches.live_tensors import memory_of
from tritonhook.capture.patching import always, patched
from tritonhook.cubin.image import Cubin

if TYPE_CHECKING:
    from tritonhook.cubin.resources import Resources

_REGISTERS, _MOST_THREADS, _WARP = 65536, 1024, 32  # registers of a multiprocessor, threads of a block, of a warp

_INVALID, _CLUSTER = "invalid argument", "a kernel launch error has occurred due to cluster misconfiguration"


class DryDriver:
    """Replacement of Triton's CudaDriver and its CudaUtils."""

    def __init__(self, dry: DryRun) -> None:
        from triton.backends.compiler import GPUTarget

        self._dry = dry
        self.target = GPUTarget("cuda", dry.capability, _WARP)
        self.utils = self

    is_active = staticmethod(always(True))
    get_current_device = get_current_stream = staticmethod(always(0))
    set_current_device = clear_cache = unload_module = set_printf_fifo_size = staticmethod(always(None))
    cuOccupancyMaxActiveClusters = staticmethod(always(1))
    is_stream_capturing = staticmethod(always(False))

    def get_current_target(self) -> Any:
        return self.target

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self._dry.capability, 10)

    def get_device_properties(self, device: int) -> dict[str, int]:
        gpu = self._dry.gpu
        return {
            "max_shared_mem": gpu.shared_bytes,
            "max_num_regs": _REGISTERS,
            "multiprocessor_count": gpu.multiprocessors,
            "warpSize": _WARP,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 5120,
        }

    def map_python_to_cpp_type(self, name: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(name))

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return not_measured

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1, dtype=torch.int)

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, str, int, int, int]:
        """Return (module, function, registers, spills, maximum threads) from the cubin; on a GPU these come from CUDA.
        The function is represented by its name. Raises RuntimeError if the cubin has no kernel of this name."""
        cubin = Cubin.from_bytes(binary)
        if name not in cubin.kernels:
            raise RuntimeError(f"CUDA would not find {name!r}: the cubin's entries are {cubin.kernels}")
        resources = cubin.resources[name]
        return 1, name, resources.registers or 0, (resources.stack or 0) // 4, _most_threads(resources)

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """Make the launcher of a kernel. Like Triton's own launcher, it calls the launch hooks of other tools."""

        def launch(x: int, y: int, z: int, stream: int, function: str, packed: Any, lazy: Any, *rest: Any) -> None:
            enter, leave, *arguments = rest
            self.check(function, (x, y, z), int(getattr(metadata, "num_ctas", 1)), arguments)
            descriptors = [one for one in arguments if hasattr(one, "block_shape")]
            for one, about in zip(descriptors, getattr(metadata, "tensordesc_meta", None) or (), strict=False):
                if not about.get("is_im2col"):
                    why = why_no_tensor_map(one.base.data_ptr(), tiling_of(one, about))
                    self.refuse(function, why, "Failed to create tensor map descriptor: invalid argument")
            if enter is not None:
                enter(lazy)
            self.launch(function)
            if leave is not None:
                leave(lazy)

        return launch

    def check(self, function: str, grid: Sequence[int], ctas: int, arguments: Sequence[Any]) -> None:
        """Refuse a launch that a GPU would refuse (`refuse`). Raises ValueError if an argument is a tensor without
        memory: on a GPU the kernel would access address 0."""
        is_cluster = why_no_grid((1, 1, 1), ctas) is not None
        self.refuse(function, why_no_grid((grid[0] * ctas, *grid[1:]), ctas), _CLUSTER if is_cluster else _INVALID)
        torch: Any = sys.modules.get("torch") if self._dry.memory == REAL else None
        for number, one in enumerate(arguments if torch is not None else ()):
            if isinstance(one, torch.Tensor) and one.numel() and memory_of(one) is None:
                where = f"Pointer argument (at {number}) cannot be accessed from Triton"
                raise ValueError(f"{where}: a {type(one).__name__} of shape {tuple(one.shape)} without memory")

    def refuse(self, function: str, why: str | None, error: str) -> None:
        """Raise CUDA's error in Triton's wording; with launch_anyway, add a note instead. why: reason why a GPU would
        refuse the launch; None if it would not. error: CUDA's message."""
        if why is not None:
            if not self._dry.launch_anyway:
                raise RuntimeError(f"Triton Error [CUDA]: {error} ({function}: {why})")
            notes.add(f"{function}: {why}")

    def launch(self, function: str) -> None:
        """Launch nothing. Tests override this method to record launches."""


def _most_threads(resources: Resources) -> int:
    """Return the maximum threads per block that the registers of a multiprocessor allow. Registers are allocated to a
    warp in units of 256."""
    of_warp = -(-(resources.registers or 1) * _WARP // 256) * 256
    return min(_MOST_THREADS, _REGISTERS // of_warp * _WARP)


def not_measured(call: Callable[[], Any], *_: Any, quantiles: Sequence[float] | None = None, **options: Any) -> Any:
    """Call once, in place of `triton.testing.do_bench`. Returns infinity for each time, because the times are not
    known. Returning NaN would break programs that compute a number of repetitions from a time."""
    call()
    if quantiles is not None:
        return [math.inf] * len(quantiles)
    return [math.inf] if options.get("return_mode") == "all" else math.inf


@contextmanager
def active(driver: Any) -> Iterator[None]:
    """Make a driver Triton's active driver during a `with` block, then restore the earlier driver.

    Without an earlier driver, the new one stays active, because kernels are unloaded through the active driver when
    they are garbage-collected.
    """
    from triton.runtime import driver as config

    before = config._active, config._default
    config._active = config._default = driver
    try:
        yield
    finally:
        config._active, config._default = before[0] or driver, before[1]


@contextmanager
def without_measuring() -> Iterator[None]:
    """Replace the benchmark functions of `triton.testing` by `not_measured`."""
    import triton.testing

    names = ("do_bench", "do_bench_cudagraph")
    with patched(*((triton.testing, name, lambda _: partial(not_measured)) for name in names)):
        yield


class _Cublas:
    """Replacement of Triton's cuBLAS binding. torch computes matrix products on the CPU; other functions do nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: notes.add(f"cuBLAS needs a GPU: the program's calls of {name} did nothing")

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """Store A @ B.T in c, because Triton passes B transposed."""
        c.copy_(a.float() @ b.float().T)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())


@contextmanager
def without_cublas() -> Iterator[None]:
    """Replace Triton's cuBLAS binding by `_Cublas`."""
    from triton._C.libtriton import nvidia

    binding = getattr(nvidia, "cublas", None)
    taken = (binding, "CublasLt", lambda _: lambda *_: _Cublas())
    with patched(taken) if hasattr(binding, "CublasLt") else nullcontext():
        yield


@contextmanager
def room_for_all(launch_anyway: bool) -> Iterator[None]:
    """Add a note for each kernel that needs more of a resource, e.g. shared memory, than the GPU has. The program gets
    Triton's error. With launch_anyway it continues as if the kernel had been launched, except in an autotuner's
    trial."""
    from triton.compiler import CompiledKernel
    from triton.runtime import driver as config
    from triton.runtime.errors import OutOfResources

    def wrap(original: Callable[[Any], None]) -> Callable[[Any], None]:
        def init_handles(kernel: Any) -> None:
            try:
                original(kernel)
            except OutOfResources as error:
                kernel._run = None  # otherwise Triton raises this error at each later launch
                if tuners.trying:
                    raise
                notes.add(f"{kernel.name}: needs {error.required:,} of {error.name}, the GPU has {error.limit:,}")
                if not launch_anyway:
                    raise
                kernel._run = config.active.launcher_cls(kernel.src, kernel.metadata)
                loaded = config.active.utils.load_binary(kernel.name, kernel.kernel, kernel.metadata.shared, 0)
                kernel.module, kernel.function, kernel.n_regs, kernel.n_spills, kernel.n_max_threads = loaded

        return init_handles

    with patched((CompiledKernel, "_init_handles", wrap)):
        yield
