"""From tensors to the launch of a kernel that appends. As launch/ does for attention, calls are prepared once."""

from __future__ import annotations

from typing import Any

import torch

from ...compile import cache as kernels
from ...launch.call import DTYPES
from ...launch.hot_path import Launcher, Result, enter
from ...launch.prepare import KEPT_CALLS, device_facts, fill, refuse_in_capture
from ...launch.strides import ALIGN_BYTES, aligned_copy, is_aligned, kernel_strides
from ...mask_bounds import Bounds
from .. import launch as attention
from ..call import FP8, CacheCall, CacheTensors, check
from .call import NewTensors, check_new
from .config import AppendConfig, why_not

prepared_calls: dict[tuple[Any, ...], PreparedAppend] = {}


class PreparedAppend(Launcher):
    """Everything that is known of calls that look alike; see launch.hot_path.PreparedCall."""

    __slots__ = ("asked", "copies", "index", "one", "turns")

    def __init__(self, tensors: CacheTensors, new: NewTensors, *asked: Any) -> None:
        super().__init__()
        self.asked = asked  # the options, and the form of the rotary embedding
        self.index = tensors.q.get_device()
        self.turns = new.rotary_cos is not None
        self.copies = not all(is_aligned(t) for t in (tensors.q, new.k_new, new.v_new))
        self.one: torch.Tensor | None = None  # the descale of a cache that has none

    def run(self, tensors: CacheTensors | tuple[Any, ...], new: NewTensors | tuple[Any, ...]) -> tuple[Any, Any]:
        """Append on torch's current stream. Returns Q, turned where there is rotary embedding, and the new lengths."""
        q, k, v, lengths, table, cu_seqlens_q, _, k_descale, v_descale = tensors
        if self.kernel is None:
            return q, lengths
        k_new, v_new, cos, sin = new
        if self.copies or (q.data_ptr() | k_new.data_ptr() | v_new.data_ptr()) % ALIGN_BYTES:
            q, k_new, v_new = (aligned_copy(t) for t in (q, k_new, v_new))
            return append((q, *tensors[1:]), (k_new, v_new, cos, sin), *self.asked)
        buffer = getattr(self.local, "buffer", None) or self.make_buffer(self.kernel)
        words, places = buffer.words, self.places
        with_new = torch.empty_like(lengths)
        given = {
            "k_new": k_new, "v_new": v_new, "k": k, "v": v, "cache_seqlens": lengths, "new_seqlens": with_new,
        }  # fmt: skip
        turned = q
        if self.turns:
            turned = q.new_empty(q.shape)
            given |= {"q": q, "q_out": turned, "rotary_cos": cos, "rotary_sin": sin}
        if table is not None:
            given["block_table"] = table
        if cu_seqlens_q is not None:
            given["cu_seqlens_q"] = cu_seqlens_q
        if self.one is not None:
            given["k_descale"] = self.one if k_descale is None else k_descale
            given["v_descale"] = self.one if v_descale is None else v_descale
        for name, tensor in given.items():
            words[places[name]] = tensor.data_ptr()
        enter(self.kernel, buffer, places["stream"], self.index)
        return turned, with_new


def facts_of(
    tensors: CacheTensors | tuple[Any, ...],
    new: NewTensors | tuple[Any, ...],
    asked: tuple[Any, ...],
    interleaved: bool,
) -> tuple[Any, ...]:
    """Everything that decides how a call is launched, except addresses and the stream."""
    facts = attention.facts_of(tensors, asked)
    for t in new:
        facts += (t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()),)
    return (*facts, interleaved)


def prepare(
    facts: tuple[Any, ...], tensors: CacheTensors, new: NewTensors, call: CacheCall, interleaved: bool
) -> PreparedAppend:
    """Check the whole call, get the kernel that appends, and keep the result under `facts`.

    Raises TypeError or ValueError for a call that is not supported, also where the attention after it would be refused:
    nothing has been written then. And what compile.cache.get raises.
    """
    check(tensors, call)
    check_new(tensors, new)
    attention.planned(attention.shape_of(tensors, call), call.num_splits)
    made = PreparedAppend(tensors, new, (tuple(call[0]), *call[1:]), interleaved)
    config = config_of(tensors, new, interleaved)
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    tokens = tensors.q.shape[0]
    if tensors.cu_seqlens_q is None:
        tokens *= max(new.k_new.shape[1], tensors.q.shape[1] if new.rotary_cos is not None else 0)
    if tokens and tensors.batch and tensors.capacity and tensors.k_cache.numel():
        refuse_in_capture(config, "attention_with_kv_cache")
        kernel = kernels.get(config)
        if config.kv_dtype:
            made.one = torch.ones((), dtype=torch.float32, device=tensors.q.device)
        made.set_kernel(kernel, fill(kernel, _arguments(tensors, new, call, tokens)))
    if len(prepared_calls) >= KEPT_CALLS:
        prepared_calls.clear()
    prepared_calls[facts] = made
    return made


def config_of(tensors: CacheTensors, new: NewTensors, interleaved: bool) -> AppendConfig:
    """The kernel that appends these tensors."""
    q, table = tensors.q, new.rotary_cos
    return AppendConfig(
        arch=device_facts(q.get_device())[0],
        dtype=DTYPES[q.dtype],
        kv_dtype="e4m3" if tensors.k_cache.dtype == FP8 else "",
        head_dim=q.shape[-1],
        rotary="" if table is None else "interleaved" if interleaved else "half",
        table_dtype="fp32" if table is not None and table.dtype == torch.float32 else "",
        varlen=tensors.cu_seqlens_q is not None,
        paged=tensors.block_table is not None,
    )


def _arguments(tensors: CacheTensors, new: NewTensors, call: CacheCall, tokens: int) -> dict[str, Any]:
    """The kernel's arguments by name: (sizes, strides) of tensors, and numbers."""
    arguments = attention.tensor_arguments(tensors)
    for name, t in (("q", tensors.q), ("k_new", new.k_new), ("v_new", new.v_new)):
        arguments[name] = (t.shape, kernel_strides(t))
    for name, table in (("rotary_cos", new.rotary_cos), ("rotary_sin", new.rotary_sin)):
        if table is not None:
            arguments[name] = (table.shape, table.stride())
    unpacked = tensors.cu_seqlens_q is None
    return arguments | {
        "q_out": arguments["o"],
        "new_seqlens": arguments["cache_seqlens"],
        "tokens": tokens,
        "seqlen_q": tensors.q.shape[1] if unpacked and new.rotary_cos is not None else 0,
        "seqlen_new": new.k_new.shape[1] if unpacked else 0,
        # As flash-attn has it: without a mask all queries have the position of the first new key.
        "q_step": int(call.visible != (False, -1, -1)),
        "stream": 0,
    }


def append(
    tensors: CacheTensors | tuple[Any, ...],
    new: NewTensors | tuple[Any, ...],
    asked: tuple[Any, ...],
    interleaved: bool,
) -> tuple[Any, Any]:
    """Append. Returns Q for the attention, and the lengths with the new keys."""
    facts = facts_of(tensors, new, asked, interleaved)
    found = prepared_calls.get(facts)
    if found is None:
        visible, *others = asked
        call = CacheCall(Bounds(*visible), *others)
        found = prepare(facts, CacheTensors(*tensors), NewTensors(*new), call, interleaved)
    return found.run(tensors, new)


def launch(
    tensors: CacheTensors | tuple[Any, ...],
    new: NewTensors | tuple[Any, ...],
    asked: tuple[Any, ...],
    interleaved: bool,
) -> Result:
    """Append, then attend to all keys. asked: as in the launch of the attention."""
    q, lengths = append(tensors, new, asked, interleaved)
    return attention.launch((q, *tensors[1:3], lengths, *tensors[4:]), asked)
