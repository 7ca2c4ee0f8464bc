"""Work done once for calls with equal facts: check, choose and load the kernel, fill in its arguments."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeVar

import torch

from ..compile import abi
from ..compile import cache as kernels
from ..config import ALIGNMENTS, FP8, FP8_MMA_VARIABLE, FP8_MMAS, Config
from ..mask_bounds import whole_tiles
from ..planner import Shape, plan
from .call import DESCALES, DTYPES, OUT_DTYPES, Call, Tensors, features_of, output_dtype
from .checks import check
from .hot_path import PreparedCall, Result, facts_of
from .strides import contiguous_strides, is_aligned, kernel_strides, lse_shape

ARCHS = {(12, 0): "sm_120a", (12, 1): "sm_121a", (9, 0): "sm_90a"}
KEPT_CALLS = 4096  # most prepared calls that are kept; each takes a few KB
LOG2_E = math.log2(math.e)
Kept = TypeVar("Kept")

# facts_of -> PreparedCall. `attention`, its operator and `forward` have different keys for the same call.
prepared_calls: dict[tuple[Any, ...], PreparedCall] = {}


def forward(tensors: Tensors, call: Call) -> Result:
    """Launch a Call, which may select its kernel; return O, and LSE or None. Does not wait for the GPU."""
    facts = facts_of(tensors, call)
    return (prepared_calls.get(facts) or prepare(facts, tensors, call)).run(tensors)


def prepare(facts: tuple[Any, ...], tensors: Tensors, call: Call) -> PreparedCall:
    """Check a call, get its kernel, and keep the result under `facts`.

    Raises TypeError or ValueError for a call that is not supported, and the errors of compile.cache.get.
    """
    check(tensors, call)
    made = _prepare(tensors, call)
    return keep(prepared_calls, facts, made)


def keep(calls: dict[tuple[Any, ...], Kept], facts: tuple[Any, ...], made: Kept) -> Kept:
    """Keep a prepared call for calls with equal facts."""
    if len(calls) >= KEPT_CALLS:
        calls.clear()
    calls[facts] = made
    return made


def _prepare(tensors: Tensors, call: Call) -> PreparedCall:
    """Make a PreparedCall. Compile or load its kernel if this process has not done so yet."""
    q, k, v = tensors[:3]
    made = PreparedCall(tensors, call, tuple(not is_aligned(t) for t in (q, k, v)), forward)
    shape = shape_of(tensors, call)
    config = call.config or planned(shape)  # before the return below: planned may raise ValueError
    if not (q.numel() and k.numel() and call.max_seqlen_q and call.max_seqlen_k and shape.batch):
        return made
    refuse_in_capture(config, "attention")
    kernel = kernels.get(config)
    values = _arguments(tensors, call, shape)
    if config.fp8:
        made.one = torch.ones((), dtype=torch.float32, device=q.device)
    made.set_kernel(kernel, fill(kernel, values))
    return made


def _arguments(tensors: Tensors, call: Call, shape: Shape) -> dict[str, Any]:
    """Map the names of the kernel's arguments to their values: (sizes, strides) of a tensor, or a number."""
    cu_seqlens = ((shape.batch + 1,), (1,))
    arguments = score_arguments(tensors, call) | {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
    for name, tensor, descale in zip(DESCALES, tensors[:3], tensors.descales, strict=True):
        arguments[name] = descale_argument(descale, shape.batch, tensor.shape[-2])
    return arguments


def score_arguments(tensors: Any, call: Any) -> dict[str, Any]:
    """Make the arguments that all attention kernels share. tensors, call: as in features_of."""
    q, k, v = tensors[:3]
    left, right = call.visible.sides
    return {
        "q": (q.shape, kernel_strides(q)),
        "k": (k.shape, kernel_strides(k)),
        "v": (v.shape, kernel_strides(v)),
        "o": (q.shape, contiguous_strides(q.shape)),
        "lse": (lse_shape(q), contiguous_strides(lse_shape(q))),
        "sinks": ((q.shape[-2],), (1,)),
        "max_seqlen_q": call.max_seqlen_q,
        "scale_log2": call.scale * LOG2_E,
        "softcap": call.softcap,
        "window_left": left,
        "window_right": right,
        "stream": 0,
    }


def descale_argument(descale: torch.Tensor | None, batch: int, heads: int) -> tuple[Any, Any]:
    """Compute sizes and strides of a descale, [batch, heads]. A single number has strides of 0."""
    return (batch, heads), (0, 0) if descale is None or descale.numel() == 1 else descale.stride()


def fill(kernel: kernels.Compiled, arguments: dict[str, Any]) -> list[Any]:
    """List the values of a kernel's slots for these arguments, with addresses of 0."""
    values: list[Any] = []
    for slot in kernel.layout.slots:
        argument = arguments[slot.name]
        values += abi.tensor_values(slot, 0, *argument) if slot.rank else (argument,)
    return values


def refuse_in_capture(config: Any, function: str) -> None:
    """Raise RuntimeError if a kernel would be compiled or loaded while a CUDA graph is captured."""
    if not kernels.is_ready(config) and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{config.name} is not compiled yet, and a CUDA graph is being captured: "
            f"call {function} once with such tensors before the capture"
        )


def shape_of(tensors: Tensors, call: Call) -> Shape:
    """Compute the Shape by which the kernel is chosen, with lengths in whole tiles."""
    q = tensors.q
    arch, sms = device_facts(q.get_device())
    # If there are as many queries as keys, both values of `align` mean the same.
    square = tensors.cu_seqlens_q is None and call.max_seqlen_q == call.max_seqlen_k
    return Shape(
        arch=arch,
        dtype=DTYPES[q.dtype],
        head_dim=q.shape[-1],
        batch=tensors.batch,
        heads=q.shape[-2],
        heads_kv=tensors.k.shape[-2],
        seqlen_q=whole_tiles(call.max_seqlen_q),
        seqlen_k=whole_tiles(call.max_seqlen_k),
        sms=sms,
        align=ALIGNMENTS[0] if square else call.align,
        out_dtype=OUT_DTYPES[output_dtype(q, call.out_dtype)] if DTYPES[q.dtype] in FP8 else "",
        **features_of(tensors, call)._asdict(),
    )


@lru_cache(maxsize=4096)
def planned(shape: Shape) -> Config:
    """Compute plan(shape).config. The result is cached, because text generation has thousands of lengths."""
    config = plan(shape).config
    return replace(config, fp8_mma=fp8_mma()) if config.fp8 else config


def fp8_mma() -> str:
    """Read from the environment which of FP8_MMAS to use."""
    asked = os.environ.get(FP8_MMA_VARIABLE, FP8_MMAS[0])
    if asked not in FP8_MMAS:
        raise ValueError(f"{FP8_MMA_VARIABLE}={asked}: must be one of {', '.join(FP8_MMAS)}, or not be set")
    return asked


@cache
def device_facts(index: int) -> tuple[str, int]:
    """Return ptxas's name of a device's architecture, and its number of multiprocessors."""
    properties = torch.cuda.get_device_properties(index)
    capability = (properties.major, properties.minor)
    if capability not in ARCHS:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHS)
        raise ValueError(
            f"{properties.name} has compute capability {capability[0]}.{capability[1]}: must be one of {known}"
        )
    return ARCHS[capability], properties.multi_processor_count
