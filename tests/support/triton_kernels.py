"""Small Triton kernels, compiled without a GPU. `fresh` gives one whose in-memory cache is empty."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def multiply_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def fused_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, mask=inside), tl.load(y + at, mask=inside)
    tl.store(out + at, a * b + a, mask=inside)


@triton.jit
def cutlass_copy_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def gemm_kernel(
    a, b, c, m, n, k, stride_a, stride_b, stride_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None] * stride_a + inner[None, :]
    b_at = b + inner[:, None] * stride_b + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        part_a = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
        part_b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(part_a, part_b, total)
        a_at += BLOCK_K
        b_at += BLOCK_K * stride_b
    c_at = c + rows[:, None] * stride_c + columns[None, :]
    tl.store(c_at, total.to(tl.float16), mask=(rows[:, None] < m) & (columns[None, :] < n))


def other_add_kernel() -> triton.JITFunction:
    """Another kernel of the name `add_kernel`, as of another module, or after an edit."""

    @triton.jit
    def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside), mask=inside)

    return add_kernel


def fresh(kernel: triton.JITFunction) -> triton.JITFunction:
    """The same kernel with an empty in-memory cache."""
    return triton.jit(kernel.fn)


def compile_kernel(kernel: triton.JITFunction = add_kernel, arch: int = 90, block: int = 128, **options: Any) -> Any:
    """Compile one of the element-wise kernels above with triton.compile."""
    source = ASTSource(
        fn=kernel,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": block},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def compile_gemm(arch: int = 90, **options: Any) -> Any:
    names = ("m", "n", "k", "stride_a", "stride_b", "stride_c")
    source = ASTSource(
        fn=gemm_kernel,
        signature={
            **dict.fromkeys("abc", "*fp16"),
            **dict.fromkeys(names, "i32"),
            **dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K"), "constexpr"),
        },
        constexprs={"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(9)},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 8, **options})


class Tensor:
    """What a launch needs to know of a tensor."""

    dtype = "float32"

    def data_ptr(self) -> int:
        return 4096


def launch(kernel: triton.JITFunction, block: int = 128) -> Any:
    """Launch an element-wise kernel through the active driver; returns Triton's compiled kernel."""
    x = Tensor()
    return kernel[(1,)](x, x, x, 1000, BLOCK=block)
