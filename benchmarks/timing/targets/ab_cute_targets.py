"""A CuTe kernel to time with and without the "cutlass" that the DSL puts into every name.

    tritonhook ab ab_cute_targets:fma_loop --strip

Needs the CuTe DSL, torch and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS, BLOCKS, STEPS = 256, 1056, 2000


@cute.kernel
def fma_kernel(x: cute.Tensor, out: cute.Tensor, steps: cutlass.Int32):
    """Rounds of dependent multiply-adds on values in registers."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    a = x[at]
    b = a * 0.5
    c = a * 0.25
    for _ in cutlass.range(steps, unroll=1):
        for _ in cutlass.range_constexpr(8):
            a, b, c = a * 0.999 + b, b * 0.998 + c, c * 0.997 + 0.001
    out[at] = a + b + c


@cute.jit
def fma(x: cute.Tensor, out: cute.Tensor, steps: cutlass.Int32, stream: cuda.CUstream):
    fma_kernel(x, out, steps).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1], stream=stream)


def fma_loop() -> Callable[[], torch.Tensor]:
    x = torch.randn(BLOCKS * THREADS, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    out = torch.empty_like(x)
    tensors = [from_dlpack(tensor, assumed_align=16) for tensor in (x, out)]
    compiled = cute.compile(fma, *tensors, STEPS, cuda.CUstream(torch.cuda.current_stream().cuda_stream))

    def launch() -> torch.Tensor:
        compiled(*tensors, STEPS, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
        return out

    return launch
