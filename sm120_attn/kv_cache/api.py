"""The public function `attention_with_kv_cache`. A plain call launches directly; traced calls use torch_op.py."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..launch.call import check_types
from ..launch.hot_path import is_plain
from ..mask_bounds import Bounds, bounds
from .append import launch as append
from .append.call import NewTensors, check_new_values
from .call import CacheCall, CacheTensors, check_values
from .launch import launch
from .torch_op import traced, traced_append


def attention_with_kv_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    k_new: torch.Tensor | None = None,
    v_new: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    k_mean: torch.Tensor | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    k_scales: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
    return_lse: bool = False,
    num_splits: int | None = None,
    check: bool = False,
) -> Any:
    """Compute softmax(scale * Q K^T + mask) V over keys and values in a cache; first append new keys and values.

    q                  [batch, seqlen_q, heads, head_dim], on an sm_12x (or sm_90) device; bfloat16 or float16
    k_cache, v_cache   a contiguous cache, [batch, capacity, heads_kv, head_dim]; or with block_table pages, [pages,
                       page_size, heads_kv, head_dim], with page_size 16, 32, 64, 128 or 256. Rows are contiguous; all
                       other strides are multiples of 16 bytes, so `kv[:, 0]` and `kv[:, 1]` of an interleaved cache are
                       supported. The dtype is q's, or float8_e4m3fn (head_dim a multiple of 16), which is converted in
                       registers. With k_scales and v_scales, float8_e4m3fn means MXFP8 (head_dim a multiple of 128),
                       and float4_e2m1fn_x2 or uint8 means NVFP4 (head_dim a multiple of 64): two columns in a byte, the
                       first column in its lower half
    cache_seqlens      int32 [batch], number of keys of each sequence, read on the device: a captured CUDA graph uses
                       new lengths at each replay. Cache rows after these keys are never used, even if they hold NaN
    block_table        int32 [batch, most pages]: the pages of each sequence. Entries after its length are not read
    cu_seqlens_q       packed queries: q is [total_q, heads, head_dim], and sequence b has rows cu_seqlens_q[b] to
                       cu_seqlens_q[b + 1]; needs max_seqlen_q, the largest number of queries of a sequence
    k_new, v_new       [batch, seqlen_new, heads_kv, head_dim], or with packed queries [total_q, heads_kv, head_dim],
                       one row for each row of q; of q's dtype. They are written into the cache after the cache_seqlens
                       keys of each sequence, and the queries see them. cache_seqlens is not changed. An FP8 cache gets
                       value / descale, rounded, at most 448. If there are more new keys than an empty cache has room
                       for, the call raises ValueError. New keys that do not fit after the present keys are not written;
                       only check=True raises an error for them
    rotary_cos, _sin   [positions, rotary columns / 2], contiguous; float32 or q's dtype. The first columns of k_new and
                       of q, a multiple of 16, are rotated. New key i of a sequence uses row cache_seqlens + i of the
                       tables. Query i uses the same row, or without causal and window always row cache_seqlens.
                       Positions after the end of the tables use the last row
    rotary_interleaved rotate columns 2i and 2i + 1 together; False: columns i and i + half of the rotary columns
    k_mean             float32 [batch, heads_kv, head_dim], subtracted from new keys before they are written to a cache
                       of 8 or 4 bits. This does not change the softmax, and reduces rounding errors. It must be the
                       same for all keys of a sequence. Not with softcap, sinks or return_lse
    causal, window     causal: query i sees key j if j <= i + offset, where offset = length - seqlen_q: the last query
                       sees the last key. window is (left, right): query i sees key j only if
                       i + offset - left <= j <= i + offset + right
    scale, softcap     as in `attention`
    sinks              float32 [heads]: for each query head a logit that is added to the softmax's denominator, like a
                       key without a value. It is included in the LSE
    k_descale, ...     for an FP8 or FP4 cache: the factors by which its values are multiplied. float32 tensors on the
                       device, greater than 0, with one number or [batch, heads_kv] numbers; None is 1
    k_scales, v_scales block scales of NVFP4 and MXFP8: the shape of the cache, with one scale for each 16 columns
                       (MXFP8: 32). float8_e4m3fn (MXFP8: float8_e8m0fnu) or uint8. The scales of a row are contiguous;
                       other strides and addresses are multiples of gcd(scales of a row, 16) bytes. Pages of FlashInfer
                       (NHD or HND, linear scales) and of vLLM, whose scales follow the values of a page, can be passed
                       as views
    return_lse         also return the natural log-sum-exp of each row: float32, [batch, heads, seqlen_q], or
                       [heads, total_q] for packed queries
    num_splits         CTAs over which the keys of a sequence are split; None: planned from the shapes
    check              also check that lengths, new keys and pages are inside of the cache; waits for the device

    The same inputs give the same bits. Returns the output, contiguous, with q's shape and dtype; with return_lse it
    returns (output, lse). If a query sees no key, its output is 0 and its LSE is -inf, or with sinks the head's sink.

    Raises TypeError or ValueError for arguments that are not supported. Backward raises NotImplementedError; with new
    keys torch raises RuntimeError.
    """
    tensors = (
        q, k_cache, v_cache, cache_seqlens, block_table, cu_seqlens_q, sinks, k_descale, v_descale, k_scales, v_scales,
    )  # fmt: skip
    if not isinstance(q, torch.Tensor):
        check_types(CacheTensors(*tensors))
    if cu_seqlens_q is None:
        max_seqlen_q = q.shape[1] if q.dim() == 4 else 0
    elif max_seqlen_q is None:
        raise ValueError("max_seqlen_q is needed with cu_seqlens_q: the host would wait for the GPU to compute it")
    visible: Any = (causal, -1, -1) if window is None else tuple(bounds(causal, window))
    if scale is None:
        scale = 1 / math.sqrt(max(q.shape[-1], 1))
    asked = (visible, scale, softcap, return_lse, max_seqlen_q, num_splits)
    if k_new is not None and v_new is not None:
        new = (k_new, v_new, rotary_cos, rotary_sin, k_mean)
        if check:
            check_new_values(CacheTensors(*tensors), NewTensors(*new), CacheCall(Bounds(*visible), *asked[1:]))
        run = append.launch if is_plain(q, k_cache, v_cache, k_new, v_new) else traced_append
        o, lse = run(tensors, new, asked, rotary_interleaved)
    else:
        for name, tensor in (
            ("k_new", k_new),
            ("v_new", v_new),
            ("rotary_cos", rotary_cos),
            ("rotary_sin", rotary_sin),
            ("k_mean", k_mean),
        ):
            if tensor is not None:
                other = "v_new" if name == "k_new" else "k_new"
                raise ValueError(f"{name} is given without {other}: k_new and v_new are both needed")
        if check:
            check_values(CacheTensors(*tensors), CacheCall(Bounds(*visible), *asked[1:]))
        o, lse = launch(tensors, asked) if is_plain(q, k_cache, v_cache) else traced(tensors, asked)
    return (o, lse) if return_lse else o
