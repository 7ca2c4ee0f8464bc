"""Calls that append to a cache: their tensors, checks of the written caches, and an equal call that appends nothing.

A new value must be the nearest value of the cache's dtype. Everything else in the cache's memory must keep its bytes:
other rows, rows after the new rows, other pages, and memory between the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ..config import SCALE_COLUMNS
from . import block_scaled
from .cache_cases import CacheCase
from .inputs import torch_dtype

# Error of float32 besides the rounding to the cache's dtype: two products and a sum, relative to a row's largest value.
FLOAT32_ROUNDING = 2.0**-21
E4M3_LARGEST = 448.0


def new_tensors(case: CacheCase, normal: Callable[..., Any], device: str) -> dict[str, Any]:
    """Make new keys and values, and tables of a rotary embedding with as many positions as the longest sequence."""
    import torch

    rows = (sum(case.counts),) if case.packed else (len(case.lengths), case.new)
    dtype = torch_dtype(case.dtype)
    made = {name: normal(*rows, case.heads_kv, case.head_dim).to(dtype) for name in ("k_new", "v_new")}
    if not case.rotary:
        return made
    half = (case.rotary_columns or case.head_dim) // 2
    positions = max([*case.totals, *(x + y for x, y in zip(case.lengths, case.counts, strict=True))], default=0)
    speeds = 10_000.0 ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
    angles = torch.arange(max(positions, 1), dtype=torch.float64, device=device)[:, None] * speeds
    kind = torch_dtype(case.table_dtype or case.dtype)
    return made | {"rotary_cos": angles.cos().to(kind), "rotary_sin": angles.sin().to(kind)}


CACHES = ("k_cache", "v_cache", "k_scales", "v_scales")


def snapshot(made: dict[str, Any]) -> dict[str, Any]:
    """Copy all memory of the caches, as bytes."""
    return {name: bytes_of(made[name]).clone() for name in CACHES if name in made}


def bytes_of(tensor: Any) -> Any:
    """Return a view of all memory of a tensor's storage, as bytes."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def rows_of(case: CacheCase, new: Any) -> Any:
    """Pack rows of Q or of new keys, [sequences, rows, ...] or already packed, into one tensor."""
    return new if case.packed else new.flatten(0, 1)


def turned(case: CacheCase, made: dict[str, Any], new: Any, positions: Any) -> Any:
    """Apply the rotary embedding to packed rows [rows, heads, head_dim], in float64. positions: one for each row."""
    import torch

    values = new.double()
    if not case.rotary:
        return values
    cos, sin = (made[name].double()[positions.clamp(max=len(made[name]) - 1)][:, None] for name in TABLES)
    columns = 2 * cos.shape[-1]
    turning, rest = values[..., :columns], values[..., columns:]
    if case.rotary == "half":
        a, b = turning.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos, rest), -1)
    a, b = turning[..., ::2], turning[..., 1::2]
    return torch.cat((torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2), rest), -1)


TABLES = ("rotary_cos", "rotary_sin")


def positions_of(case: CacheCase, counts: tuple[int, ...], device: Any, step: int = 1) -> Any:
    """Compute the positions of packed rows, which begin after the keys of their sequences and increase by `step`."""
    import torch

    found = [length + step * i for length, count in zip(case.lengths, counts, strict=True) for i in range(count)]
    return torch.tensor(found, dtype=torch.long, device=device)


def judge_caches(case: CacheCase, made: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """List the errors in the caches after a call. before: see snapshot."""
    import torch

    table = made["block_table"].tolist() if "block_table" in made else None
    places = []  # (page, row) of each new key
    for i, (length, count) in enumerate(zip(case.lengths, case.new_counts, strict=True)):
        for at in range(length, length + count):
            places.append((i, at) if table is None else (table[i][at // case.page_size], at % case.page_size))
    pages, rows = torch.tensor(places, dtype=torch.long, device=made["q"].device).reshape(-1, 2).unbind(-1)
    positions = positions_of(case, case.new_counts, made["q"].device)
    said = []
    for name in "kv":
        new = rows_of(case, made[f"{name}_new"])
        wanted = turned(case, made, new, positions) if name == "k" else new.double()
        descale = _row_descale(case, made, name)
        parts = [_as_integers(made[part])[pages, rows] for part in (f"{name}_cache", f"{name}_scales") if part in made]
        if case.kv_dtype in SCALE_COLUMNS:
            exact = None if case.rotary and name == "k" else new
            off = _is_off_its_block(parts[0], parts[1], case.kv_dtype, exact, wanted, descale)
        else:
            dtype = made[f"{name}_cache"].dtype
            off = _is_off(parts[0].view(dtype).double(), wanted, descale, dtype)
        if off.any():
            said.append(
                f"{int(off.sum())} of {off.numel()} new values in {name}_cache are not the nearest values of its dtype"
            )
    for name, flat in before.items():
        cache, after = made[name], bytes_of(made[name]).clone()
        old, kept = (
            torch.as_strided(_as_integers(one.view(cache.dtype)), cache.shape, cache.stride(), cache.storage_offset())
            for one in (flat, after)
        )
        kept[pages, rows] = old[pages, rows]
        if not torch.equal(after, flat):
            said.append(f"{int((after != flat).sum())} bytes of {name} that belong to no new key have changed")
    return said


def _is_off_its_block(data: Any, scales: Any, kv_dtype: str, exact: Any, wanted: Any, descale: Any) -> Any:
    """Find where block-scaled data or scales differ from those that block_scaled.py computes for the values `exact`.

    exact: None for rotated keys, because the kernel rotates in float32. Then data may differ from `wanted` by one
    rounding step of the block's largest value.
    """
    import torch

    if exact is None:
        found, blocks = block_scaled.dequantised(data, scales, kv_dtype), wanted.unflatten(-1, (scales.shape[-1], -1))
        step = (blocks / _of_blocks(descale)).abs().amax(-1, keepdim=True) * {"nvfp4": 0.34, "mxfp8": 0.07}[kv_dtype]
        return ~((found.double() - wanted / descale).abs().unflatten(-1, (scales.shape[-1], -1)) <= step).flatten(-2)
    factor = torch.as_tensor(descale, dtype=torch.float32, device=data.device).expand(*data.shape[:-1], 1)[..., 0]
    right = block_scaled.quantised(exact, kv_dtype, factor)
    return torch.cat([data != right[0], scales != right[1]], -1)


def _of_blocks(descale: Any) -> Any:
    return descale[..., None] if getattr(descale, "ndim", 0) else descale


def _as_integers(tensor: Any) -> Any:
    import torch

    return tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16)


def _row_descale(case: CacheCase, made: dict[str, Any], name: str) -> Any:
    """Return the descale of each new row and head: [rows, heads_kv, 1], or one number."""
    descale = made.get(f"{name}_descale")
    if descale is None or descale.numel() == 1:
        return 1.0 if descale is None else descale.double().reshape(())
    sequences = itertools.chain.from_iterable([i] * count for i, count in enumerate(case.new_counts))
    return descale.double()[list(sequences)][..., None]


def _is_off(found: Any, wanted: Any, descale: Any, dtype: Any) -> Any:
    """Find where a value differs from the expected value by more than half a step of its dtype."""
    import torch

    about = torch.finfo(dtype)
    wanted = wanted / descale
    slack = FLOAT32_ROUNDING * wanted.abs().amax(-1, keepdim=True) if wanted.numel() else 0.0
    if dtype == torch.float8_e4m3fn:
        wanted = wanted.clamp(-E4M3_LARGEST, E4M3_LARGEST)
    step = about.eps * torch.exp2(torch.floor(torch.log2(wanted.abs().clamp(min=about.tiny))))
    return ~((found - wanted).abs() <= step / 2 + slack)


def attended(case: CacheCase, made: dict[str, Any], options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the tensors and options of an equal call that appends nothing, over caches with the new keys."""
    import torch

    masked = case.causal or case.window is not None
    given = {name: t for name, t in made.items() if name not in ("k_new", "v_new", *TABLES)}
    positions = positions_of(case, case.counts, made["q"].device, 1 if masked else 0)
    q = turned(case, made, rows_of(case, made["q"]), positions).to(made["q"].dtype)
    given["q"] = q.view(made["q"].shape)
    given["cache_seqlens"] = torch.tensor(case.totals, dtype=torch.int32, device=made["q"].device)
    return given, {name: value for name, value in options.items() if name != "rotary_interleaved"}
