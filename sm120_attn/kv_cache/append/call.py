"""Values of an appending call of `attention_with_kv_cache`, and their checks. Only check_new_values reads data."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...kernels.append.config import ROTARY_STEP
from ...launch import checks
from ...launch.call import check_types
from ...launch.checks import sizes
from ...launch.strides import ALIGN_BYTES
from ..call import CacheCall, CacheTensors, check_room, check_values


class NewTensors(NamedTuple):
    """Tensors of an appending call, in addition to CacheTensors. See `attention_with_kv_cache` for their shapes."""

    k_new: torch.Tensor
    v_new: torch.Tensor
    rotary_cos: torch.Tensor | None = None
    rotary_sin: torch.Tensor | None = None
    k_mean: torch.Tensor | None = None


def check_new(tensors: CacheTensors, new: NewTensors, max_seqlen_q: int) -> None:
    """Raise TypeError or ValueError if `new` is not supported. `tensors` must have been checked before."""
    check_types(new)
    q, k_cache, packed = tensors.q, tensors.k_cache, tensors.cu_seqlens_q is not None
    form = "[total_q, heads_kv, head_dim]" if packed else "[batch, seqlen_new, heads_kv, head_dim]"
    checks.check_kinds({"k_new": new.k_new, "v_new": new.v_new}, q, form)
    if new.k_new.shape != new.v_new.shape:
        raise ValueError(f"k_new is {sizes(new.k_new)} and v_new is {sizes(new.v_new)}: must be the same")
    if tuple(new.k_new.shape[-2:]) != (k_cache.shape[-2], tensors.cache_head_dim):
        raise ValueError(
            f"k_new is {sizes(new.k_new)} and k_cache is {sizes(k_cache)}: heads and head_dim must be the same"
        )
    if new.k_new.shape[0] != q.shape[0]:
        raise ValueError(
            f"k_new is {sizes(new.k_new)} and q is {sizes(q)}: the first size must be the same"
            + ", because each packed query has one new key" * packed
        )
    _check_capacity(tensors, new, max_seqlen_q)
    if (new.rotary_cos is None) != (new.rotary_sin is None):
        raise ValueError("one of rotary_cos and rotary_sin is None: rotary embedding needs both")
    if new.rotary_cos is not None and new.rotary_sin is not None:
        for name, table in (("rotary_cos", new.rotary_cos), ("rotary_sin", new.rotary_sin)):
            _check_table(name, table, q)
        if new.rotary_cos.shape != new.rotary_sin.shape or new.rotary_cos.dtype != new.rotary_sin.dtype:
            raise ValueError(
                f"rotary_cos is {sizes(new.rotary_cos)} of {new.rotary_cos.dtype} and rotary_sin is "
                f"{sizes(new.rotary_sin)} of {new.rotary_sin.dtype}: must be the same"
            )


def _check_capacity(tensors: CacheTensors, new: NewTensors, max_seqlen_q: int) -> None:
    """Raise ValueError if the new keys of a sequence have no room even in an empty cache.

    The longest packed sequence has at least total_q / batch new keys, but at most max_seqlen_q: the last packed rows
    may belong to no sequence.
    """
    rows, table = tensors.capacity, tensors.block_table
    if table is not None:
        rows = int(tensors.k_cache.shape[1]) * min(table.shape[1], tensors.k_cache.shape[0])
    most = int(new.k_new.shape[1])
    if tensors.cu_seqlens_q is not None:
        most = min(max_seqlen_q, -(-int(new.k_new.shape[0]) // max(tensors.batch, 1)))
    if tensors.batch and most > rows:
        cache = "" if table is None else f" and block_table {sizes(table)}"
        raise ValueError(
            f"k_new is {sizes(new.k_new)}, {most} new keys for a sequence: must be at most {rows}, the room in k_cache "
            f"{sizes(tensors.k_cache)}{cache}"
        )


def check_mean(tensors: CacheTensors, new: NewTensors, call: CacheCall) -> None:
    """Raise TypeError or ValueError if k_mean is not supported, e.g. because it would change the call's results."""
    mean = new.k_mean
    if mean is None:
        return
    if not tensors.kv_dtype:
        raise TypeError(
            f"k_mean is given with a cache of {tensors.k_cache.dtype}: must be None; only 8- and 4-bit caches have it"
        )
    if call.softcap or tensors.sinks is not None or call.lse:
        raise ValueError("k_mean with softcap, sinks or return_lse: must be None, because it would change the results")
    if mean.dtype != torch.float32:
        raise TypeError(f"k_mean is {mean.dtype}: must be torch.float32")
    checks.check_device("k_mean", mean, tensors.q)
    form = [tensors.batch, tensors.k_cache.shape[-2], tensors.q.shape[-1]]
    strides = mean.stride()
    if (
        list(mean.shape) != form
        or strides[-1] != 1
        or any(s % 4 for s in strides[:-1])
        or mean.data_ptr() % ALIGN_BYTES
    ):
        raise ValueError(
            f"k_mean is {sizes(mean)} with strides {strides}: must be [batch, heads_kv, head_dim], {form}, with rows "
            f"that are contiguous and start at multiples of {ALIGN_BYTES} bytes; `expand` one mean to all sequences"
        )


def _check_table(name: str, table: torch.Tensor, q: torch.Tensor) -> None:
    if table.dtype not in (q.dtype, torch.float32):
        raise TypeError(f"{name} is {table.dtype}: must be torch.float32 or q's dtype, {q.dtype}")
    checks.check_device(name, table, q)
    if table.dim() != 2 or not table.shape[0] or not table.is_contiguous() or table.data_ptr() % ALIGN_BYTES:
        raise ValueError(
            f"{name} is {sizes(table)} with strides {tuple(table.stride())}: must be contiguous, [positions, rotary "
            f"columns / 2], with at least one position, at an address that is a multiple of {ALIGN_BYTES}"
        )
    columns, most = 2 * table.shape[1], q.shape[-1]
    if columns % ROTARY_STEP or not 0 < columns <= most:
        raise ValueError(
            f"{name} is {sizes(table)}, for {columns} rotary columns: must be a multiple of {ROTARY_STEP}, up to "
            f"head_dim, {most}"
        )


def counts(tensors: CacheTensors, new: NewTensors) -> torch.Tensor | int:
    """Count the new keys of each sequence."""
    starts = tensors.cu_seqlens_q
    return int(new.k_new.shape[1]) if starts is None else starts[1:] - starts[:-1]


def check_new_values(tensors: CacheTensors, new: NewTensors, call: CacheCall) -> None:
    """Check a call; raise ValueError if the cache or rotary_cos has too few rows for new keys. Waits for the device."""
    check_values(tensors, call)
    check_new(tensors, new, call.max_seqlen_q)
    lengths, count = tensors.cache_seqlens, counts(tensors, new)
    check_room(tensors._replace(cache_seqlens=lengths + count), "cache_seqlens with the new keys")
    if new.rotary_cos is None:
        return
    queries = call.max_seqlen_q if tensors.cu_seqlens_q is None and call.visible != (False, -1, -1) else 1
    most = int((lengths + torch.clamp(torch.as_tensor(count), min=queries)).max()) if len(lengths) else 0
    if most > new.rotary_cos.shape[0]:
        raise ValueError(
            f"rotary_cos has {new.rotary_cos.shape[0]} positions: must have at least {most}, the keys of the longest "
            "sequence with its new keys"
        )
