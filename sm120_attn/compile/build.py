"""A Config's compiled function: what it takes and how it is compiled. Launching and caching belong to `launch`.

    host, arguments = build(config)              # a @cute.jit callable and fake arguments of dynamic shape
    compiled = cute.compile(host, *arguments)    # options and CUTE_DSL_ARCH are the caller's business
    compiled(q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, q_descale, k_descale, v_descale, max_seqlen_q, scale_log2,
             softcap, window_left, window_right, sms, stream)

Arguments of the compiled function, in this order. All shapes and strides are dynamic, also the number of heads:

    q, o           [B, Sq, H, D]; varlen: [total_q, H, D]. q, k, v: bf16, fp16 or FP8, o: config.output_dtype
    k, v           [B, Sk, Hkv, D]; varlen: [total_k, Hkv, D]. H is a multiple of Hkv
                   last stride 1; other strides multiples of 8 elements (16 bytes); address 16-byte aligned
    lse            fp32 [B, H, Sq], varlen [H, total_q], contiguous along the last axis; None without config.lse
    cu_seqlens_q   int32 [B + 1], non-decreasing, from 0; None without config.varlen. cu_seqlens_k the same
    q_descale      fp32 [B, H], what FP8 values are multiplied with, greater than 0; a stride of 0 is allowed, so that
                   one number serves all. None without config.fp8. k_descale, v_descale [B, Hkv] the same
    max_seqlen_q   int32, rows of the longest query sequence (Sq if not varlen); sets the grid
    scale_log2     fp32, softmax scale * log2(e), positive
    softcap        fp32, the cap; ignored without config.softcap
    window_left    int32, keys to the left that a query sees; -1: all. Ignored without config.window
    window_right   the same to the right; causal kernels take it as 0
    sms            int32, multiprocessors; not used by the kernels of today
    stream         a CUstream

Quantisation kernels (QuantizeConfig) take, with None for what there is not:

    x0, x1, x2     the tensors, [B, S, H, D] or varlen [total, H, D]; strides as those of q; y0, y1, y2: the outputs
    descale0, ...  fp32 [B, H] of each tensor, contiguous
    starts0        int32 [B + 1], cu_seqlens of x0; starts1: of x1 and x2. None without config.varlen
    partials       int32, Cut.scratch words of room. None with config.whole
    pieces, chunks, group      of quantize_config.Cut
    stream         a CUstream

Probes (ProbeConfig) take source and target, int32 of one dimension, blocks (int32) and the stream.

A row that sees no key gets O = 0 and LSE = -inf. With total_q or B of 0, or max_seqlen_q of 0, nothing may be launched:
the caller leaves the call out.
"""

from __future__ import annotations

from typing import Any

from .. import config as attention_config
from ..config import Config
from ..quantization import config as quantize_config
from ..quantization.config import QuantizeConfig
from ..verify.hardware_probes import config as probe_config
from ..verify.hardware_probes.config import ProbeConfig

AnyConfig = Config | QuantizeConfig | ProbeConfig
_WHY_NOT = {
    Config: attention_config.why_not, QuantizeConfig: quantize_config.why_not, ProbeConfig: probe_config.why_not,
}  # fmt: skip


def why_not(config: AnyConfig) -> str | None:
    """The reason why this kernel cannot be built; None if it can."""
    return _WHY_NOT[type(config)](config)


def build(config: AnyConfig, policy: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """The host function of this kernel, and fake arguments to compile it with. Raises ValueError if it cannot be.

    policy: instead of the one that policy_of(config) gives, for tests.
    """
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    from .fake_arguments import fake_arguments, fake_probe_arguments, fake_quantize_arguments

    if isinstance(config, ProbeConfig):
        from ..verify.hardware_probes.kernel import Probe

        return Probe(config), fake_probe_arguments()
    if isinstance(config, QuantizeConfig):
        from ..quantization.kernel import Quantize

        return Quantize(config), fake_quantize_arguments(config)

    if config.kernel == "tma":
        from ..kernels.attention_tma import AttentionTma as Kernel
    else:
        from ..kernels.attention_cp_async import AttentionCpAsync as Kernel
    return Kernel(config, policy), fake_arguments(config)
