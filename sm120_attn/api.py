"""The public function `attention`. A plain call launches directly; traced calls go through torch_op.py."""

from __future__ import annotations

from typing import Any

import torch

from .launch.call import AttentionOptions, Tensors, check_types, make_call
from .launch.hot_path import facts_of, is_plain
from .launch.prepare import prepare, prepared_calls
from .quantization.api import quantize_qkv
from .torch_op import traced


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    align: str = "bottom-right",
    scale: float | None = None,
    softcap: float = 0.0,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    return_lse: bool = False,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    quantize: torch.dtype | None = None,
    sinks: torch.Tensor | None = None,
) -> Any:
    """Compute softmax(scale * Q K^T + mask) V, forward only.

    q                  [batch, seqlen_q, heads, head_dim], on an sm_12x (or sm_90) device; bfloat16, float16,
                       float8_e4m3fn or float8_e5m2
    k, v               [batch, seqlen_k, heads_kv, head_dim]; heads is a multiple of heads_kv (GQA, MQA)
    causal             query i sees key j if j <= i + offset
    window             (left, right): query i sees key j only if i + offset - left <= j <= i + offset + right; None or
                       -1: no limit on that side
    align              the offset in `causal` and `window`: seqlen_k - seqlen_q for "bottom-right" (the last query sees
                       the last key), 0 for "top-left"
    scale              factor of the scores before softmax; None is 1 / sqrt(head_dim)
    softcap            scores become softcap * tanh(scaled score / softcap); 0 is no softcap
    cu_seqlens_q, _k   packed sequences of different length: q is [total_q, heads, head_dim], k and v are
                       [total_k, heads_kv, head_dim], and sequence b is rows cu_seqlens_q[b] to cu_seqlens_q[b + 1].
                       int32, [batch + 1], from 0, non-decreasing. The values are not checked: the host would have to
                       wait for the GPU
    max_seqlen_q, _k   length of the longest sequence; needed with cu_seqlens
    return_lse         also return the natural log-sum-exp of each row: float32, [batch, heads, seqlen_q], or
                       [heads, total_q] for packed sequences
    q_descale, ...     for FP8 inputs: the factors by which the values of q, k and v are multiplied. float32 tensors on
                       the device, greater than 0, with one number or [batch, heads] numbers (for k and v: heads_kv);
                       None is 1
    out_dtype          for FP8 inputs: dtype of the output: bfloat16 (also for None), float16 or float32
    quantize           float8_e4m3fn or float8_e5m2: first quantise q, k and v to it, with a scale per head
                       (`quantize_qkv`). They must be bfloat16, float16 or float32; the output has q's dtype, or
                       out_dtype
    sinks              float32 [heads]: for each query head a logit that is added to the softmax's denominator, like a
                       key without a value. It is included in the LSE

    All strides are allowed; tensors whose rows do not start at multiples of 16 bytes are copied first. Returns the
    output, contiguous, with q's shape and dtype (for FP8 inputs: out_dtype); with return_lse it returns (output, lse).
    If a query sees no key, its output is 0 and its LSE is -inf, or with sinks the head's sink.

    Raises TypeError or ValueError for arguments that are not supported. Backward raises NotImplementedError.
    """
    if isinstance(window, list):
        window = tuple(window)  # the window becomes part of a dictionary key, so it must be hashable
    if quantize is not None:
        if not q_descale is k_descale is v_descale is None:
            raise TypeError(
                "quantize computes the descales: q_descale, k_descale and v_descale must be None; or pass FP8 tensors "
                "without quantize"
            )
        out_dtype = q.dtype if out_dtype is None else out_dtype
        (q, k, v), (q_descale, k_descale, v_descale) = quantize_qkv(
            q, k, v, quantize, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
        )  # fmt: skip
    # Plain tuples in the order of Tensors and AttentionOptions: building the NamedTuples would slow down every call.
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, q_descale, k_descale, v_descale, sinks)
    asked = (causal, window, align, scale, softcap, max_seqlen_q, max_seqlen_k, return_lse, out_dtype)
    if is_plain(q, k, v):
        try:
            facts = facts_of(tensors, asked)
        except AttributeError:
            check_types(Tensors(*tensors))
            raise
        found = prepared_calls.get(facts)
        if found is None:
            found = prepare(facts, Tensors(*tensors), make_call(Tensors(*tensors), AttentionOptions(*asked)))
        o, lse = found.run(tensors)
    else:
        o, lse = traced(Tensors(*tensors), make_call(Tensors(*tensors), AttentionOptions(*asked)))
    return (o, lse) if return_lse else o
