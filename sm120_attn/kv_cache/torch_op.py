"""The torch operator of attention over a cache, `torch.ops.sm120_attn.with_kv_cache`. See ../torch_op.py."""

from typing import Any

import torch

from ..launch.call import check_types
from ..launch.hot_path import Result
from ..launch.operators import define_operator, fake_result, given_lse
from .call import CacheTensors
from .launch import launch


def traced(tensors: tuple[Any, ...], asked: tuple[Any, ...]) -> Result:
    """Make a call through the operator. LSE is empty if it was not asked for."""
    check_types(CacheTensors(*tensors))
    visible, *others = asked
    o, lse = torch.ops.sm120_attn.with_kv_cache(*tensors, *visible, *others)
    return o, lse


def _with_kv_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    sinks: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    causal: bool,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    return_lse: bool,
    max_seqlen_q: int,
    num_splits: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    visible = (causal, window_left, window_right)
    made = launch(
        (q, k_cache, v_cache, cache_seqlens, block_table, cu_seqlens_q, sinks, k_descale, v_descale),
        (visible, scale, softcap, return_lse, max_seqlen_q, num_splits),
    )
    return given_lse(q, made)


define_operator("with_kv_cache", _with_kv_cache, fake_result, "attention_with_kv_cache")
