"""The torch operators over a cache: `with_kv_cache`, and for calls that append `append_and_attend`."""

from typing import Any

import torch

from ..launch.call import check_types
from ..launch.hot_path import Result
from ..launch.operators import define_operator, fake_result, given_lse
from .append import launch as append
from .append.call import NewTensors
from .call import CacheTensors
from .launch import launch


def traced(tensors: tuple[Any, ...], asked: tuple[Any, ...]) -> Result:
    """Make a call through the torch operator. LSE is an empty tensor unless return_lse."""
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
    k_scales: torch.Tensor | None,
    v_scales: torch.Tensor | None,
    causal: bool,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    return_lse: bool,
    max_seqlen_q: int,
    num_splits: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    cache, rest = (k_cache, v_cache, cache_seqlens, block_table), (cu_seqlens_q, sinks)
    scales = k_descale, v_descale, k_scales, v_scales
    asked = (causal, window_left, window_right), scale, softcap, return_lse, max_seqlen_q, num_splits
    return given_lse(q, launch((q, *cache, *rest, *scales), asked))


define_operator("with_kv_cache", _with_kv_cache, fake_result, "attention_with_kv_cache")


def traced_append(tensors: tuple[Any, ...], new: tuple[Any, ...], asked: tuple[Any, ...], interleaved: bool) -> Result:
    """Make an appending call through the torch operator. LSE is an empty tensor unless return_lse."""
    check_types(CacheTensors(*tensors))
    check_types(NewTensors(*new))
    visible, *others = asked
    o, lse = torch.ops.sm120_attn.append_and_attend(*tensors, *new, *visible, *others, interleaved)
    return o, lse


def _append_and_attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    sinks: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    k_scales: torch.Tensor | None,
    v_scales: torch.Tensor | None,
    k_new: torch.Tensor,
    v_new: torch.Tensor,
    rotary_cos: torch.Tensor | None,
    rotary_sin: torch.Tensor | None,
    k_mean: torch.Tensor | None,
    causal: bool,
    window_left: int,
    window_right: int,
    scale: float,
    softcap: float,
    return_lse: bool,
    max_seqlen_q: int,
    num_splits: int | None,
    rotary_interleaved: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    cache, rest = (k_cache, v_cache, cache_seqlens, block_table), (cu_seqlens_q, sinks)
    scales, new = (k_descale, v_descale, k_scales, v_scales), (k_new, v_new, rotary_cos, rotary_sin, k_mean)
    asked = (causal, window_left, window_right), scale, softcap, return_lse, max_seqlen_q, num_splits
    return given_lse(q, append.launch((q, *cache, *rest, *scales), new, asked, rotary_interleaved))


define_operator(
    "append_and_attend", _append_and_attend, fake_result, mutated=("k_cache", "v_cache", "k_scales", "v_scales")
)
