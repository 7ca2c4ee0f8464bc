"""The torch operators of quantisation, `torch.ops.sm120_attn.quantize` and `quantize_qkv`.

Calls use them in the same cases as the operator of attention (../torch_op.py). torch derives their schemas from the
annotations of `launch_one` and `launch_three`.
"""

from typing import Any

import torch

from ..launch.operators import define_operator
from .launch import QuantizeCall, new_output, run


def launch_one(
    x: torch.Tensor, dtype: torch.dtype, cu_seqlens: torch.Tensor | None, max_seqlen: int
) -> tuple[torch.Tensor, torch.Tensor]:
    ys, descales = run((x,), () if cu_seqlens is None else (cu_seqlens,), QuantizeCall(dtype, (max_seqlen,)))
    return ys[0], descales[0]


def launch_three(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    starts = () if cu_seqlens_q is None or cu_seqlens_k is None else (cu_seqlens_q, cu_seqlens_k)
    (q8, k8, v8), (q_descale, k_descale, v_descale) = run(
        (q, k, v), starts, QuantizeCall(dtype, (max_seqlen_q, max_seqlen_k, max_seqlen_k))
    )
    return q8, k8, v8, q_descale, k_descale, v_descale


def _fake_one(*, x: torch.Tensor, dtype: torch.dtype, cu_seqlens: torch.Tensor | None, **others: Any) -> Any:
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return new_output(x, dtype), x.new_empty((batch, x.shape[-2]), dtype=torch.float32)


def _fake_three(*, dtype: torch.dtype, cu_seqlens_q: Any, cu_seqlens_k: Any, **qkv: Any) -> Any:
    starts = {"q": cu_seqlens_q, "k": cu_seqlens_k, "v": cu_seqlens_k}
    pairs = [_fake_one(x=qkv[name], dtype=dtype, cu_seqlens=given) for name, given in starts.items()]
    return (*(y for y, _ in pairs), *(descale for _, descale in pairs))


define_operator("quantize", launch_one, _fake_one, "quantize")
define_operator("quantize_qkv", launch_three, _fake_three, "quantize_qkv")
