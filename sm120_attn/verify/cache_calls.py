"""Calls over a KV cache for the cases of cache_cases.py: make tensors, compute float64 references, run and judge.

Everything in a cache that no sequence uses is NaN: rows after the length, other pages. Entries of the table that no
sequence uses are out of range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ..config import PACKED_COLUMNS, SCALE_COLUMNS
from . import block_scaled, cache_writes
from .cache_cases import CacheCase
from .inputs import torch_dtype
from .judging import ROUNDING, Verdict, compare, failed, guarded

NOWHERE = 1 << 29  # an entry of the table that must not be read


def tensors(case: CacheCase, seed: int = 0, device: str = "cuda") -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the tensors of a case, and the other arguments of `attention_with_kv_cache`."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int) -> Any:
        return torch.randn(*size, generator=generator, device=device)

    batch, dtype = len(case.lengths), torch_dtype(case.dtype)
    factors = {"large": (250, 1), "small": (1e-3, 1e-3)}.get(case.values, (1, 1))
    sizes = (sum(case.counts),) if case.packed else (batch, case.counts[0] if batch else 1)
    q = (normal(*sizes, case.heads, case.head_dim) * factors[0]).to(dtype)
    table, pages, rows = None, batch, case.capacity
    if case.page_size:
        table, pages = _table(case, generator, device)
        rows = case.page_size
    made = {"q": q} | _caches(case, (pages, rows, case.heads_kv), device)
    places = None if table is None else table.tolist()
    for i, length in enumerate(case.lengths):
        for name in "kv":
            values = normal(length, case.heads_kv, case.head_dim) * factors[1]
            if case.values == "equal" and name == "k":
                values = values * 0 + 0.5
            for part, rows_of_it in _stored(case, name, values).items():
                cache = made[part]
                _write(cache[i : i + 1] if places is None else cache, [0] if places is None else places[i], rows_of_it)
    made["cache_seqlens"] = torch.tensor(case.lengths, dtype=torch.int32, device=device)
    if table is not None:
        made["block_table"] = table
    if case.descale:
        size = (batch, case.heads_kv) if case.descale == "head" else ()
        for name in ("k_descale", "v_descale"):
            made[name] = 0.5 + torch.rand(size, generator=generator, device=device)
    if case.sinks:
        made["sinks"] = normal(case.heads) * 3
    options: dict[str, Any] = {
        "causal": case.causal, "window": case.window, "softcap": case.softcap, "return_lse": case.lse,
    }  # fmt: skip
    if case.packed:
        starts = list(itertools.accumulate(case.counts, initial=0))
        made["cu_seqlens_q"] = torch.tensor(starts, dtype=torch.int32, device=device)
        options["max_seqlen_q"] = max(case.counts)
    if case.new is not None:
        made |= cache_writes.new_tensors(case, normal, device)
        options["rotary_interleaved"] = case.rotary == "interleaved"
    return made, options | {"num_splits": case.num_splits}


def _caches(case: CacheCase, size: tuple[int, ...], device: str) -> dict[str, Any]:
    """Make the empty caches of a case, with empty scales if the format has scales."""
    import torch

    if case.kv_dtype not in SCALE_COLUMNS:
        dtype = torch_dtype(case.kv_dtype or case.dtype)
        return {
            f"{n}_cache": lay_out(case.layout, (*size, case.head_dim), dtype, device, i) for i, n in enumerate("kv")
        }
    columns, blocks = (
        case.head_dim // PACKED_COLUMNS.get(case.kv_dtype, 1),
        case.head_dim // SCALE_COLUMNS[case.kv_dtype],
    )
    made = {}
    for i, name in enumerate("kv"):
        cache = lay_out(case.layout, (*size, columns), torch.uint8, device, i)
        made[f"{name}_cache"] = cache if case.kv_dtype == "nvfp4" else cache.view(torch.float8_e4m3fn)
        made[f"{name}_scales"] = lay_out(case.layout, (*size, blocks), torch.uint8, device, i)
    return made


def _stored(case: CacheCase, name: str, values: Any) -> dict[str, Any]:
    """Encode values as the caches store them; return a dict by argument names of `attention_with_kv_cache`."""
    if case.kv_dtype not in SCALE_COLUMNS:
        return {f"{name}_cache": values.to(torch_dtype(case.kv_dtype or case.dtype))}
    data, scales = block_scaled.quantised(values, case.kv_dtype)
    return {f"{name}_cache": data, f"{name}_scales": scales}


def _table(case: CacheCase, generator: Any, device: str) -> tuple[Any, int]:
    """Make a table of shuffled pages; return the table and the number of pages. Sequences may share first pages."""
    import torch

    used = [-(-length // case.page_size) for length in case.totals]
    total = sum(used) + 3
    order = torch.randperm(total, generator=generator, device=device).tolist()
    table = torch.full((len(used), case.most_pages), NOWHERE, dtype=torch.int32, device=device)
    for i, count in enumerate(used):
        mine = [order.pop() for _ in range(count)]
        if case.shared and i:
            common = min(count, used[0], max(case.lengths[0] // case.page_size, 0))
            mine[:common] = table[0, :common].tolist()
        table[i, :count] = torch.tensor(mine, dtype=torch.int32, device=device)
    return table, total


def lay_out(layout: str, size: tuple[int, ...], dtype: Any, device: str, number: int) -> Any:
    """Make a cache full of NaN. number: 0 for K, 1 for V; only the layout "interleaved" uses it."""
    import torch

    pages, rows, heads, dim = size
    layouts: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "pages": (size, lambda t: t),
        "interleaved": ((pages, 2, rows, heads, dim), lambda t: t[:, number]),
        "heads first": ((pages, heads, rows, dim), lambda t: t.transpose(1, 2)),
        "wide": ((pages, rows, heads, dim + 16 // dtype.itemsize), lambda t: t[..., :dim]),
    }
    shape, place = layouts[layout]
    if dtype == torch.uint8:
        return place(torch.full(shape, 0xFF, dtype=dtype, device=device))
    return place(torch.full(shape, math.nan, device=device).to(dtype))


def _write(cache: Any, pages: list[int], values: Any) -> None:
    """Write the rows of a sequence into its pages."""
    size, cache, values = cache.shape[1], as_bytes(cache), as_bytes(values)
    for number in range(-(-len(values) // size)):
        part = values[number * size : (number + 1) * size]
        cache[pages[number], : len(part)] = part


def as_bytes(tensor: Any) -> Any:
    """View an FP8 tensor as bytes, since torch cannot index FP8; return other tensors unchanged."""
    import torch

    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def reference(made: dict[str, Any], options: dict[str, Any], low_precision: bool = False) -> tuple[Any, Any]:
    """Compute output and LSE of a call in float64. low_precision: see reference.attention_reference."""
    import torch

    from .reference import attention_reference

    q, lengths, table = made["q"], made["cache_seqlens"].tolist(), made.get("block_table")
    gathered = [
        _gathered(made[f"{name}_cache"], lengths, table, made.get(f"{name}_descale"), made.get(f"{name}_scales"))
        for name in "kv"
    ]
    packed = "cu_seqlens_q" in made
    rows = None if packed else torch.arange(q.shape[0] + 1, dtype=torch.int32) * q.shape[1]
    starts = made["cu_seqlens_q"] if packed else rows
    keys = torch.tensor(list(itertools.accumulate(lengths, initial=0)))
    o, lse = attention_reference(
        q if packed else q.flatten(0, 1), *gathered, causal=options["causal"], window=options["window"],
        softcap=options["softcap"], scale=options.get("scale"), cu_seqlens_q=starts, cu_seqlens_k=keys,
        sinks=made.get("sinks"), low_precision=low_precision,
    )  # fmt: skip
    if packed:
        return o, lse
    return o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)


def _gathered(cache: Any, lengths: list[int], table: Any, descale: Any = None, scales: Any = None) -> Any:
    """Gather the rows of all sequences, packed. FP8 and FP4 rows become float64, multiplied by their descale."""
    import torch

    def rows_of(tensor: Any, i: int, length: int) -> Any:
        if table is None:
            return as_bytes(tensor)[i, :length]
        used = table[i, : -(-length // tensor.shape[1])].long()
        return as_bytes(tensor)[used].flatten(0, 1)[:length]

    parts = []
    for i, length in enumerate(lengths):
        part = rows_of(cache, i, length)
        if scales is not None:
            kv_dtype = "nvfp4" if cache.dtype != torch.float8_e4m3fn else "mxfp8"
            part = block_scaled.dequantised(part, rows_of(scales, i, length), kv_dtype).double()
        elif cache.element_size() == 1:
            part = part.view(cache.dtype).double()
        if cache.element_size() == 1 and descale is not None:
            part = part * (descale if descale.numel() == 1 else descale[i, :, None]).double()
        parts.append(part)
    return torch.cat(parts) if parts else cache[:0, 0]


def run(made: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """Run a call; return O, and LSE or None."""
    from ..kv_cache.api import attention_with_kv_cache

    result = attention_with_kv_cache(**made, **options)
    return result if options["return_lse"] else (result, None)


def judge(
    case: CacheCase, made: dict[str, Any], options: dict[str, Any], o: Any, lse: Any, before: Any = None
) -> Verdict:
    """Judge a result: compare it with float64 on the same inputs.

    before: copy of the caches before a call that appends (cache_writes.snapshot). Those in `made` have the new keys.
    """
    why: list[str] = []
    if case.new is not None:
        why = cache_writes.judge_caches(case, made, before)
        made, options = cache_writes.attended(case, made, options)
    q = made["q"]
    if o.shape != q.shape or o.dtype != q.dtype or not o.is_contiguous():
        return failed(case.name, "decode", f"output is {list(o.shape)} of {o.dtype}: must be contiguous and like q")
    if o.numel() == 0:
        return Verdict(case.name, "decode", 0.0, 0.0, 0.0, "; ".join(why))
    yard, _ = reference(made, options, low_precision=True)
    return compare(case.name, "decode", (o, lse), reference(made, options), yard, ROUNDING[case.dtype], why)


def check(case: CacheCase, seed: int = 0) -> Verdict:
    """Run and judge one case. An exception is a failure, with its message."""

    def verdict() -> Verdict:
        made, options = tensors(case, seed)
        before = cache_writes.snapshot(made)
        return judge(case, made, options, *run(made, options), before)

    return guarded(case.name, "decode", verdict)
