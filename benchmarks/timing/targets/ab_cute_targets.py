"""CuTe kernels to time with and without the "cutlass" that the DSL puts into every name.

    tritonhook ab ab_cute_targets:fma_loop --strip
    tritonhook ab ab_cute_targets:gemm_chain --rewrite mma-throughput

Needs the CuTe DSL, torch and a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

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


def gemm_chain() -> Callable[[], torch.Tensor]:
    """The chain of three GEMMs of examples/cute_gemm_chain.py, 128 x 128 x 128, batch 1,024."""
    sys.path.append(str(Path(__file__).resolve().parents[3] / "examples"))
    import cute_gemm_chain as example

    torch.manual_seed(0)
    a, b, c, d = (torch.randn(1024, 128, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    out, plan = torch.empty_like(a), example.plan((128, 128, 128), 128)
    compiled = example.compile_plan(plan)  # not the one that is kept: each side compiles its own
    ctas = torch.cuda.get_device_properties(0).multi_processor_count * plan.ctas_per_sm

    def launch() -> torch.Tensor:
        compiled(a, (b, c, d), out, ctas)
        return out

    return launch
