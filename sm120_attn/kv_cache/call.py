"""Values of a call of `attention_with_kv_cache`, and their checks. Only check_values reads data on the device."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ..config import PACKED_COLUMNS, SCALE_COLUMNS
from ..kernels.decode.config import CHUNK_BYTES, MOST_OF_GRID, PAGE_SIZES, why_not_head_dim
from ..launch import checks
from ..launch.call import check_types
from ..launch.checks import sizes
from ..launch.strides import ALIGN_BYTES, is_aligned
from ..mask_bounds import Bounds

DTYPES = (torch.bfloat16, torch.float16)  # dtypes of queries
FP8 = torch.float8_e4m3fn  # dtype of an FP8 cache
# Older versions of torch lack these dtypes. In all versions, tensors of these formats may be uint8.
FP4, E8M0 = (getattr(torch, name, torch.uint8) for name in ("float4_e2m1fn_x2", "float8_e8m0fnu"))
SCALE_DTYPES = {"nvfp4": (torch.float8_e4m3fn, torch.uint8), "mxfp8": (E8M0, torch.uint8)}
CACHE, PAGES = "[batch, capacity, heads_kv, head_dim]", "[pages, page_size, heads_kv, head_dim]"


class CacheTensors(NamedTuple):
    """The tensors of a call. See `attention_with_kv_cache` for their shapes."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    cache_seqlens: torch.Tensor
    block_table: torch.Tensor | None = None
    cu_seqlens_q: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    k_descale: torch.Tensor | None = None
    v_descale: torch.Tensor | None = None
    k_scales: torch.Tensor | None = None
    v_scales: torch.Tensor | None = None

    @property
    def kv_dtype(self) -> str:
        """The format of the cache, as configs name it; "" for the dtype of q."""
        if self.k_cache.dtype in (torch.uint8, FP4):
            return "nvfp4"
        if self.k_cache.dtype == FP8:
            return "e4m3" if self.k_scales is None and self.v_scales is None else "mxfp8"
        return ""

    @property
    def cache_head_dim(self) -> int:
        """Columns of a row of the cache. A byte of NVFP4 holds two columns."""
        return int(self.k_cache.shape[-1]) * PACKED_COLUMNS.get(self.kv_dtype, 1)

    @property
    def batch(self) -> int:
        return int(self.cache_seqlens.shape[0])

    @property
    def capacity(self) -> int:
        """Keys that the cache of one sequence has room for."""
        rows = int(self.k_cache.shape[1])
        return rows if self.block_table is None else rows * int(self.block_table.shape[1])


class CacheCall(NamedTuple):
    """Options of a call, without its tensors.

    max_seqlen_q: queries of a sequence; of the longest sequence if q is packed. num_splits: None: the planned number.
    """

    visible: Bounds
    scale: float
    softcap: float
    lse: bool
    max_seqlen_q: int
    num_splits: int | None


def check(tensors: CacheTensors, call: CacheCall) -> None:
    """Raise TypeError or ValueError, with the wrong value and the requirement, if a call is not supported."""
    check_types(tensors)
    q, k_cache, v_cache = tensors[:3]
    if q.dtype not in DTYPES:
        raise TypeError(f"q is {q.dtype}: must be one of {', '.join(map(str, DTYPES))}")
    checks.check_kinds({"q": q}, q, checks.BATCH if tensors.cu_seqlens_q is None else checks.PACKED)
    form = CACHE if tensors.block_table is None else PAGES
    checks.check_kinds({"k_cache": k_cache, "v_cache": v_cache}, q, form, (FP8, FP4, torch.uint8))
    if k_cache.dtype != v_cache.dtype:
        raise TypeError(f"k_cache is {k_cache.dtype} and v_cache is {v_cache.dtype}: must be the same")
    if k_cache.shape != v_cache.shape:
        raise ValueError(f"k_cache is {sizes(k_cache)} and v_cache is {sizes(v_cache)}: must be the same")
    kv_dtype = tensors.kv_dtype
    if q.shape[-1] != tensors.cache_head_dim:
        raise ValueError(f"head_dim is {q.shape[-1]} in q and {tensors.cache_head_dim} in the cache: must be the same")
    wrong = why_not_head_dim(q.shape[-1], kv_dtype)
    if wrong:
        raise ValueError(wrong)
    checks.check_heads(q.shape[-2], k_cache.shape[-2])
    _check_numbers("cache_seqlens", tensors.cache_seqlens, q, 1)
    _check_queries(tensors, call)
    _check_pages(tensors)
    checks.check_scores(call.scale, call.softcap, call.visible)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not is_aligned(cache) or cache.data_ptr() % ALIGN_BYTES:
            raise ValueError(
                f"{name} has strides {tuple(cache.stride())} at address {cache.data_ptr():#x}: its rows must be "
                f"contiguous and start at multiples of {ALIGN_BYTES} bytes, since a cache is never copied"
            )
    if tensors.sinks is not None:
        checks.check_sinks(tensors.sinks, q)
    for name, descale in (("k_descale", tensors.k_descale), ("v_descale", tensors.v_descale)):
        if descale is not None and not kv_dtype:
            raise TypeError(
                f"{name} is given with a cache of {k_cache.dtype}: must be None; only 8- and 4-bit caches have it"
            )
        checks.check_descale(name, descale, q, (tensors.batch, k_cache.shape[-2]))
    for name, scales in (("k_scales", tensors.k_scales), ("v_scales", tensors.v_scales)):
        _check_scales(name, scales, tensors)
    if max(tensors.batch, k_cache.shape[-2]) > MOST_OF_GRID:
        raise ValueError(
            f"{tensors.batch} sequences, {k_cache.shape[-2]} key heads: each must be at most {MOST_OF_GRID}"
        )
    if call.num_splits is not None and not 1 <= call.num_splits <= MOST_OF_GRID:
        raise ValueError(
            f"num_splits is {call.num_splits}: must be 1 to {MOST_OF_GRID}, or None for the planned number"
        )


def _check_scales(name: str, scales: torch.Tensor | None, tensors: CacheTensors) -> None:
    """Raise TypeError or ValueError if the scales of a cache are missing, or do not fit its dtype and shape."""
    kv_dtype, cache = tensors.kv_dtype, tensors.k_cache
    if kv_dtype not in SCALE_COLUMNS:
        if scales is not None:
            raise TypeError(
                f"{name} is given with a cache of {cache.dtype}: must be None; only NVFP4 and MXFP8 have it"
            )
        return
    form = (*cache.shape[:3], tensors.cache_head_dim // SCALE_COLUMNS[kv_dtype])
    said = f"must be [pages or batch, rows, heads_kv, head_dim / {SCALE_COLUMNS[kv_dtype]}], {list(form)}"
    if scales is None:
        raise ValueError(f"{name} is missing: {kv_dtype} caches need a scale per {SCALE_COLUMNS[kv_dtype]} columns")
    if scales.dtype not in SCALE_DTYPES[kv_dtype]:
        raise TypeError(f"{name} is {scales.dtype}: must be one of {', '.join(map(str, SCALE_DTYPES[kv_dtype]))}")
    checks.check_device(name, scales, tensors.q)
    if tuple(scales.shape) != form:
        raise ValueError(
            f"{name} is {sizes(scales)}: {said}; heads must be the third dimension, in any order in memory"
        )
    piece = math.gcd(form[-1], CHUNK_BYTES)
    off = [step for step, size in zip(scales.stride()[:-1], form[:-1], strict=True) if size > 1 and step % piece]
    if scales.stride(-1) != 1 or off or scales.data_ptr() % piece:
        raise ValueError(
            f"{name} has strides {tuple(scales.stride())} at address {scales.data_ptr():#x}: the scales of a row must "
            f"be contiguous and start at multiples of {piece} bytes; swizzled scales are not supported"
        )


def _check_numbers(name: str, tensor: torch.Tensor, q: torch.Tensor, dimensions: int) -> None:
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} is {tensor.dtype}: must be torch.int32")
    if tensor.dim() != dimensions or tensor.stride(-1) != 1:
        form = "[batch]" if dimensions == 1 else "[batch, most pages]"
        raise ValueError(f"{name} is {sizes(tensor)}: must be {form}, contiguous along the last dimension")
    checks.check_device(name, tensor, q)


def _check_queries(tensors: CacheTensors, call: CacheCall) -> None:
    q, batch = tensors.q, tensors.batch
    if tensors.cu_seqlens_q is None:
        found, said = q.shape[0], "q"
    else:
        checks.check_cu_seqlens("cu_seqlens_q", tensors.cu_seqlens_q, q)
        found, said = tensors.cu_seqlens_q.shape[0] - 1, "cu_seqlens_q"
        if not 0 <= call.max_seqlen_q <= checks.MAX_SIZE:
            raise ValueError(f"max_seqlen_q is {call.max_seqlen_q}: must be the longest sequence's number of queries")
    if found != batch:
        raise ValueError(f"batch is {found} in {said} and {batch} in cache_seqlens: must be the same")


def _check_pages(tensors: CacheTensors) -> None:
    table, batch = tensors.block_table, tensors.batch
    if table is None:
        if tensors.k_cache.shape[0] != batch:
            raise ValueError(
                f"batch is {tensors.k_cache.shape[0]} in k_cache and {batch} in cache_seqlens: must be the same; "
                "a cache of pages needs block_table"
            )
        return
    _check_numbers("block_table", table, tensors.q, 2)
    if table.shape[0] != batch:
        raise ValueError(f"batch is {table.shape[0]} in block_table and {batch} in cache_seqlens: must be the same")
    page_size = tensors.k_cache.shape[1]
    if page_size not in PAGE_SIZES:
        raise ValueError(f"page size {page_size} (k_cache is {sizes(tensors.k_cache)}): must be one of {PAGE_SIZES}")


def check_values(tensors: CacheTensors, call: CacheCall) -> None:
    """Check a call; raise ValueError also if lengths or pages are outside of the cache. Waits for the device."""
    check(tensors, call)
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("check=True waits for the device: it must be False while a CUDA graph is captured")
    check_room(tensors)
    for name, scales in (("k_scales", tensors.k_scales), ("v_scales", tensors.v_scales)):
        if scales is not None:
            _check_scale_values(name, scales, tensors)


def _check_scale_values(name: str, scales: torch.Tensor, tensors: CacheTensors) -> None:
    """Raise ValueError if a scale of a sequence's key is NaN."""
    nan, table = 0x7F if tensors.kv_dtype == "nvfp4" else 0xFF, tensors.block_table
    wrong = (scales.view(torch.uint8) & nan) == nan
    rows = torch.arange(tensors.capacity, device=scales.device)
    used = rows < tensors.cache_seqlens[:, None]
    size = tensors.k_cache.shape[1]
    pages = torch.arange(tensors.batch, device=scales.device)[:, None] if table is None else table[:, rows // size]
    found = wrong.any((-1, -2))[pages.where(used, 0), rows % size] & used
    if found.any():
        row, key = found.nonzero()[0].tolist()
        raise ValueError(
            f"{name} has a NaN for key {key} of sequence {row}: its values were not finite, or not written"
        )


def check_room(tensors: CacheTensors, name: str = "cache_seqlens") -> None:
    """Raise ValueError if lengths or pages are outside of the cache. name: name of the lengths in the error."""
    lengths, table = tensors.cache_seqlens, tensors.block_table
    wrong = (lengths < 0) | (lengths > tensors.capacity)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name}[{at}] is {int(lengths[at])}: must be 0 to {tensors.capacity}, for which the cache has room"
        )
    if table is None:
        return
    pages, page_size = tensors.k_cache.shape[:2]
    used = torch.arange(table.shape[1], device=table.device) * page_size < lengths[:, None]
    outside = used & ((table < 0) | (table >= pages))
    if outside.any():
        row, column = outside.nonzero()[0].tolist()
        raise ValueError(
            f"block_table[{row}, {column}] is {int(table[row, column])}: must be a page, 0 to {pages - 1}, because "
            f"sequence {row} with {int(lengths[row])} keys uses this entry"
        )
