"""Attention written plainly in torch, for tests: in float64, and as a careful low-precision implementation would.

All scores of a sequence are in memory at once.
"""

from __future__ import annotations

import math

import torch


def attention_reference(
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
    return_lse: bool = True,
    low_precision: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of the same arguments as `attention`, both float64.

    low_precision: scores and sums in float32, probabilities rounded to q's dtype before they meet V, and the output
    rounded to it: what a correct 16-bit implementation has to lose. It is the yardstick of the tests.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    left, right = (None, None) if window is None else window
    left, right = (None if keys is None or keys < 0 else keys for keys in (left, right))
    options = (left, 0 if causal else right, align, scale, softcap, low_precision)
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return _dense(q, k, v, *options)
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float64, device=q.device)
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(starts_q) - 1):
        rows, keys = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        o_i, lse_i = _dense(q[None, rows], k[None, keys], v[None, keys], *options)
        o[rows], lse[:, rows] = o_i[0], lse_i[0]
    return o, lse


def _dense(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    left: int | None,
    right: int | None,
    align: str,
    scale: float,
    softcap: float,
    low_precision: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """All rows, keys and heads at once: [batch, heads, rows, keys] numbers in memory."""
    work = torch.float32 if low_precision else torch.float64
    group = q.shape[2] // max(k.shape[2], 1)
    q_w, k_w, v_w = (t.transpose(1, 2).to(work) for t in (q, k, v))
    k_w, v_w = (t.repeat_interleave(group, dim=1) for t in (k_w, v_w))
    if 0 in (q.shape[1], k.shape[1]):
        lse = torch.full(q_w.shape[:-1], -math.inf, dtype=torch.float64, device=q.device)
        return torch.zeros(q.shape, dtype=torch.float64, device=q.device), lse
    scores = scale * (q_w @ k_w.transpose(-1, -2))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~_visible(q.shape[1], k.shape[1], left, right, align, q.device), -math.inf)
    peak = scores.amax(dim=-1, keepdim=True)
    peak = torch.where(torch.isinf(peak), torch.zeros_like(peak), peak)
    p = torch.exp(scores - peak)
    total = p.sum(dim=-1, keepdim=True)
    lse = (peak + torch.log(total))[..., 0]
    if low_precision:
        p = p.to(q.dtype).to(work)
    o = (p @ v_w) / torch.where(total == 0, torch.ones_like(total), total)
    if low_precision:
        o = o.to(q.dtype)
    return o.double().transpose(1, 2), lse.double()


def _visible(
    rows: int, keys: int, left: int | None, right: int | None, align: str, device: torch.device
) -> torch.Tensor:
    """[rows, keys] of bool: which key each query sees."""
    offset = keys - rows if align == "bottom-right" else 0
    distance = torch.arange(keys, device=device)[None, :] - torch.arange(rows, device=device)[:, None] - offset
    visible = torch.ones(rows, keys, dtype=torch.bool, device=device)
    if left is not None:
        visible &= distance >= -left
    if right is not None:
        visible &= distance <= right
    return visible
