"""Launch a kernel over a KV cache. As in ../launch/ for attention, calls are prepared once and then repeated."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ..compile import cache as kernels
from ..kernels.decode.config import STATS_BYTES
from ..launch.call import DTYPES, check_types, features_of
from ..launch.hot_path import Launcher, Result, enter, zeros
from ..launch.prepare import descale_argument, device_facts, fill, keep, refuse_in_capture, score_arguments
from ..launch.strides import ALIGN_BYTES, aligned_copy, contiguous_strides, is_aligned, lse_shape
from ..mask_bounds import Bounds
from .call import CacheCall, CacheTensors, check
from .planner import CachePlan, CacheShape, plan_cache

prepared_calls: dict[tuple[Any, ...], PreparedCacheCall] = {}


class PreparedCacheCall(Launcher):
    """The state that calls with equal facts share; see launch.hot_path.PreparedCall.

    scratch: number of float32 values that the first kernel passes to the second; 0 with one kernel. copy: whether q
    must be copied first.
    """

    __slots__ = ("at", "call", "contiguous", "copy", "index", "lse_shape", "num_splits", "one", "scratch", "shape")

    def __init__(self, tensors: CacheTensors, call: CacheCall) -> None:
        super().__init__()
        q = tensors.q
        self.call = call
        self.index = q.get_device()
        self.shape = q.shape
        self.contiguous = q.is_contiguous()
        self.copy = not is_aligned(q)
        self.lse_shape = lse_shape(q) if call.lse else None
        self.scratch, self.num_splits = 0, 1
        self.one: torch.Tensor | None = None  # a descale of 1, for a cache without descales
        self.at: tuple[int, ...] = ()

    def set_kernel(self, kernel: kernels.Compiled, values: list[Any]) -> None:
        super().set_kernel(kernel, values)
        self.at = tuple(self.places[name] for name in ("q", "k", "v", "cache_seqlens", "o", "stream"))

    def run(self, tensors: CacheTensors | tuple[Any, ...]) -> Result:
        """Launch on torch's current stream of q's device. Does not wait. tensors: in the order of CacheTensors."""
        q, k, v, lengths, table, cu_seqlens_q, sinks, k_descale, v_descale, k_scales, v_scales = tensors
        if self.kernel is None:
            return zeros(q, self.shape, q.dtype, self.lse_shape, sinks)
        if self.copy or q.data_ptr() % ALIGN_BYTES:
            return launch((aligned_copy(q), *tensors[1:]), (tuple(self.call[0]), *self.call[1:]))
        buffer = getattr(self.local, "buffer", None) or self.make_buffer(self.kernel)
        words, places = buffer.words, self.places
        at_q, at_k, at_v, at_lengths, at_o, at_stream = self.at
        o = torch.empty_like(q) if self.contiguous else q.new_empty(self.shape)
        words[at_q] = q.data_ptr()
        words[at_k] = k.data_ptr()
        words[at_v] = v.data_ptr()
        words[at_lengths] = lengths.data_ptr()
        words[at_o] = o.data_ptr()
        lse = None
        if self.lse_shape is not None:
            lse = q.new_empty(self.lse_shape, dtype=torch.float32)
            words[places["lse"]] = lse.data_ptr()
        if table is not None:
            words[places["block_table"]] = table.data_ptr()
        if cu_seqlens_q is not None:
            words[places["cu_seqlens_q"]] = cu_seqlens_q.data_ptr()
        if sinks is not None:
            words[places["sinks"]] = sinks.data_ptr()
        if self.one is not None:
            words[places["k_descale"]] = (self.one if k_descale is None else k_descale).data_ptr()
            words[places["v_descale"]] = (self.one if v_descale is None else v_descale).data_ptr()
        if k_scales is not None and v_scales is not None:
            words[places["k_scales"]] = k_scales.data_ptr()
            words[places["v_scales"]] = v_scales.data_ptr()
        if self.scratch:
            scratch = q.new_empty(self.scratch, dtype=torch.float32)
            words[places["partials"]] = scratch.data_ptr()
        enter(self.kernel, buffer, at_stream, self.index)
        return o, lse


def facts_of(tensors: CacheTensors | tuple[Any, ...], asked: tuple[Any, ...]) -> tuple[Any, ...]:
    """Collect everything that decides how a call is launched, except addresses and the stream. asked: the options."""
    q, k, v, lengths, *others = tensors
    facts: tuple[Any, ...] = (
        asked, q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), lengths.shape, lengths.stride(),
        q.dtype, k.dtype, v.dtype, lengths.dtype, q.get_device(), k.get_device(), v.get_device(),
        lengths.get_device(), (k.data_ptr() | v.data_ptr()) % ALIGN_BYTES,
    )  # fmt: skip
    for t in others:
        facts += (t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()),)
    k_scales, v_scales = others[-2:]
    if k_scales is not None and v_scales is not None:
        facts += ((k_scales.data_ptr() | v_scales.data_ptr()) % ALIGN_BYTES,)
    return facts


def prepare(facts: tuple[Any, ...], tensors: CacheTensors, call: CacheCall) -> PreparedCacheCall:
    """Check a call, get its kernel, and keep the result under `facts`.

    Raises TypeError or ValueError for a call that is not supported, and the errors of compile.cache.get.
    """
    check(tensors, call)
    made = PreparedCacheCall(tensors, call)
    plan = planned(shape_of(tensors, call), call.num_splits)
    made.num_splits = plan.num_splits
    if tensors.q.numel() and call.max_seqlen_q and tensors.batch and tensors.capacity and tensors.k_cache.numel():
        refuse_in_capture(plan.config, "attention_with_kv_cache")
        kernel = kernels.get(plan.config)
        rows = tensors.batch * tensors.q.shape[-2] * call.max_seqlen_q
        if plan.split:
            made.scratch = rows * plan.num_splits * (tensors.q.shape[-1] + STATS_BYTES // 4)
        if tensors.kv_dtype:
            made.one = torch.ones((), dtype=torch.float32, device=tensors.q.device)
        made.set_kernel(kernel, fill(kernel, _arguments(tensors, call, plan, made.scratch)))
    return keep(prepared_calls, facts, made)


@lru_cache(maxsize=4096)
def planned(shape: CacheShape, num_splits: int | None) -> CachePlan:
    """Call plan_cache. The result is cached."""
    return plan_cache(shape, num_splits)


def shape_of(tensors: CacheTensors, call: CacheCall) -> CacheShape:
    """Compute the CacheShape by which the kernel is chosen."""
    q = tensors.q
    arch, sms = device_facts(q.get_device())
    return CacheShape(
        arch=arch,
        dtype=DTYPES[q.dtype],
        head_dim=q.shape[-1],
        batch=tensors.batch,
        heads=q.shape[-2],
        heads_kv=tensors.k_cache.shape[-2],
        seqlen_q=call.max_seqlen_q,
        capacity=tensors.capacity,
        sms=sms,
        page_size=0 if tensors.block_table is None else tensors.k_cache.shape[1],
        kv_dtype=tensors.kv_dtype,
        **features_of(tensors, call)._asdict(),
    )


def _arguments(tensors: CacheTensors, call: CacheCall, plan: CachePlan, scratch: int) -> dict[str, Any]:
    """Map the names of the kernel's arguments to their values: (sizes, strides) of a tensor, or a number."""
    made = {"partials": ((scratch,), (1,)), "num_splits": plan.num_splits}
    return score_arguments(tensors, call) | cache_arguments(tensors) | made


def cache_arguments(tensors: CacheTensors) -> dict[str, Any]:
    """Make the arguments that only kernels over a cache have. score_arguments makes those of all kernels."""
    table, (_, page_size, heads_kv, _) = tensors.block_table, tensors.k_cache.shape
    scales = {
        name: (
            t.shape,
            [s if n > 1 else u for n, s, u in zip(t.shape, t.stride(), contiguous_strides(t.shape), strict=True)],
        )
        for name, t in (("k_scales", tensors.k_scales), ("v_scales", tensors.v_scales))
        if t is not None
    }
    return scales | {
        "cu_seqlens_q": ((tensors.batch + 1,), (1,)),
        "cache_seqlens": ((tensors.batch,), (1,)),
        "block_table": ((0, 0), (0, 1)) if table is None else (table.shape, table.stride()),
        "k_descale": descale_argument(tensors.k_descale, tensors.batch, heads_kv),
        "v_descale": descale_argument(tensors.v_descale, tensors.batch, heads_kv),
        "page_shift": page_size.bit_length() - 1,
    }


def launch(tensors: CacheTensors | tuple[Any, ...], asked: tuple[Any, ...]) -> Result:
    """Launch a call. asked: the fields of a CacheCall as plain tuples; NamedTuples would slow down every call."""
    return prepared(tensors, asked).run(tensors)


def prepared(tensors: CacheTensors | tuple[Any, ...], asked: tuple[Any, ...]) -> PreparedCacheCall:
    """Look up the prepared call; prepare it if it is the first of its kind."""
    try:
        facts = facts_of(tensors, asked)
    except AttributeError:
        check_types(CacheTensors(*tensors))
        raise
    found = prepared_calls.get(facts)
    if found is None:
        visible, *others = asked
        found = prepare(facts, CacheTensors(*tensors), CacheCall(Bounds(*visible), *others))
    return found
