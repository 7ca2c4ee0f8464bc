"""Real Triton kernels of some hundred lines of PTX that known versions of ptxas miscompile, compiled without a GPU."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def quantize_rows(x, out, scales, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows to fp8 by their largest number. The scales, written beside each number, are fp8 pairs of one number."""
    at_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at_n = tl.arange(0, BLOCK_N)
    largest = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, columns, BLOCK_N):
        inside = (start + at_n) < columns
        value = tl.load(x + at_m[:, None] * columns + start + at_n[None, :], mask=inside[None, :], other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(value), 1))
    scale = tl.exp2(tl.ceil(tl.log2(tl.maximum(largest, 1e-6) / 448.0)))
    for start in range(0, columns, BLOCK_N):
        inside = (start + at_n) < columns
        at = at_m[:, None] * columns + start + at_n[None, :]
        value = tl.load(x + at, mask=inside[None, :], other=0.0)
        tl.store(out + at, (value / scale[:, None]).to(tl.float8e4nv), mask=inside[None, :])
        tl.store(scales + at, tl.where(inside[None, :], scale[:, None], 0.0).to(tl.float8e4nv), mask=inside[None, :])


@triton.jit
def hashed_softmax(x, keys, out, digests, columns, BLOCK: tl.constexpr):
    """A softmax whose columns are dropped by a hash; one step of the hash is (k << 8) - (k >> 56)."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    key = tl.load(keys + row + at, mask=inside, other=1)
    digest = (key << 8) - (key >> 56)
    keep = (digest & 7) != 0
    value = tl.load(x + row + at, mask=inside & keep, other=float("-inf"))
    weights = tl.exp(value - tl.max(value, 0))
    total = tl.sum(weights, 0)
    tl.store(out + row + at, weights / total, mask=inside)
    tl.store(digests + row + at, digest, mask=inside)


def compile_quantize_rows(arch: int = 90, block: int = 64, **options: Any) -> Any:
    signature = {"x": "*fp32", "out": "*fp8e4nv", "scales": "*fp8e4nv", "columns": "i32"}
    return _compile(quantize_rows, signature, {"BLOCK_M": 32, "BLOCK_N": block}, arch, options)


def compile_hashed_softmax(arch: int = 90, block: int = 1024, **options: Any) -> Any:
    signature = {"x": "*fp32", "keys": "*u64", "out": "*fp32", "digests": "*u64", "columns": "i32"}
    return _compile(hashed_softmax, signature, {"BLOCK": block}, arch, options)


def _compile(kernel: Any, types: dict[str, str], blocks: dict[str, int], arch: int, options: dict[str, Any]) -> Any:
    source = ASTSource(
        fn=kernel,
        signature={**types, **dict.fromkeys(blocks, "constexpr")},
        constexprs=blocks,
        attrs={(position,): [["tt.divisibility", 16]] for position in range(len(types))},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
