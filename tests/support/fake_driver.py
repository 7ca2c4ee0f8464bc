"""A Triton driver with no GPU behind it: a launch runs all of Triton's own code, and then only takes a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from tritonhook.cubin.image import Cubin


class FakeDriver:
    """Replaces Triton's CudaDriver, 3.6 to 3.9.

    loaded, launched: names of the kernels, in order. Loading asserts, as a GPU would, that the name is
    an entry of the cubin.
    """

    def __init__(self, arch: int = 90) -> None:
        self.target = GPUTarget("cuda", arch, 32)
        self.loaded: list[str] = []
        self.launched: list[str] = []
        self.utils = _Utils(self)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        assert device == 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.target.arch, 10)

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        launched = self.launched

        def launch(x: int, y: int, z: int, stream: int, function: str, packed: Any, lazy: Any, *rest: Any) -> None:
            enter, leave, *_ = rest
            if enter is not None:
                enter(lazy)
            launched.append(function)
            if leave is not None:
                leave(lazy)

        return launch


class _Utils:
    def __init__(self, owner: FakeDriver) -> None:
        self._owner = owner

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": 232448,
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 5120,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, str, int, int, int]:
        """(module, function, registers, spills, most threads); the function is its name."""
        entries = Cubin.from_bytes(binary).kernels
        assert name in entries, f"CUDA would not find {name!r}: the cubin's entries are {entries}"
        self._owner.loaded.append(name)
        return 1, name, 32, 0, 1024

    def unload_module(self, module: int) -> None:
        pass


@contextmanager
def active(arch: int = 90) -> Iterator[FakeDriver]:
    """Make a fake driver Triton's active one, and give back what was there.

    Where nothing was there it stays: kernels unload through the active driver, whenever they are collected.
    """
    before = driver._active
    fake = FakeDriver(arch)
    driver.set_active(fake)
    try:
        yield fake
    finally:
        driver._active = before or fake
