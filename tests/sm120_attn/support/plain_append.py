"""A call that appends, in plain torch on the CPU: float32 where the kernel has it. Stands in for the kernel."""

from __future__ import annotations

from typing import Any

import torch

from sm120_attn.verify import cache_calls
from sm120_attn.verify.block_scaled import quantised


def turned(values: Any, cos: Any, sin: Any, positions: Any, interleaved: bool) -> Any:
    """Packed rows [rows, heads, head_dim] in float32, turned by the angles of their positions."""
    values = values.float()
    if cos is None:
        return values
    cos, sin = (t.float()[positions.clamp(max=len(t) - 1)][:, None] for t in (cos, sin))
    made, half = values.clone(), cos.shape[-1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    made[..., first] = values[..., first] * cos - values[..., second] * sin
    made[..., second] = values[..., first] * sin + values[..., second] * cos
    return made


def run(made: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """As `cache_calls.run`, with the reference for the attention."""
    q, lengths, table = made["q"], made["cache_seqlens"].tolist(), made.get("block_table")
    interleaved = options.pop("rotary_interleaved") if "rotary_interleaved" in options else True
    if "k_new" in made:
        made = dict(made)
        packed = "cu_seqlens_q" in made
        cos, sin = (made.pop(f"rotary_{name}", None) for name in ("cos", "sin"))
        new = {name: made.pop(f"{name}_new") for name in "kv"}
        counts = made["cu_seqlens_q"].diff().tolist() if packed else [new["k"].shape[1]] * len(lengths)
        queries = counts if packed else [q.shape[1]] * len(lengths)
        masked = options["causal"] or options["window"] is not None

        def positions(numbers: list[int], step: int = 1) -> Any:
            return torch.tensor(
                [n + step * i for n, count in zip(lengths, numbers, strict=True) for i in range(count)],
                dtype=torch.long,
            )

        rows = {name: t if packed else t.flatten(0, 1) for name, t in new.items()}
        rows["k"] = turned(rows["k"], cos, sin, positions(counts), interleaved)
        flat = q if packed else q.flatten(0, 1)
        made["q"] = turned(flat, cos, sin, positions(queries, int(masked)), interleaved).to(q.dtype).view(q.shape)
        for name in "kv":
            cache, scales, descale = (made.get(f"{name}_{part}") for part in ("cache", "scales", "descale"))
            if scales is None:
                put(cache, rows[name].float(), lengths, counts, table, descale)
                continue
            numbers = [i for i, count in enumerate(counts) for _ in range(count)]
            factor = torch.ones(()) if descale is None else descale if descale.numel() == 1 else descale[numbers]
            kv_dtype = "nvfp4" if cache.dtype == torch.uint8 else "mxfp8"
            parts = quantised(rows[name], kv_dtype, factor.expand(rows[name].shape[:-1]))
            for into, made_rows in zip((cache.view(torch.uint8), scales), parts, strict=True):
                put(into, made_rows, lengths, counts, table, None)
        made["cache_seqlens"] = made["cache_seqlens"] + torch.tensor(counts, dtype=torch.int32)
    o, lse = cache_calls.reference(made, options)
    return o.to(q.dtype).contiguous(), lse.float().contiguous()


def put(cache: Any, rows: Any, lengths: list[int], counts: list[int], table: Any, descale: Any) -> None:
    """Write packed rows behind the lengths."""
    at, as_bytes = 0, cache_calls.as_bytes(cache)
    for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        for number in range(length, length + count):
            row = rows[at]
            at += 1
            if cache.dtype == torch.float8_e4m3fn:
                factor = 1.0 if descale is None else descale if descale.numel() == 1 else descale[i][:, None]
                row = (row / factor).clamp(-448, 448)
            page = i if table is None else int(table[i, number // cache.shape[1]])
            as_bytes[page, number if table is None else number % cache.shape[1]] = cache_calls.as_bytes(
                row.to(cache.dtype)
            )
