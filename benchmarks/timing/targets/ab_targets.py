"""Kernels to time: each function makes its buffers and returns a launch that returns its outputs.

    tritonhook ab ab_targets:softmax        # in this folder, on a GPU

Small and ordinary Triton kernels, as many programs have them, and the attentions of gluon_kernels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

sys.path.append(str(Path(__file__).resolve().parents[3]))  # gluon_kernels, also where it is not installed
Launch = Callable[[], torch.Tensor]


@triton.jit
def add_kernel(x, y, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, B: tl.constexpr):
    """One row per program, in two passes over it."""
    row = tl.program_id(0).to(tl.int64) * columns
    top = tl.full((B,), float("-inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        at = start + tl.arange(0, B)
        value = tl.load(x + row + at, mask=at < columns, other=float("-inf"))
        new = tl.maximum(top, value)
        total = total * tl.exp(top - tl.where(new == float("-inf"), 0.0, new)) + tl.exp(
            value - tl.where(new == float("-inf"), 0.0, new)
        )
        top = new
    peak = tl.max(top, 0)
    norm = tl.sum(total * tl.exp(top - peak), 0)
    for start in range(0, columns, B):
        at = start + tl.arange(0, B)
        value = tl.load(x + row + at, mask=at < columns, other=float("-inf"))
        tl.store(out + row + at, tl.exp(value - peak) / norm, mask=at < columns)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, columns, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    mean = tl.zeros((B,), tl.float32)
    square = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        at = start + tl.arange(0, B)
        value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        mean += value
        square += value * value
    m = tl.sum(mean, 0) / columns
    scale = 1 / tl.sqrt(tl.sum(square, 0) / columns - m * m + 1e-5)
    for start in range(0, columns, B):
        at = start + tl.arange(0, B)
        mask = at < columns
        value = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=mask).to(tl.float32)
        b = tl.load(bias + at, mask=mask).to(tl.float32)
        tl.store(out + row + at, ((value - m) * scale * w + b).to(out.dtype.element_ty), mask=mask)


@triton.jit
def row_sum_kernel(x, out, columns, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((B,), tl.float32)
    for start in range(0, columns, B):
        at = start + tl.arange(0, B)
        total += tl.load(x + row + at, mask=at < columns, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def polynomial_kernel(x, out, n, steps, B: tl.constexpr):
    """Arithmetic alone: `steps` rounds of independent multiply-adds on values in registers."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + at, mask=at < n, other=0.0)
    b, c, d = a * 0.5, a * 0.25, a * 0.125
    for _ in range(steps):
        a = a * 0.999 + b
        b = b * 0.998 + c
        c = c * 0.997 + d
        d = d * 0.996 + 0.001
    tl.store(out + at, a + b + c + d, mask=at < n)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B for row-major A [M, K], B [K, N], C [M, N]; sizes divisible by the tile."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        tile_a = tl.load(a + m[:, None] * K + start + k[None, :])
        tile_b = tl.load(b + (start + k)[:, None] * N + n[None, :])
        acc += tl.dot(tile_a, tile_b)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def attention_kernel(q, k, v, o, scale, S, keys, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Forward attention, not causal: q, o [batch * heads, S, D], k, v [batch * heads, keys, D]; whole tiles only."""
    base = tl.program_id(1).to(tl.int64) * S * D
    base_kv = tl.program_id(1).to(tl.int64) * keys * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    tile_q = tl.load(q + base + m[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, keys, BN):
        n = start + tl.arange(0, BN)
        scores = tl.dot(tile_q, tl.load(k + base_kv + n[None, :] * D + d[:, None])) * scale
        new = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(p.to(q.dtype.element_ty), tl.load(v + base_kv + n[:, None] * D + d[None, :]), acc)
        top = new
    tl.store(o + base + m[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty))


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0)).to(dtype)


def _launches(out: torch.Tensor, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: int) -> Launch:
    """Make a launch that returns `out`."""

    def launch() -> torch.Tensor:
        kernel[grid](*arguments, **options)
        return out

    return launch


_tuned_softmax = triton.autotune(
    [triton.Config({"B": b}, num_warps=w) for b, w in ((512, 4), (1024, 4), (2048, 8))], key=["columns"]
)(softmax_kernel)


def tuned_softmax(rows: int = 4096, columns: int = 16384) -> Launch:
    """Triton's autotuner chooses the configuration."""
    x = _random(rows, columns)
    out = torch.empty_like(x)
    return _launches(out, _tuned_softmax, (rows,), x, out, columns)


def add(n: int = 1 << 25) -> Launch:
    x, y = _random(n), _random(n)
    out = torch.empty_like(x)
    return _launches(out, add_kernel, (triton.cdiv(n, 1024),), x, y, out, n, B=1024)


def add_small() -> Launch:
    """About 2 microseconds: several launches make one sample."""
    return add(1 << 16)


def softmax(rows: int = 8192, columns: int = 4096) -> Launch:
    x = _random(rows, columns)
    out = torch.empty_like(x)
    return _launches(out, softmax_kernel, (rows,), x, out, columns, B=1024)


def layer_norm(rows: int = 8192, columns: int = 4096) -> Launch:
    x, weight, bias = (_random(*shape, dtype=torch.bfloat16) for shape in ((rows, columns), (columns,), (columns,)))
    out = torch.empty_like(x)
    return _launches(out, layer_norm_kernel, (rows,), x, weight, bias, out, columns, B=1024)


def row_sum(rows: int = 8192, columns: int = 8192) -> Launch:
    x = _random(rows, columns)
    out = torch.empty(rows, device="cuda")
    return _launches(out, row_sum_kernel, (rows,), x, out, columns, B=1024)


def polynomial(n: int = 1 << 22, steps: int = 400) -> Launch:
    x = _random(n)
    out = torch.empty_like(x)
    return _launches(out, polynomial_kernel, (triton.cdiv(n, 1024),), x, out, n, steps, B=1024)


def matmul(
    size: int = 4096, dtype: torch.dtype = torch.bfloat16, inner: int | None = None, tile: int = 128, warps: int = 8
) -> Launch:
    inner = inner or size
    a, b = _random(size, inner, dtype=dtype), _random(inner, size, dtype=dtype)
    c = torch.empty(size, size, device="cuda", dtype=torch.bfloat16)
    options = {"BM": tile, "BN": tile, "BK": 64, "num_warps": warps, "num_stages": 3}
    return _launches(c, matmul_kernel, (size // tile, size // tile), a, b, c, size, size, inner, **options)


def matmul_mma() -> Launch:
    """With two warps Triton takes mma.sync, as wgmma needs four."""
    return matmul(tile=64, warps=2)


def matmul_fp8() -> Launch:
    return matmul(dtype=torch.float8_e4m3fn)


def matmul_fp32() -> Launch:
    """tf32 on the tensor cores."""
    return matmul(2048, torch.float32)


def attention(
    heads: int = 64,
    length: int = 4096,
    depth: int = 128,
    keys: int | None = None,
    rows: int = 128,
    warps: int = 8,
    dtype: torch.dtype = torch.bfloat16,
) -> Launch:
    keys = keys or length
    q = _random(heads, length, depth, dtype=dtype)
    k, v = (_random(heads, keys, depth, dtype=dtype) for _ in range(2))
    o = torch.empty_like(q, dtype=torch.bfloat16)
    options = {"D": depth, "BM": rows, "BN": 64, "num_warps": warps, "num_stages": 3}
    arguments = q, k, v, o, 1.44269504 / depth**0.5, length, keys
    return _launches(o, attention_kernel, (length // rows, heads), *arguments, **options)


def attention_fp8() -> Launch:
    return attention(dtype=torch.float8_e4m3fn)


def attention_d64() -> Launch:
    return attention(depth=64)


def attention_mma() -> Launch:
    """With two warps Triton takes mma.sync, as wgmma needs four."""
    return attention(rows=32, warps=2)


def attention_mma_d64() -> Launch:
    return attention(depth=64, rows=64, warps=2)


def gluon(kernel: str, depth: int, causal: bool, dtype: torch.dtype = torch.bfloat16) -> Launch:
    """This repository's attention under a name without "cutlass", 4 batches of 16 heads and 4096 rows."""
    from importlib import import_module

    attend = import_module(f"gluon_kernels.attention_{kernel}").attention
    q, k, v = (_random(4, 16, 4096, depth, dtype=dtype) for _ in range(3))
    return lambda: attend(q, k, v, causal="top-left" if causal else None, name=f"attention_{kernel}_fwd")


def __getattr__(name: str) -> Callable[[], Launch]:
    """Sizes by name, for kernels made slower on purpose: polynomial_steps_1010, matmul_depth_6464,
    attention_keys_6464, row_sum_columns_103424. The Gluon attentions: gluon_mma_d128, gluon_mma_d64_causal,
    gluon_hopper_d128, gluon_blackwell_d64_causal and so on, gluon_mma_fp8_d128."""
    if match := re.fullmatch(r"gluon_(mma|hopper|blackwell)(_fp8)?_d(64|128|256)(_causal)?", name):
        dtype = torch.float8_e4m3fn if match[2] else torch.bfloat16
        return lambda: gluon(match[1], int(match[3]), bool(match[4]), dtype)
    kernel, _, size = name.rpartition("_")
    made: dict[str, Callable[[int], Launch]] = {
        "polynomial_steps": lambda n: polynomial(steps=n),
        "matmul_depth": lambda n: matmul(4096, inner=n),
        "attention_keys": lambda n: attention(16, 4096, keys=n),
        "row_sum_columns": lambda n: row_sum(1056, n),
    }
    if kernel not in made or not size.isdigit():
        raise AttributeError(name)
    return lambda: made[kernel](int(size))
