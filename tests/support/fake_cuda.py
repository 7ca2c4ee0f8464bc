"""A CUDA driver with no GPU behind it. A cubin is Python source that defines `kernel(gpu, *arguments)`: it reads and
writes the fake GPU's memory, may raise Illegal, sleep, or end the process, as a kernel may lose the GPU. For a cubin of
ptxas that source is in $FAKE_KERNEL, and `image` is the cubin.

    python fake_cuda.py    serves as verify's child process does, on such a driver
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

_ILLEGAL_ADDRESS, _INVALID_IMAGE, _OUT_OF_RESOURCES = 700, 200, 701


class Illegal(Exception):
    """An access to memory that is not there."""


class Refused(Exception):
    """A launch that the driver does not start."""


class Gpu:
    """Memory: allocations by address."""

    def __init__(self) -> None:
        self.allocated: dict[int, bytearray] = {}
        self._next = 0x1000_0000

    def allocate(self, size: int) -> int:
        address, self._next = self._next, self._next + (size + 0xFFFFF) // 0x100000 * 0x100000 + 0x100000
        self.allocated[address] = bytearray(b"\xee" * size)  # not zeros: what is not written must not look right
        return address

    def _place(self, address: int, size: int) -> tuple[bytearray, int]:
        for begin, data in self.allocated.items():
            if begin <= address and address + size <= begin + len(data):
                return data, address - begin
        raise Illegal(f"{size} bytes at {address:#x}")

    def read(self, address: int, size: int) -> bytes:
        data, offset = self._place(address, size)
        return bytes(data[offset : offset + size])

    def write(self, address: int, content: bytes) -> None:
        data, offset = self._place(address, len(content))
        data[offset : offset + len(content)] = content


class FakeCuda:
    """Stands for libcuda. launched: the arguments of each launch."""

    def __init__(self) -> None:
        self.gpu = Gpu()
        self.launched: list[tuple[int, ...]] = []
        self._kernels: dict[int, Callable[..., None]] = {}
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        if name in ("cuFuncGetParamInfo",) or not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGetName(self, text: Any, size: int, device: int) -> int:
        text.value = b"Fake GPU"
        return 0

    def cuGetErrorName(self, code: int, text: Any) -> int:
        names = {_ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS", _INVALID_IMAGE: b"CUDA_ERROR_INVALID_IMAGE"}
        text._obj.value = names.get(code, b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        return 0

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:
        space: dict[str, Any] = {"Illegal": Illegal, "Refused": Refused, "os": os, "image": image}
        try:
            exec(os.environ["FAKE_KERNEL"] if image[:4] == b"\x7fELF" else image.decode(), space)
            kernel = space["kernel"]
        except (SyntaxError, KeyError):
            return _INVALID_IMAGE
        number = len(self._kernels) + 1
        self._kernels[number] = kernel
        module._obj.value = number
        return 0

    def cuModuleGetFunction(self, handle: Any, module: Any, name: bytes) -> int:
        handle._obj.value = module.value
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        count = self._kernels[function.value].__code__.co_argcount - 1
        arguments = tuple(ctypes.c_uint64.from_address(pointers[i]).value for i in range(count))
        self.launched.append(arguments)
        try:
            self._kernels[function.value](self.gpu, *arguments)
        except Illegal:
            self._lost = True
        except Refused:
            return _OUT_OF_RESOURCES
        return 0

    def cuCtxSynchronize(self) -> int:
        return _ILLEGAL_ADDRESS if self._lost else 0

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        address._obj.value = self.gpu.allocate(size.value)
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        if self._lost:
            return _ILLEGAL_ADDRESS
        del self.gpu.allocated[address.value]
        return 0

    def cuMemcpyHtoD_v2(self, to: Any, data: bytes, size: Any) -> int:
        self.gpu.write(to.value, data[: size.value])
        return 0

    def cuMemcpyDtoH_v2(self, view: Any, address: Any, size: Any) -> int:
        view[: size.value] = self.gpu.read(address.value, size.value)
        return 0

    def cuMemcpyDtoD_v2(self, to: Any, address: Any, size: Any) -> int:
        self.gpu.write(to.value, self.gpu.read(address.value, size.value))
        return 0

    def cuMemsetD8_v2(self, address: Any, byte: Any, size: Any) -> int:
        self.gpu.write(address.value, bytes([byte.value]) * size.value)
        return 0


if __name__ == "__main__":
    from tritonhook.device.child import Begin, serve
    from tritonhook.device.cuda_driver import Driver
    from tritonhook.verify.executor import RunBuilds
    from tritonhook.verify.worker import Worker

    serve(sys.stdin, sys.stdout, Worker(Driver(FakeCuda())).carry_out, Begin, RunBuilds)
