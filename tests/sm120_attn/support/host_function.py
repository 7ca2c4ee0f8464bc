"""A host function with the arguments of the attention kernels, annotated so that the DSL can write its C header."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream


@cute.kernel
def kernel(q: cute.Tensor, o: cute.Tensor, lse: cute.Tensor, scale: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    if thread < q.shape[2]:
        o[0, 0, thread] = scale.to(cutlass.BFloat16)
        lse[0, thread] = scale


@cute.jit
def host(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    o: cute.Tensor,
    lse: cute.Tensor,
    cu_seqlens_q: cute.Tensor,
    cu_seqlens_k: cute.Tensor | None,
    cache_seqlens: cute.Tensor,
    block_table: cute.Tensor,
    sinks: cute.Tensor,
    q_descale: cute.Tensor,
    k_descale: cute.Tensor,
    v_descale: cute.Tensor,
    max_seqlen_q: cutlass.Int32,
    scale_log2: cutlass.Float32,
    softcap: cutlass.Float32,
    window_left: cutlass.Int32,
    window_right: cutlass.Int32,
    stream: CUstream,
):
    kernel(q, o, lse, scale_log2).launch(grid=[max_seqlen_q, 1, 1], block=[128, 1, 1], stream=stream)
