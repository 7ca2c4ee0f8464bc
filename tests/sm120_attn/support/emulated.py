"""Kernels of the CuTe DSL in the emulator: their arguments in memory, their PTX, and their machine code."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tritonhook.cubin.image import Cubin
from tritonhook.emulate.machine import Geometry, Machine
from tritonhook.emulate.memory import Memory
from tritonhook.emulate.ptx.decode import decode as decode_ptx
from tritonhook.emulate.ptx.kernel import read_kernel
from tritonhook.emulate.sass.decode import decode as decode_sass
from tritonhook.emulate.sass.kernel import read_sass_kernel
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import reading_toolchain

SHARED = 100 << 10


class Arguments:
    """The parameters of one launch, in the memory of one run."""

    def __init__(self, memory: Memory, offsets: list[int]):
        self.memory, self.offsets, self.number = memory, offsets, 0
        self.parameters = bytearray(offsets[-1])

    def tensor(self, array: Any, fixed: int = 1) -> Any:
        """A contiguous tensor. fixed: whether the kernel is compiled for the last size."""
        place = self.memory.allocate(np.ascontiguousarray(array).tobytes())
        self.put_tensor(place.address, array.shape, fixed)
        return place

    def put_tensor(self, address: int, shape: tuple[int, ...], fixed: int = 1) -> None:
        sizes = shape[: len(shape) - fixed]
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape) - 1)]
        first = struct.pack(f"<Q{len(sizes)}i", address, *sizes)
        self.put(first.ljust(-(-len(first) // 8) * 8, b"\0") + struct.pack(f"<{len(strides)}q", *strides))

    def descale(self, array: Any) -> None:
        place = self.memory.allocate(array.tobytes())
        self.put(struct.pack("<Q2i2q", place.address, *array.shape, array.shape[1], 1))

    def put(self, data: bytes) -> None:
        at = self.offsets[self.number]
        size = min(len(data), self.offsets[self.number + 1] - at)
        self.parameters[at : at + size] = data[:size]
        self.number += 1

    def numbers(self, *values: float) -> None:
        for value in values:
            self.put(struct.pack("<f" if isinstance(value, float) else "<i", value))


# Puts the arguments of a launch; gives the grid, and what reads the results.
Place = Callable[[Arguments], tuple[Geometry, Callable[[], list[Any]]]]


def of_ptx(made: Any, place: Place) -> list[Any]:
    """What the PTX of a kernel stores."""
    kernel = read_kernel(Ptx(made.ptx))
    memory = Memory(kernel.shared.size + SHARED, kernel.local.size)
    into = Arguments(memory, offsets_of(kernel))
    geometry, stored = place(into)
    assert into.number == len(into.offsets) - 1
    parameters = memory.allocate(bytes(into.parameters))
    variables = {one.name: memory.allocate(one.contents) for one in kernel.module}
    machine = Machine(geometry, memory)
    machine.run(decode_ptx(kernel, machine, parameters, variables, SHARED)[0])
    return stored()


def of_code(made: Any, place: Place) -> list[Any]:
    """The same of its machine code."""
    cubin = Cubin.from_bytes(made.cubin if isinstance(made.cubin, bytes) else made.cubin.data)
    (name,) = cubin.kernels
    code = read_sass_kernel(cubin, reading_toolchain().disassemble(cubin, [name])[name])
    memory = Memory(code.shared + SHARED, code.stack)
    into = Arguments(memory, offsets_of(read_kernel(Ptx(made.ptx))))
    geometry, stored = place(into)
    parameters = bytes(into.parameters)
    constants = code.constants(geometry, parameters, memory.allocate(parameters).address)
    machine = Machine(geometry, memory)
    machine.run(decode_sass(code, machine, constants)[0])
    return stored()


def offsets_of(kernel: Any) -> list[int]:
    return [*(offset for _, offset in kernel.parameters.variables), kernel.parameters.size]
