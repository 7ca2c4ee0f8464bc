"""The torch operator of attention, `torch.ops.sm120_attn.forward`.

Calls use the operator under torch.compile, with fake tensors or dispatch modes, and if an input requires a gradient.
torch traces it as one node with dynamic sizes; its backward raises an error. Other calls launch directly: see api.py.
torch derives the operator's schema from the annotations of `_forward`.
"""

import torch

from .launch.call import Call, Tensors
from .launch.hot_path import facts_of
from .launch.operators import define_operator, fake_result, given_lse
from .launch.prepare import prepare, prepared_calls
from .mask_bounds import Bounds


def traced(tensors: Tensors, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a call through the torch operator. LSE is an empty tensor unless call.lse."""
    q, k, v, cu_seqlens_q, cu_seqlens_k = tensors[:5]
    causal, window_left, window_right = call.visible
    o, lse = torch.ops.sm120_attn.forward(
        q, k, v, cu_seqlens_q, cu_seqlens_k, call.max_seqlen_q, call.max_seqlen_k, causal, call.align, window_left,
        window_right, call.scale, call.softcap, call.lse, *tensors.descales, call.out_dtype, tensors.sinks,
    )  # fmt: skip
    return o, lse


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
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    # Plain tuples, as in `attention`: making a Call would slow down every call.
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, q_descale, k_descale, v_descale, sinks)
    visible = (causal, window_left, window_right)
    asked = (visible, align, scale, softcap, return_lse, max_seqlen_q, max_seqlen_k, out_dtype)
    facts = facts_of(tensors, asked)
    found = prepared_calls.get(facts)
    if found is None:
        call = Call(Bounds(*visible), *asked[1:-1], out_dtype=out_dtype)
        found = prepare(facts, Tensors(*tensors), call)
    return given_lse(q, found.run(tensors))


define_operator("forward", _forward, fake_result, "attention")
