"""Attention written plainly in torch, for tests: in float64, and as a careful low-precision implementation would.

For FP8 the latter is a replay of the kernel: the tiles of keys from right to left, a running maximum per row that is
followed by all rows of a warp together, and probabilities rounded to FP8 with the scale that they have then.

All scores of a sequence are in memory at once.
"""

from __future__ import annotations

import math

import torch

from .config import BIAS_AND_LAZY_BITS, Config, choices_of

FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
WARP_ROWS = 16  # of the planned FP8 kernels
LOG2_E = math.log2(math.e)


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
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of the same arguments as `attention`, both float64.

    low_precision: scores and sums in float32, probabilities rounded to q's dtype before they meet V, and the output
    rounded to it: what a correct 16-bit implementation has to lose. It is the yardstick of the tests.
    """
    replayed = None
    if q.dtype in FP8_DTYPES:
        replayed = (q.dtype, out_dtype or torch.bfloat16) if low_precision else None
        low_precision = False
        q = dequantised(q, q_descale, cu_seqlens_q)
        k, v = (dequantised(t, d, cu_seqlens_k) for t, d in ((k, k_descale), (v, v_descale)))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    left, right = (None, None) if window is None else window
    left, right = (None if keys is None or keys < 0 else keys for keys in (left, right))
    options = (left, 0 if causal else right, align, scale, softcap, low_precision, replayed)
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
    replayed: tuple[torch.dtype, torch.dtype] | None = None,
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
    if replayed:
        o, lse = replay_fp8(scores, v_w, (left, right, align), q.shape[-1], *replayed)
        return o.transpose(1, 2), lse
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


# --- FP8 ---------------------------------------------------------------------------------------------------------


def dequantised(tensor: torch.Tensor, descale: torch.Tensor | None, cu_seqlens: torch.Tensor | None) -> torch.Tensor:
    """What FP8 values stand for, in float64. descale: one number or [batch, heads]; None is 1."""
    values = tensor.double()
    if descale is None:
        return values
    if descale.numel() == 1:
        return values * descale.double().reshape(())
    factors = descale.double()
    if cu_seqlens is None:
        return values * factors[:, None, :, None]
    return values * factors.repeat_interleave(cu_seqlens.diff().long(), dim=0)[..., None]


def replay_fp8(
    scores: torch.Tensor,
    values: torch.Tensor,
    mask: tuple[int | None, int | None, str],
    head_dim: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [batch, heads, rows, head_dim] and LSE as the planned kernel makes them, but for float32's rounding.

    scores: unmasked, [batch, heads, rows, keys]. The rows that fill up a sequence's last warp have zeros for queries,
    as TMA makes them; in packed sequences they are other rows, so that there the replay is not to the bit.
    """
    fp8 = "e4m3" if dtype == torch.float8_e4m3fn else "e5m2"
    bias, lazy = BIAS_AND_LAZY_BITS[fp8]
    tile = dict(choices_of(fp8, head_dim)[0].fields).get("tile_n", Config().tile_n)
    rows, keys = scores.shape[-2:]
    warps, tiles = -(-rows // WARP_ROWS), -(-keys // tile)
    filled = torch.nn.functional.pad(scores, (0, tiles * tile - keys, 0, warps * WARP_ROWS - rows))
    values = torch.nn.functional.pad(values, (0, 0, 0, tiles * tile - keys))
    seen = _visible(warps * WARP_ROWS, tiles * tile, *mask, scores.device, (rows, keys))
    seen[:, keys:] = False
    # Of a warp's tiles, only those that one of its real rows needs are visited.
    needed = torch.zeros(warps, WARP_ROWS, tiles * tile, dtype=torch.bool, device=scores.device)
    needed.view(-1, tiles * tile)[:rows] = seen[:rows]
    visited = needed.view(warps, WARP_ROWS, tiles, tile).any(-1).any(1)  # [warps, tiles]
    seen &= visited.repeat_interleave(WARP_ROWS, 0).repeat_interleave(tile, 1)
    bits = (filled * LOG2_E).masked_fill(~seen, -math.inf)
    bits = bits.view(*bits.shape[:2], warps, WARP_ROWS, tiles, tile)
    maximum = torch.full(bits.shape[:4], -1e30, dtype=torch.float64, device=bits.device)
    total, output = torch.zeros_like(maximum), torch.zeros(*maximum.shape, head_dim, dtype=torch.float64).to(bits)
    for number in reversed(range(tiles)):
        part = bits[..., number, :]
        grown = ((part.amax(-1) - maximum) > lazy + bias).any(-1, keepdim=True)
        larger = torch.where(grown, torch.maximum(maximum, part.amax(-1) - bias), maximum)
        factor = torch.exp2(maximum - larger)
        maximum, total, output = larger, total * factor, output * factor[..., None]
        p = torch.exp2(part - maximum[..., None])
        total = total + p.sum(-1)
        v = values[:, :, None, number * tile : (number + 1) * tile]
        output = output + p.to(dtype).double() @ v
    o = output / torch.where(total == 0, torch.ones_like(total), total)[..., None]
    lse = (maximum + torch.log2(total)) / LOG2_E
    o, lse = (t.reshape(*t.shape[:2], warps * WARP_ROWS, *t.shape[4:])[:, :, :rows] for t in (o, lse))
    return o.to(out_dtype).double(), lse


def _visible(
    rows: int,
    keys: int,
    left: int | None,
    right: int | None,
    align: str,
    device: torch.device,
    lengths: tuple[int, int] | None = None,
) -> torch.Tensor:
    """[rows, keys] of bool: which key each query sees. lengths: of the sequence, where there are more rows or keys."""
    real_rows, real_keys = lengths or (rows, keys)
    offset = real_keys - real_rows if align == "bottom-right" else 0
    distance = torch.arange(keys, device=device)[None, :] - torch.arange(rows, device=device)[:, None] - offset
    visible = torch.ones(rows, keys, dtype=torch.bool, device=device)
    if left is not None:
        visible &= distance >= -left
    if right is not None:
        visible &= distance <= right
    return visible
