"""A layer norm in Triton: the kernel of the tutorials.

python examples/layer_norm.py                 # on a GPU: run it; else: compile it for Hopper
tritonhook run examples/layer_norm.py         # ... and capture it
tritonhook ab layer_norm:launch               # in this folder, on a GPU: time it under two names
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


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


def launch() -> Callable[[], Any]:
    """Make the buffers and return a function that launches the kernel and returns its output."""
    import torch

    rows, columns = 8192, 8192
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    weight, bias = (torch.randn(columns, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(x)

    def run() -> Any:
        layer_norm[(rows,)](x, weight, bias, out, columns, BLOCK=1024)
        return out

    return run


def compile_for_hopper() -> Any:
    """Compile the kernel as `launch` does, without a GPU. Returns Triton's compiled kernel."""
    signature = {
        "x": "*bf16",
        "weight": "*bf16",
        "bias": "*bf16",
        "out": "*bf16",
        "columns": "i32",
        "BLOCK": "constexpr",
    }
    # Triton tells its compiler which arguments are divisible by 16: here all of them are.
    divisible = {(position,): [["tt.divisibility", 16]] for position in range(5)}
    source = ASTSource(fn=layer_norm, signature=signature, constexprs={"BLOCK": 1024}, attrs=divisible)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


if __name__ == "__main__":
    launch()() if has_gpu() else compile_for_hopper()
