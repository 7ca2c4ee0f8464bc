"""Launch the append kernel, and then attention. As in ../../launch/, calls are prepared once and then repeated."""

from __future__ import annotations

from typing import Any

import torch

from ...compile import cache as kernels
from ...kernels.append.config import AppendConfig, why_not
from ...launch.call import DTYPES, check_types
from ...launch.hot_path import Launcher, Result, enter
from ...launch.prepare import device_facts, fill, keep, refuse_in_capture, score_arguments
from ...launch.strides import ALIGN_BYTES, aligned_copy, is_aligned, kernel_strides
from ...mask_bounds import Bounds
from .. import launch as attention
from ..call import CacheCall, CacheTensors, check
from .call import NewTensors, check_mean, check_new

# The tensors of a call, by the names of the kernel's arguments. The kernel does not take sinks, and takes q only with
# rotary embedding.
NAMES = ("q", "k", "v", *CacheTensors._fields[3:], *NewTensors._fields)

prepared_calls: dict[tuple[Any, ...], PreparedAppend] = {}


class PreparedAppend(Launcher):
    """The state that calls with equal facts share; see launch.hot_path.PreparedCall.

    attention: the PreparedCacheCall of the attention that follows the append; None before the first call.
    """

    __slots__ = ("asked", "attention", "contiguous", "copies", "index", "inputs", "one", "turns", "without_descale")

    def __init__(self, tensors: CacheTensors, new: NewTensors, *asked: Any) -> None:
        super().__init__()
        self.asked = asked  # the options, and whether the rotary embedding is interleaved
        self.index = tensors.q.get_device()
        self.turns = new.rotary_cos is not None
        self.contiguous = tensors.q.is_contiguous()
        self.copies = not all(is_aligned(t) for t in (tensors.q, *new[:2])) or bool(misaligned(tensors, new))
        self.attention: attention.PreparedCacheCall | None = None
        self.inputs: list[tuple[int, int]] = []  # (word in the buffer, index of the tensor in a call)
        self.without_descale: list[int] = []  # words in the buffer for descales that are None
        self.one = torch.ones((), dtype=torch.float32, device=tensors.q.device)  # replaces descales that are None

    def set_kernel(self, kernel: kernels.Compiled, values: list[Any], given: tuple[Any, ...] = ()) -> None:
        """Set the kernel. given: all tensors of a call, in the order of CacheTensors and NewTensors."""
        super().set_kernel(kernel, values)
        for number, (name, tensor) in enumerate(zip(NAMES, given, strict=True)):
            if name in self.places and tensor is not None:
                self.inputs.append((self.places[name], number))
            elif name in self.places:
                self.without_descale.append(self.places[name])

    def attend(self, tensors: CacheTensors | tuple[Any, ...], new: NewTensors | tuple[Any, ...]) -> Result:
        """Append, then compute attention. Prepare the attention once: it is the same for all calls with equal facts."""
        q, lengths = self.run(tensors, new)
        given = (q, *tensors[1:3], lengths, *tensors[4:])
        if self.attention is None:
            self.attention = attention.prepared(given, self.asked[0])
        return self.attention.run(given)

    def run(self, tensors: CacheTensors | tuple[Any, ...], new: NewTensors | tuple[Any, ...]) -> tuple[Any, Any]:
        """Append on torch's current stream. Return Q (rotated, if there is rotary embedding) and the new lengths."""
        q, lengths = tensors[0], tensors[3]
        if self.kernel is None:
            return q, lengths
        if self.copies:
            q, k_new, v_new = (aligned_copy(t) for t in (q, *new[:2]))
            return append((q, *tensors[1:]), (k_new, v_new, *new[2:]), *self.asked)
        buffer = getattr(self.local, "buffer", None) or self.make_buffer(self.kernel)
        words, given = buffer.words, (*tensors, *new)
        for place, number in self.inputs:
            words[place] = given[number].data_ptr()
        for place in self.without_descale:
            words[place] = self.one.data_ptr()
        with_new, turned = torch.empty_like(lengths), q
        words[self.places["new_seqlens"]] = with_new.data_ptr()
        if self.turns:
            turned = torch.empty_like(q) if self.contiguous else q.new_empty(q.shape)
            words[self.places["q_out"]] = turned.data_ptr()
        enter(self.kernel, buffer, self.places["stream"], self.index)
        return turned, with_new


def facts_of(
    tensors: CacheTensors | tuple[Any, ...],
    new: NewTensors | tuple[Any, ...],
    asked: tuple[Any, ...],
    interleaved: bool,
) -> tuple[Any, ...]:
    """Collect everything that decides how a call is launched, except addresses and the stream."""
    facts = attention.facts_of(tensors, asked)
    for t in new:
        facts += (t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()),)
    mean = new[4]
    return (*facts, interleaved, misaligned(tensors, new), mean is not None and mean.data_ptr() % ALIGN_BYTES)


def misaligned(tensors: CacheTensors | tuple[Any, ...], new: NewTensors | tuple[Any, ...]) -> int:
    """Return 0 if the addresses of q, k_new and v_new are multiples of 16 bytes, which the kernel needs."""
    at: int = (tensors[0].data_ptr() | new[0].data_ptr() | new[1].data_ptr()) % ALIGN_BYTES
    return at


def prepare(
    facts: tuple[Any, ...], tensors: CacheTensors, new: NewTensors, call: CacheCall, interleaved: bool
) -> PreparedAppend:
    """Check the whole call, get the append kernel, and keep the result under `facts`.

    Raises TypeError or ValueError if the append or the attention after it is not supported, before anything is written.
    Raises the errors of compile.cache.get.
    """
    check(tensors, call)
    check_new(tensors, new, call.max_seqlen_q)
    check_mean(tensors, new, call)
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
        made.set_kernel(kernel, fill(kernel, _arguments(tensors, new, call, tokens)), (*tensors, *new))
    return keep(prepared_calls, facts, made)


def config_of(tensors: CacheTensors, new: NewTensors, interleaved: bool) -> AppendConfig:
    """Choose the kernel that appends k_new and v_new."""
    q, table = tensors.q, new.rotary_cos
    return AppendConfig(
        arch=device_facts(q.get_device())[0],
        dtype=DTYPES[q.dtype],
        kv_dtype=tensors.kv_dtype,
        head_dim=q.shape[-1],
        rotary="" if table is None else "interleaved" if interleaved else "half",
        table_dtype="fp32" if table is not None and table.dtype == torch.float32 else "",
        varlen=tensors.cu_seqlens_q is not None,
        paged=tensors.block_table is not None,
        smooth=new.k_mean is not None,
    )


def _arguments(tensors: CacheTensors, new: NewTensors, call: CacheCall, tokens: int) -> dict[str, Any]:
    """Map the names of the kernel's arguments to their values: (sizes, strides) of a tensor, or a number."""
    arguments = score_arguments(tensors, call) | attention.cache_arguments(tensors)
    for name, t in (("k_new", new.k_new), ("v_new", new.v_new)):
        arguments[name] = (t.shape, kernel_strides(t))
    for name, table in (("rotary_cos", new.rotary_cos), ("rotary_sin", new.rotary_sin)):
        if table is not None:
            arguments[name] = (table.shape, table.stride())
    if new.k_mean is not None:
        arguments["k_mean"] = (new.k_mean.shape, new.k_mean.stride())
    unpacked = tensors.cu_seqlens_q is None
    return arguments | {
        "q_out": arguments["o"],
        "new_seqlens": arguments["cache_seqlens"],
        "tokens": tokens,
        "seqlen_q": tensors.q.shape[1] if unpacked and new.rotary_cos is not None else 0,
        "seqlen_new": new.k_new.shape[1] if unpacked else 0,
        # As in flash-attn: without a mask all queries have the position of the first new key.
        "q_step": int(call.visible != (False, -1, -1)),
    }


def prepared(
    tensors: CacheTensors | tuple[Any, ...],
    new: NewTensors | tuple[Any, ...],
    asked: tuple[Any, ...],
    interleaved: bool,
) -> PreparedAppend:
    """Look up the prepared call; prepare it if it is the first of its kind. asked: see kv_cache.launch.launch."""
    try:
        facts = facts_of(tensors, new, asked, interleaved)
    except AttributeError:
        check_types(CacheTensors(*tensors))
        check_types(NewTensors(*new))
        raise
    found = prepared_calls.get(facts)
    if found is None:
        visible, *others = asked
        call = CacheCall(Bounds(*visible), *others)
        found = prepare(facts, CacheTensors(*tensors), NewTensors(*new), call, interleaved)
    return found


def append(*call: Any) -> tuple[Any, Any]:
    """Append without attention. call: the arguments of `prepared`. Returns what PreparedAppend.run returns."""
    return prepared(*call).run(*call[:2])


def launch(*call: Any) -> Result:
    """Append, then compute attention over all keys. call: the arguments of `prepared`."""
    return prepared(*call).attend(*call[:2])
