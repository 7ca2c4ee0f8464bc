"""`attention`, and the torch operator behind it: `torch.ops.sm120_attn.forward`.

A plain call goes straight to `launch`. Under torch.compile, fake tensors, dispatch modes, or where a gradient might be
asked for, it goes through the operator, which has a fake implementation (so that it is traced as one node, with
dynamic sizes) and an autograd formula that says that there is none.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .launch import prepare as launch
from .launch.prepare import NO_DESCALES
from .mask_bounds import Bounds, bounds
from .quantization import api as quantization

_LIBRARY = torch.library.Library("sm120_attn", "DEF")
_LIBRARY.define(
    "forward(Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, bool causal, str align, SymInt window_left, SymInt window_right, float scale, "
    "float softcap, bool return_lse, Tensor? q_descale=None, Tensor? k_descale=None, Tensor? v_descale=None, "
    "ScalarType? out_dtype=None) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)


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
) -> Any:
    """softmax(scale * Q K^T + mask) V, forward only.

    q                  [batch, rows, heads, head_dim], on an sm_12x (or sm_90) device; bfloat16, float16,
                       float8_e4m3fn or float8_e5m2
    k, v               [batch, keys, heads_kv, head_dim]; heads is a multiple of heads_kv (GQA, MQA)
    causal             query i sees key j if j <= i + offset
    window             (left, right): and i + offset - left <= j <= i + offset + right; None or -1: no limit there
    align              the offset: "bottom-right" is keys - rows (the last query sees the last key), "top-left" is 0
    scale              of the scores before softmax; 1 / sqrt(head_dim) if None
    softcap            scores become softcap * tanh(scaled score / softcap); 0: they do not
    cu_seqlens_q, _k   packed sequences of different length: q is [total rows, heads, head_dim], k and v
                       [total keys, heads_kv, head_dim], and sequence b is rows cu_seqlens_q[b] to cu_seqlens_q[b + 1]
                       (int32, [batch + 1], from 0, non-decreasing; not looked at, that would wait for the GPU)
    max_seqlen_q, _k   of the longest sequence; needed with cu_seqlens
    return_lse         also return the natural log-sum-exp of each row, float32, [batch, heads, rows], packed
                       [heads, total rows]
    q_descale, ...     of FP8 inputs: what q, k and v are to be multiplied with, float32 on the device, greater than 0,
                       one number or [batch, heads] (of k and v: heads_kv); None is 1
    out_dtype          of FP8 inputs: bfloat16 (None), float16 or float32
    quantize           float8_e4m3fn or float8_e5m2: q, k and v, here bfloat16, float16 or float32, are brought to it
                       first, with a scale per head (`quantize_qkv`); the output is in q's dtype, or out_dtype

    Any strides will do; tensors whose rows do not start at multiples of 16 bytes are copied first. Returns the output,
    contiguous, in q's shape and dtype (FP8: out_dtype); with return_lse (output, lse). A row that sees no key has
    output 0 and LSE -inf.

    Raises TypeError or ValueError for what is not supported. Backward raises NotImplementedError.
    """
    if isinstance(window, list):
        window = tuple(window)  # a list would not do as a part of the facts
    descales = NO_DESCALES if q_descale is k_descale is v_descale is None else (q_descale, k_descale, v_descale)
    if quantize is not None:
        if descales is not NO_DESCALES:
            raise TypeError("quantize makes the descales; without it, give FP8 tensors and theirs")
        out_dtype = q.dtype if out_dtype is None else out_dtype
        (q, k, v), descales = quantization.quantize_qkv(
            q, k, v, quantize, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
        )  # fmt: skip
    asked = (causal, window, align, scale, softcap, max_seqlen_q, max_seqlen_k, return_lse, out_dtype)
    if launch.is_plain(q, k, v):
        facts = launch.facts_of(q, k, v, cu_seqlens_q, cu_seqlens_k, descales, asked)
        found = launch.prepared.get(facts)
        if found is None:
            tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k)
            found = launch.prepare(facts, *tensors, _call(*tensors, *asked), descales)
        o, lse = found.run(q, k, v, cu_seqlens_q, cu_seqlens_k, descales)
    else:
        tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k)
        call = _call(*tensors, *asked)
        o, lse = torch.ops.sm120_attn.forward(
            *tensors, call.max_q, call.max_k, call.visible.causal, align, call.visible.left, call.visible.right,
            call.scale, softcap, return_lse, *descales, out_dtype,
        )  # fmt: skip
    return (o, lse) if return_lse else o


def _call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    causal: bool,
    window: tuple[int | None, int | None] | None,
    align: str,
    scale: float | None,
    softcap: float,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    return_lse: bool,
    out_dtype: torch.dtype | None,
) -> launch.Call:
    """What was asked for, in the words of `launch`. Raises TypeError or ValueError for what it could not say."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is of type {type(tensor).__name__}: must be a torch.Tensor")
    if q.dim() == 0 or q.shape[-1] == 0:
        raise ValueError(f"q is {list(q.shape)}: its last dimension is head_dim, and cannot be missing or empty")
    varlen = cu_seqlens_q is not None or cu_seqlens_k is not None
    if varlen and (max_seqlen_q is None or max_seqlen_k is None):
        raise ValueError(
            "max_seqlen_q and max_seqlen_k are needed with cu_seqlens: reading them from there would wait for the GPU"
        )
    if not varlen and (q.dim() != 4 or k.dim() != 4):
        raise ValueError(
            f"q has {q.dim()} and k {k.dim()} dimensions: must be [batch, sequence, heads, head_dim], or packed, "
            "[total, heads, head_dim], with cu_seqlens_q and cu_seqlens_k"
        )
    return launch.Call(
        visible=bounds(causal, window),
        align=align,
        scale=1 / math.sqrt(q.shape[-1]) if scale is None else scale,
        softcap=softcap,
        lse=return_lse,
        max_q=max_seqlen_q if varlen else q.shape[1],
        max_k=max_seqlen_k if varlen else k.shape[1],
        out=out_dtype,
    )


def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    align: str,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    return_lse: bool,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    visible = Bounds(causal, window_left, window_right)
    call = launch.Call(visible, align, scale, softcap, return_lse, max_seqlen_q, max_seqlen_k, out=out_dtype)
    descales = NO_DESCALES if q_descale is k_descale is v_descale is None else (q_descale, k_descale, v_descale)
    o, lse = launch.forward(q, k, v, cu_seqlens_q, cu_seqlens_k, call, descales)
    return o, lse if lse is not None else torch.empty(0, dtype=torch.float32, device=q.device)


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    align: str,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    return_lse: bool,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes only; the checks are those of the launch, when it comes."""
    if not return_lse:
        lse_shape: tuple[Any, ...] = (0,)
    elif cu_seqlens_q is None:
        lse_shape = (q.shape[0], q.shape[2], q.shape[1])
    else:
        lse_shape = (q.shape[1], q.shape[0])
    return q.new_empty(q.shape, dtype=launch.output_dtype(q, out_dtype)), q.new_empty(lse_shape, dtype=torch.float32)


def _backward(context: Any, *gradients: Any) -> Any:
    raise NotImplementedError(
        "sm120_attn.attention is forward only; call it under torch.no_grad(), or with q.detach() and the like"
    )


_LIBRARY.impl("forward", _forward, "CUDA")
torch.library.register_fake("sm120_attn::forward", _fake, lib=_LIBRARY)
torch.library.register_autograd("sm120_attn::forward", _backward, lib=_LIBRARY)
