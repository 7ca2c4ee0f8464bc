"""Attention in plain torch, for tests: in float64, and as a careful low-precision implementation computes it.

For FP8 the low-precision result is a replay of the kernel. It visits the tiles of keys from the last to the first, with
a running maximum per row; all rows of a warp update their maxima together. It rounds probabilities to FP8 relative to
the maximum at that time. With split_keys two warps do this, each with every other tile, and join their sums.

All scores of a sequence are in memory at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from ..config import BIAS_AND_LAZY_BITS, Config
from ..planner import choices_of

FP8_DTYPES = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Replay:
    """The kernel whose rounding is replayed, and the dtypes of its P and O."""

    config: Config
    dtype: torch.dtype
    out_dtype: torch.dtype

    @classmethod
    def of(cls, q: torch.Tensor, out_dtype: torch.dtype | None, config: Config | None) -> Replay:
        """Make the Replay for inputs like q. config: None means the first choice of `plan`, for long sequences."""
        fp8 = FP8_DTYPES[q.dtype]
        fields = dict(choices_of(fp8, q.shape[-1])[0].fields)
        return cls(
            config or replace(Config(dtype=fp8, out_dtype="bf16"), **fields), q.dtype, out_dtype or torch.bfloat16
        )

    def whole_warps(self, rows: int) -> int:
        """Round a number of rows up to a multiple of the rows of a warp."""
        return -(-rows // self.config.rows_per_warp) * self.config.rows_per_warp


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
    config: Config | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute output and LSE for the same arguments as `attention`, both in float64.

    sinks: [heads], for each query head a logit that is added to the softmax's denominator.
    low_precision: compute scores and sums in float32, and round probabilities (before the product with V) and output to
    q's dtype. A correct 16-bit implementation cannot avoid the error of this result; tests compare errors with it.
    config: for FP8 inputs, the kernel that low_precision replays; None: the kernel for long sequences.
    """
    fp8 = q.dtype in FP8_DTYPES
    replayed = Replay.of(q, out_dtype, config) if fp8 and low_precision else None
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    left, right = (None, None) if window is None else window
    left, right = (None if keys is None or keys < 0 else keys for keys in (left, right))
    options = (left, 0 if causal else right, align, scale, softcap, low_precision and not fp8, replayed, sinks)
    if cu_seqlens_q is None or cu_seqlens_k is None:
        if fp8:
            q, k, v = (dequantised(t, d) for t, d in ((q, q_descale), (k, k_descale), (v, v_descale)))
        return _dense(q, k, v, q.shape[1], *options)
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float64, device=q.device)
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(starts_q) - 1):
        rows, keys = slice(*starts_q[i : i + 2]), slice(*starts_k[i : i + 2])
        count = rows.stop - rows.start
        # The last warp also computes rows of the next sequences, with the descale of this sequence.
        with_others = slice(rows.start, rows.start + replayed.whole_warps(count)) if replayed and count else rows
        q_i, k_i, v_i = q[None, with_others], k[None, keys], v[None, keys]
        if fp8:
            descales = (d if d is None or d.numel() == 1 else d[i : i + 1] for d in (q_descale, k_descale, v_descale))
            q_i, k_i, v_i = (dequantised(t, d) for t, d in zip((q_i, k_i, v_i), descales, strict=True))
        o_i, lse_i = _dense(q_i, k_i, v_i, count, *options)
        o[rows], lse[:, rows] = o_i[0], lse_i[0]
    return o, lse


def _dense(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: int,
    left: int | None,
    right: int | None,
    align: str,
    scale: float,
    softcap: float,
    low_precision: bool,
    replayed: Replay | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention over all rows, keys and heads at once, with [batch, heads, rows, keys] scores in memory.

    rows: rows of the result. q may have more; a replay uses them as rows after the end of the sequence.
    """
    work = torch.float32 if low_precision else torch.float64
    group = q.shape[2] // max(k.shape[2], 1)
    q_w, k_w, v_w = (t.transpose(1, 2).to(work) for t in (q, k, v))
    k_w, v_w = (t.repeat_interleave(group, dim=1) for t in (k_w, v_w))
    if 0 in (rows, k.shape[1]):
        lse = torch.full((*q_w.shape[:2], rows), -math.inf, dtype=torch.float64, device=q.device)
        if sinks is not None:
            lse = sinks.double()[:, None].expand(lse.shape).contiguous()
        return torch.zeros(q[:, :rows].shape, dtype=torch.float64, device=q.device), lse
    scores = scale * (q_w @ k_w.transpose(-1, -2))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if replayed:
        o, lse = replay_fp8(scores, v_w, rows, (left, right, align), replayed, sinks)
        return o.transpose(1, 2), lse
    scores = scores.masked_fill(~_visible(q.shape[1], k.shape[1], left, right, align, q.device), -math.inf)
    if sinks is not None:  # one more key, whose value is 0
        column = sinks.to(work)[:, None, None].expand(*scores.shape[:-1], 1)
        scores, v_w = torch.cat((scores, column), -1), torch.nn.functional.pad(v_w, (0, 0, 0, 1))
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


def dequantised(tensor: torch.Tensor, descale: torch.Tensor | None) -> torch.Tensor:
    """Multiply FP8 values [batch, rows, heads, head_dim] by their descale, in float64.

    descale: one number or [batch, heads]; None is 1.
    """
    values = tensor.double()
    if descale is None:
        return values
    factors = descale.double()
    return values * (factors.reshape(()) if factors.numel() == 1 else factors[:, None, :, None])


def replay_fp8(
    scores: torch.Tensor,
    values: torch.Tensor,
    rows: int,
    mask: tuple[int | None, int | None, str],
    replayed: Replay,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute output [batch, heads, rows, head_dim] and LSE as a kernel does, without the rounding of float32.

    scores: unmasked, [batch, heads, rows or more, keys]. Rows past `rows` fill up the last warp. If there are too few,
    the rest are zeros, because TMA fills queries with zeros.
    """
    c = replayed.config
    warp_rows, tile, keys = c.rows_per_warp, c.tile_n, scores.shape[-1]
    warps, tiles = replayed.whole_warps(rows) // warp_rows, -(-keys // tile)
    pad = torch.nn.functional.pad
    filled = pad(scores, (0, tiles * tile - keys, 0, warps * warp_rows - scores.shape[-2]))
    values = pad(values, (0, 0, 0, tiles * tile - keys)).unflatten(-2, (tiles, tile))
    seen = _visible(warps * warp_rows, tiles * tile, *mask, scores.device, (rows, keys))
    seen[:, keys:] = False
    parts = _tiles_of_parts(seen[:rows], warps, tiles, c)  # [parts, warps, tiles]
    bits = (
        (filled * LOG2_E).masked_fill(~seen, -math.inf).unflatten(-2, (warps, warp_rows)).unflatten(-1, (tiles, tile))
    )
    bits = bits.movedim(-2, 0)  # [tiles, batch, heads, warps, warp_rows, tile]
    done = [_replay_part(bits, values, part, replayed) for part in parts]
    maximum = torch.stack([m for m, _, _ in done]).amax(0)
    factors = [torch.exp2(m - maximum) for m, _, _ in done]
    total = sum(t * f for (_, t, _), f in zip(done, factors, strict=True))
    output = sum(o * f[..., None] for (_, _, o), f in zip(done, factors, strict=True))
    if sinks is not None:
        bits_of_sinks = sinks.double()[:, None, None] * LOG2_E
        larger = torch.maximum(maximum, bits_of_sinks)
        factor = torch.exp2(maximum - larger)
        maximum, total, output = larger, total * factor + torch.exp2(bits_of_sinks - larger), output * factor[..., None]
    o = output / torch.where(total == 0, torch.ones_like(total), total)[..., None]
    lse = (maximum + torch.log2(total)) / LOG2_E
    o, lse = (t.flatten(2, 3)[:, :, :rows] for t in (o, lse))
    return o.to(replayed.out_dtype).double(), lse


def _tiles_of_parts(seen: torch.Tensor, warps: int, tiles: int, config: Config) -> torch.Tensor:
    """Compute which tiles each warp visits: bool [parts, warps, tiles].

    A warp visits the tiles that any of its rows needs. With split_keys one part has the even tiles and one the odd
    tiles; the sum of both is the same if tiles are counted from the first or from the last one. seen: keys that the
    sequence's own rows see.
    """
    needed = torch.zeros(warps * config.rows_per_warp, tiles, dtype=torch.bool, device=seen.device)
    needed[: len(seen)] = seen.unflatten(-1, (tiles, -1)).any(-1)
    needed = needed.unflatten(0, (warps, -1)).any(1)
    if not config.split_keys:
        return needed[None]
    number = torch.arange(tiles, device=seen.device)
    return torch.stack([needed & (number % 2 == part) for part in (0, 1)])


def _replay_part(
    bits: torch.Tensor, values: torch.Tensor, visited: torch.Tensor, replayed: Replay
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute maxima, sums and output of warps. visited: bool [warps, tiles]; tiles go from the last to the first."""
    bias, lazy = BIAS_AND_LAZY_BITS[replayed.config.dtype]
    maximum = torch.full(bits.shape[1:-1], -1e30, dtype=torch.float64, device=bits.device)
    total, output = torch.zeros_like(maximum), torch.zeros(*maximum.shape, values.shape[-1], dtype=bits.dtype).to(bits)
    for number in reversed(range(len(bits))):
        part = bits[number].masked_fill(~visited[:, number, None, None], -math.inf)
        grown = ((part.amax(-1) - maximum) > lazy + bias).any(-1, keepdim=True)
        larger = torch.where(grown, torch.maximum(maximum, part.amax(-1) - bias), maximum)
        factor = torch.exp2(maximum - larger)
        maximum, total, output = larger, total * factor, output * factor[..., None]
        p = torch.exp2(part - maximum[..., None])
        total = total + p.sum(-1)
        output = output + p.to(replayed.dtype).double() @ values[:, :, None, number]
    return maximum, total, output


def _visible(
    rows: int,
    keys: int,
    left: int | None,
    right: int | None,
    align: str,
    device: torch.device,
    lengths: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Compute which keys each query sees: bool [rows, keys]. lengths: without padding, if rows and keys are padded."""
    real_rows, real_keys = lengths or (rows, keys)
    offset = real_keys - real_rows if align == "bottom-right" else 0
    distance = torch.arange(keys, device=device)[None, :] - torch.arange(rows, device=device)[:, None] - offset
    visible = torch.ones(rows, keys, dtype=torch.bool, device=device)
    if left is not None:
        visible &= distance >= -left
    if right is not None:
        visible &= distance <= right
    return visible
