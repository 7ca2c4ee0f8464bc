"""The same copy with tl.load/tl.store and with tensor descriptors, for their memory side by side:

    tritonhook mem compare --variants plain,tma examples/tma_memory.py

On an RTX 50 card with Triton 3.4 to 3.6 the second takes about 3.7 GiB more, which no allocator shows; with
`--variants tma,tma-fixed` the second shows the effect of the rewrite. Needs a GPU with TMA (compute capability 9).
"""

import sys

import torch
import triton
import triton.language as tl

import tritonhook


@triton.jit
def copy_plain(x, y, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < m) & (columns < n)
    tl.store(y + rows * n + columns, tl.load(x + rows * n + columns, mask=inside), mask=inside)


@triton.jit
def copy_tma(x, y, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(y, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    target.store([row, column], source.load([row, column]))


def main(variant: str) -> None:
    kernels = {"plain": copy_plain, "tma": copy_tma, "tma-fixed": copy_tma}
    if variant not in kernels:
        sys.exit(f"{variant}: no such variant; there are: {', '.join(kernels)}")
    if not torch.cuda.is_available():
        sys.exit("examples/tma_memory.py needs an NVIDIA GPU: torch.cuda.is_available() says no")
    if variant == "tma-fixed":
        tritonhook.enable("tma-memory-captures", rewrites=["tma-cta"])
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    y = torch.zeros_like(x)
    kernels[variant][(4096 // 64, 4096 // 64)](x, y, 4096, 4096, BLOCK_M=64, BLOCK_N=64)
    torch.cuda.synchronize()
    assert torch.equal(x, y), "the copy differs"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "plain")
