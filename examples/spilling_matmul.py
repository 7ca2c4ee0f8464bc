"""A matmul of one warp: its tile does not fit into registers, and the driver reserves memory for what is spilled.

python examples/spilling_matmul.py                    # on a GPU: run it; else: compile it for Hopper
tritonhook mem predict tritonhook-captures --gpu H100 # after `tritonhook run`: what it will reserve
tritonhook mem watch examples/spilling_matmul.py      # on a GPU: what it does reserve
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def spilling_matmul(a, b, c, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, inner, K):
        x = tl.load(a + rows[:, None] * inner + (k + start)[None, :])
        y = tl.load(b + (k + start)[:, None] * N + columns[None, :])
        acc += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


def run() -> None:
    """Multiply on the GPU and check the result."""
    import torch

    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((128, 512), (512, 128)))
    c = torch.empty(128, 128, device="cuda")
    spilling_matmul[(1,)](a, b, c, 512, M=128, N=128, K=32, num_warps=1)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=0.5)


def source() -> ASTSource:
    """The kernel as `run` launches it."""
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "inner": "i32", "M": "constexpr", "N": "constexpr"}
    constants = {"M": 128, "N": 128, "K": 32}
    divisible = {(position,): [["tt.divisibility", 16]] for position in range(4)}
    return ASTSource(
        fn=spilling_matmul, signature=signature | {"K": "constexpr"}, constexprs=constants, attrs=divisible
    )


def compile_for_hopper() -> None:
    """Compile the kernel as `run` does, without a GPU."""
    triton.compile(source(), target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


if __name__ == "__main__":
    run() if has_gpu() else compile_for_hopper()
