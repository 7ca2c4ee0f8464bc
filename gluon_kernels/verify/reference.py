"""Reference attentions: in float64, and in the kernels' precision as a measure of allowed errors. Needs torch.

They run on any device, and read the quantised inputs, so that only the kernel's own arithmetic is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..config import causal_offset, why_not_causal
from ..host import Tensor

# Model of how Hopper's tensor cores add up fp8 products: 32 products and the previous sum at a time, each truncated to
# WGMMA_BITS bits below the largest of them. Mean and range of the error agree with 24,576 sums of 64 to 256 products
# on an H200.
WGMMA_PRODUCTS, WGMMA_BITS = 32, 13
# Number of queries whose products with all keys are in memory at the same time.
WGMMA_QUERIES = 16
# Unnormalised probabilities lie in [0, 1]; times 2^8 they reach 256 in e4m3, whose largest number is 448.
FP8_P_SCALE = 256.0


def visible_keys(seqlen_q: int, seqlen_k: int, causal: str | None, device: Any = None) -> Tensor:
    """Count the keys that each query sees, from key 0 on: int64 [seqlen_q]. Raises ValueError for a wrong `causal`."""
    import torch

    if (reason := why_not_causal(causal)) is not None:
        raise ValueError(reason)
    if causal is None:
        return torch.full((seqlen_q,), seqlen_k, device=device)
    own = torch.arange(1, seqlen_q + 1, device=device)
    return (own + causal_offset(causal, seqlen_q, seqlen_k)).clamp(0, seqlen_k)


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    scale: float | None = None,
    dtype: Any = None,
    visible: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute attention in `dtype`, float64 by default, one head at a time; return (o, lse).

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim]; o like q; lse: [batch,
    num_heads, seqlen_q], the natural logarithm of each row's sum of exponentials. For a query that sees no key, o is 0
    and lse is -inf. `visible` [seqlen_q]: how many keys each query sees; it replaces `causal`.
    """
    if visible is None:
        visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    return _by_head(_exact, q, k, v, visible, scale, dtype)


def quantised_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    wgmma_scores: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute (o, lse) in float32, with probabilities times 2^8 rounded to q's dtype as in FlashAttention-3.

    PyTorch has no attention for fp8; this replaces it. o is rounded to bfloat16, as in the kernels. `wgmma_scores`: add
    up scores as Hopper's tensor cores do, instead of in float32.
    """
    import torch

    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    products = wgmma_products if wgmma_scores else None
    o, lse = _by_head(_rounded, q, k, v, visible, None, torch.float32, products)
    return o.to(torch.bfloat16), lse


def wgmma_products(q: Tensor, k: Tensor) -> Tensor:
    """Compute q @ k.T of fp8 [heads, queries, head_dim] and [keys, head_dim] as Hopper's tensor cores do."""
    import torch

    q, k = q.float(), k.float()
    out = torch.zeros((*q.shape[:2], k.shape[0]), dtype=torch.float32, device=q.device)
    for head in range(q.shape[0]):
        for row in range(0, q.shape[1], WGMMA_QUERIES):
            total = out[head, row : row + WGMMA_QUERIES]
            for at in range(0, q.shape[2], WGMMA_PRODUCTS):
                part = slice(at, at + WGMMA_PRODUCTS)
                products = q[head, row : row + WGMMA_QUERIES, None, part] * k[None, :, part]
                largest = torch.maximum(products.abs().amax(-1), total.abs()).clamp_min(2.0**-60)
                step = torch.exp2(torch.floor(torch.log2(largest)) - WGMMA_BITS)
                total.copy_(((products / step[..., None]).trunc_().sum(-1) + (total / step).trunc_()) * step)
    return out


def low_precision(q: Tensor, k: Tensor, v: Tensor, *, causal: str | None = None) -> Tensor:
    """Run PyTorch's attention in q's dtype, [batch, num_heads, seqlen_q, head_dim]: the measure for a kernel's errors.

    Rows that see no key are undefined. For fp8 it runs `quantised_reference`.
    """
    import torch

    if q.element_size() == 1:
        return quantised_reference(q, k, v, causal=causal)[0]
    qheads_per_kvhead = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(qheads_per_kvhead, 1) for x in (k, v))
    allowed = None if causal is None else _allowed(visible_keys(q.shape[2], k.shape[2], causal, q.device), k)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Without cuDNN, which compiles for each new shape.
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def _allowed(visible: Tensor, k: Tensor) -> Tensor:
    """Compute bool [seqlen_q, seqlen_k]: True if the query sees the key."""
    import torch

    return torch.arange(k.shape[2], device=k.device)[None] < visible[:, None]


def _by_head(
    one: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor,
    scale: float | None,
    dtype: Any,
    products: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    import torch

    dtype = dtype or torch.float64
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    qheads_per_kvhead = q.shape[1] // k.shape[1]
    hidden = None if bool((visible >= k.shape[2]).all()) else ~_allowed(visible, k)
    o = torch.empty(q.shape, dtype=dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=dtype, device=q.device)
    for b in range(q.shape[0]):
        for kv_head in range(k.shape[1]):
            heads = slice(kv_head * qheads_per_kvhead, (kv_head + 1) * qheads_per_kvhead)
            if products is None:
                scores = q[b, heads].to(dtype) @ k[b, kv_head].to(dtype).T * scale
            else:
                scores = products(q[b, heads], k[b, kv_head]) * scale
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            o[b, heads], lse[b, heads] = one(scores, v[b, kv_head])
    return o, lse


def _exact(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    import torch

    lse = torch.logsumexp(scores, -1)
    # For a row that sees no key, exp(-inf - 0) is 0; exp(-inf + inf) would be NaN.
    p = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return p @ v.to(scores.dtype), lse


def _rounded(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    import torch

    row_max = scores.amax(-1, keepdim=True)
    p = torch.exp(scores - row_max.masked_fill(row_max == -math.inf, 0.0))
    total = p.sum(-1, keepdim=True)
    rounded = (p * FP8_P_SCALE).to(v.dtype).to(scores.dtype) / FP8_P_SCALE
    o = torch.where(total == 0, 0.0, rounded @ v.to(scores.dtype) / total)
    return o, torch.logsumexp(scores, -1)
