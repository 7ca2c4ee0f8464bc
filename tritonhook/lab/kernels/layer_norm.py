"""A layer norm in Triton, the kernel of `tritonhook demo`. It is compiled without a GPU and without torch."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def layer_norm(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        total += value
        square += value * value
    mean = tl.sum(total, 0) / columns
    scale = 1 / tl.sqrt(tl.sum(square, 0) / columns - mean * mean + 1e-5)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        value = tl.load(x + row + at, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=mask).to(tl.float32)
        b = tl.load(bias + at, mask=mask).to(tl.float32)
        tl.store(out + row + at, ((value - mean) * scale * w + b).to(out.dtype.element_ty), mask=mask)


def compile_offline(arch: int = 90) -> Any:
    """Compile the kernel for compute capability `arch`, with all arguments divisible by 16."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {**dict.fromkeys(("x", "weight", "bias", "out"), "*bf16"), "columns": "i32", "BLOCK": "constexpr"}
    divisible = {(position,): [["tt.divisibility", 16]] for position in range(5)}
    source = ASTSource(fn=layer_norm, signature=types, constexprs={"BLOCK": 1024}, attrs=divisible)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32))
