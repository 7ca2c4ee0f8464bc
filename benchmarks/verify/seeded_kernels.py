"""Triton kernels, as in Triton's tutorials and in language models, compiled for sm_90a without a GPU.

`compiled()` yields name, Triton's compiled kernel and the launch as JSON values. The sizes leave a part of the last
block outside of the problem, and take microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def polynomial(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, mask=inside, other=0.0), tl.load(y + at, mask=inside, other=0.0)
    value = ((0.3275 * a + 1.25) * a - 0.71) * b + 0.0625
    tl.store(out + at, tl.where(value < -b, value * 0.01, value), mask=inside)


@triton.jit
def clamp_to_int8(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0) * 90.0 + tl.load(y + at, mask=inside, other=0.0)
    value = tl.minimum(tl.maximum(value, -100.0), 117.0)
    whole = (value + tl.where(value < 0, -0.5, 0.5)).to(tl.int32)
    tl.store(out + at, tl.minimum(tl.maximum(whole, -64), 90), mask=inside)


@triton.jit
def softmax(x, y, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + row * n + at, mask=inside, other=-float("inf"))
    top = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + at, top / tl.sum(top, 0), mask=inside)


@triton.jit
def row_statistics(x, y, out, n, BLOCK: tl.constexpr):
    """Largest, smallest, where the largest is, and the sum of squares of each row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + row * n + at, mask=inside, other=0.0)
    tl.store(out + row * 4, tl.max(value, 0))
    tl.store(out + row * 4 + 1, tl.min(value, 0))
    tl.store(out + row * 4 + 2, tl.argmax(value, 0).to(tl.float32))
    tl.store(out + row * 4 + 3, tl.sum(value * value, 0))


@triton.jit
def layer_norm(x, y, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + row * n + at, mask=inside, other=0.0)
    mean = tl.sum(value, 0) * 0.0013003901
    apart = tl.where(inside, value - mean, 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(apart * apart, 0) * 0.0013003901 + 1e-5)
    weight = tl.load(y + at, mask=inside, other=0.0)
    tl.store(out + row * n + at, apart * scale * weight + 0.125, mask=inside)


@triton.jit
def rope(x, y, out, n, BLOCK: tl.constexpr):
    """Rotary embedding: pairs are turned by angles; `y` has their cosines and sines."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + row * 2 * n + at, mask=inside, other=0.0)
    b = tl.load(x + row * 2 * n + n + at, mask=inside, other=0.0)
    cosine, sine = tl.load(y + at, mask=inside, other=0.0), tl.load(y + n + at, mask=inside, other=0.0)
    tl.store(out + row * 2 * n + at, a * cosine - b * sine, mask=inside)
    tl.store(out + row * 2 * n + n + at, b * cosine + a * sine, mask=inside)


@triton.jit
def dropout(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    keep = tl.rand(12345, at) > 0.5
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=inside) * 2.0, 0.0), mask=inside)


@triton.jit
def hash_mix(x, y, out, n, BLOCK: tl.constexpr):
    """The finaliser of MurmurHash3."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    key = tl.load(x + at, mask=inside, other=0).to(tl.uint32, bitcast=True)
    key = (key ^ (key >> 16)) * 0x85EBCA6B
    key = (key ^ (key >> 13)) * 0xC2B2AE35
    tl.store(out + at, (key ^ (key >> 16)).to(tl.int32, bitcast=True), mask=inside)


@triton.jit
def matmul(x, y, out, n, BLOCK: tl.constexpr):
    """Square matrices of n x n numbers, in float32."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + inner
        a = tl.load(x + rows[:, None] * n + at[None, :], mask=(rows[:, None] < n) & (at[None, :] < n), other=0.0)
        b = tl.load(y + at[:, None] * n + columns[None, :], mask=(at[:, None] < n) & (columns[None, :] < n), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    total = tl.where(total >= 0, total, 0.01 * total)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < n) & (columns[None, :] < n))


_ROWS, _COLUMNS, _N = 64, 769, 5000
_KERNELS: dict[str, tuple[Any, str, int, int, tuple[int, ...], tuple[int, int, int]]] = {
    # name: kernel, dtype, BLOCK, n, grid, elements of x, y and out
    "vector_add": (vector_add, "float32", 1024, _N, (5,), (_N, _N, _N)),
    "polynomial": (polynomial, "float32", 1024, _N, (5,), (_N, _N, _N)),
    "clamp_to_int8": (clamp_to_int8, "float32", 1024, _N, (5,), (_N, _N, _N)),
    "softmax": (softmax, "float32", 1024, _COLUMNS, (_ROWS,), (_ROWS * _COLUMNS, 1, _ROWS * _COLUMNS)),
    "row_statistics": (row_statistics, "float32", 1024, _COLUMNS, (_ROWS,), (_ROWS * _COLUMNS, 1, _ROWS * 4)),
    "layer_norm": (layer_norm, "float32", 1024, _COLUMNS, (_ROWS,), (_ROWS * _COLUMNS, _COLUMNS, _ROWS * _COLUMNS)),
    "rope": (rope, "float32", 256, 200, (_ROWS,), (_ROWS * 400, 400, _ROWS * 400)),
    "dropout": (dropout, "float32", 1024, _N, (5,), (_N, 1, _N)),
    "hash_mix": (hash_mix, "int32", 1024, _N, (5,), (_N, 1, _N)),
    "matmul": (matmul, "float32", 32, 100, (4, 4), (10000, 10000, 10000)),
}


def compiled(target: int = 90) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each kernel: its name, Triton's compiled kernel, and its launch as JSON values."""
    for name, (kernel, dtype, block, n, grid, sizes) in _KERNELS.items():
        element = {"float32": "*fp32", "int32": "*i32"}[dtype]
        result = "*i32" if name == "clamp_to_int8" else element
        source = ASTSource(
            fn=kernel,
            signature={"x": element, "y": element, "out": result, "n": "i32", "BLOCK": "constexpr"},
            constexprs={"BLOCK": block},
            attrs={(position,): [["tt.divisibility", 16]] for position in range(3)},
        )
        made = triton.compile(source, target=GPUTarget("cuda", target, 32))
        dtypes = (dtype, dtype, "int32" if result == "*i32" else dtype)
        tensors = [
            {"name": what, "dtype": one, "shape": [size]}
            for what, one, size in zip(("x", "y", "out"), dtypes, sizes, strict=True)
        ]
        scratch = made.asm["ptx"].partition(")")[0].count(".param") - 4
        launch = {
            "kernel": made.metadata.name,
            "grid": list(grid),
            "block": [32 * made.metadata.num_warps],
            "shared": made.metadata.shared,
            "parameters": [
                *tensors,
                {"name": "n", "type": "i32", "value": n},
                *({"kind": "scratch"} for _ in range(scratch)),
            ],
        }
        yield name, made, launch
