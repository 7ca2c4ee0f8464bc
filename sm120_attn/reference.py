"""Attention written plainly in torch, for tests: in float64, and as a careful low-precision implementation would.

One function for dense and packed sequences, one row of scores at a time in memory per head. Not fast.
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
    right = 0 if causal else right
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    packed = cu_seqlens_q is not None
    heads = q.shape[-2]
    lse_shape = (heads, q.shape[0]) if packed else (q.shape[0], heads, q.shape[1])
    lse = torch.full(lse_shape, -math.inf, dtype=torch.float64, device=q.device)
    group = heads // k.shape[-2] if k.shape[-2] else 1
    for rows, keys, batch in _sequences(q, k, cu_seqlens_q, cu_seqlens_k):
        q_b, k_b, v_b = (t if packed else t[batch] for t in (q, k, v))
        visible = _visible(rows, keys, left, right, align, q.device)
        for head in range(heads):
            one = _one_head(
                q_b[rows, head], k_b[keys, head // group], v_b[keys, head // group], visible, scale, softcap,
                low_precision,
            )  # fmt: skip
            o_b, lse_b = (o, lse) if packed else (o[batch], lse[batch])
            o_b[rows, head], lse_b[head, rows] = one
    return o, lse


def _sequences(
    q: torch.Tensor, k: torch.Tensor, cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None
) -> list[tuple[slice, slice, int]]:
    """Rows and keys of each sequence."""
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return [(slice(0, q.shape[1]), slice(0, k.shape[1]), batch) for batch in range(q.shape[0])]
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    return [
        (slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1]), i) for i in range(len(starts_q) - 1)
    ]


def _visible(
    rows: slice, keys: slice, left: int | None, right: int | None, align: str, device: torch.device
) -> torch.Tensor:
    """[rows, keys] of bool: which key each query sees."""
    n_rows, n_keys = rows.stop - rows.start, keys.stop - keys.start
    offset = n_keys - n_rows if align == "bottom-right" else 0
    distance = torch.arange(n_keys, device=device)[None, :] - torch.arange(n_rows, device=device)[:, None] - offset
    visible = torch.ones(n_rows, n_keys, dtype=torch.bool, device=device)
    if left is not None:
        visible &= distance >= -left
    if right is not None:
        visible &= distance <= right
    return visible


def _one_head(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    softcap: float,
    low_precision: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    work = torch.float32 if low_precision else torch.float64
    scores = scale * (q.to(work) @ k.to(work).T)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible, -math.inf)
    lse = torch.logsumexp(scores, dim=-1) if k.shape[0] else scores.new_full((q.shape[0],), -math.inf)
    peak = scores.amax(dim=-1, keepdim=True) if k.shape[0] else lse[:, None]
    peak = torch.where(torch.isinf(peak), torch.zeros_like(peak), peak)
    p = torch.exp(scores - peak)
    total = p.sum(dim=-1, keepdim=True)
    if low_precision:
        p = p.to(q.dtype).to(work)
    o = (p @ v.to(work)) / torch.where(total == 0, torch.ones_like(total), total)
    if low_precision:
        o = o.to(q.dtype)
    return o.double(), lse.double()
