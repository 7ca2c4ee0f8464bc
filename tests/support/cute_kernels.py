"""CuTe kernels for tests, compiled without a GPU. Needs the DSL."""

import re
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass.base_dsl.jit_executor import JitCompiledFunction
from cutlass.cute.runtime import make_fake_compact_tensor, make_ptr

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.shipped import embedded_cubins


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    b[thread] = a[thread] + b[thread]


@cute.kernel
def double_kernel(a: cute.Tensor, b: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    b[thread] = a[thread] + a[thread]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor):
    add_kernel(a, b).launch(grid=[1, 1, 1], block=[128, 1, 1])


@cute.jit
def both(a: cute.Tensor, b: cute.Tensor):
    add_kernel(a, b).launch(grid=[1, 1, 1], block=[128, 1, 1])
    double_kernel(a, b).launch(grid=[1, 1, 1], block=[128, 1, 1])


@cute.jit
def swapped(a: cute.Tensor, b: cute.Tensor):
    double_kernel(a, b).launch(grid=[1, 1, 1], block=[128, 1, 1])
    add_kernel(a, b).launch(grid=[1, 1, 1], block=[128, 1, 1])


@cute.kernel
def loop_kernel(a: cute.Tensor, b: cute.Tensor, n: cutlass.Int32):
    """Enough arithmetic in a loop for the name to change the code."""
    thread, _, _ = cute.arch.thread_idx()
    x, y, z = a[thread], b[thread], a[thread + 1]
    for _ in cutlass.range(n, unroll=1):
        for _ in cutlass.range_constexpr(16):
            x, y, z = x * y + z, y * z + x, z * x + y
    b[thread] = x + y + z


@cute.jit
def loop(a: cute.Tensor, b: cute.Tensor, n: cutlass.Int32):
    loop_kernel(a, b, n).launch(grid=[1, 1, 1], block=[128, 1, 1])


def tensors() -> list[Any]:
    return [make_fake_compact_tensor(cutlass.Float32, (128,)) for _ in range(2)]


def compiled(function: Any = add, *more: Any, options: str = "") -> Any:
    """As cute.compile."""
    return cute.compile(function, *tensors(), *more, **({"options": options} if options else {}))


@cute.jit
def add_pointers(a: cute.Pointer, b: cute.Pointer):
    layout = cute.make_layout(128)
    add_kernel(cute.make_tensor(a, layout), cute.make_tensor(b, layout)).launch(grid=[1, 1, 1], block=[128, 1, 1])


def called() -> Any:
    """What a call of a @cute.jit function compiles, or takes from the DSL's caches; the launch is left out."""
    pointer = make_ptr(cutlass.Float32, 4096, cute.AddressSpace.gmem, assumed_align=16)
    ran: list[Any] = []
    run = JitCompiledFunction.run_compiled_program
    JitCompiledFunction.run_compiled_program = lambda self, arguments: ran.append(self)
    try:
        add_pointers(pointer, pointer)
    finally:
        JitCompiledFunction.run_compiled_program = run
    return ran[0]


def asked_for(function: Any) -> list[str]:
    """The kernels that the host code looks up: llvm.mlir.constant("name\\00") in the functions that load."""
    text = str(function.ir_module)
    return sorted(set(re.findall(r'llvm\.mlir\.constant\("([\w$]*kernel_[\w$]+)\\00"\)', text)))


def kernels_in(function: Any) -> list[str]:
    """The kernels in the cubin that the compiled function carries."""
    return sorted(Cubin.from_bytes(cubin_in(function)).kernels)


def cubin_in(function: Any) -> bytes:
    values = [
        op.operation.attributes["value"]
        for op in function.ir_module.body.operations
        if op.operation.name == "llvm.mlir.global" and "_binary" in str(op.operation.attributes["sym_name"])
    ]
    (cubin,) = embedded_cubins(ir.StringAttr(values[0]).value_bytes).cubins
    return cubin
