"""Launch the Hopper attention, and make the arguments and options with which Triton compiles it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

from ..device.constants import Constants
from ..device.tma_descriptor import descriptor, descriptor_types
from ..driver import uncaptured
from ..host import Problem, Tensor, attend, check_problem, sm_count
from ..hot_path import Launched, call, keep
from .config import HopperConfig, default_config
from .kernel import FLOATS, attention_kernel
from .tile_order import tile_order

DTYPES = ("fp8e5", "fp8e4nv", "fp16", "bf16")
LOG2_E = 1.4426950408889634
# Lengths are rounded up to a multiple of this before tiles are ordered, so that fewer orders are computed and stored.
# An order needs no exact lengths, as it is based on an estimate.
LENGTH_STEP = 128


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    config: HopperConfig | None = None,
    name: str | None = None,
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Any:
    """Compute forward attention on an sm_90 GPU: softmax(scale * q k^T) v.

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim]. num_heads is a multiple
    of num_heads_kv; head_dim is 64, 128 or 256; both lengths may be 0. One dtype for all: float16, bfloat16,
    float8_e4m3fn or float8_e5m2. The last dimension is contiguous, all other strides are multiples of 16 bytes, and the
    tensors are 16-byte aligned.
    causal: None; "top-left": query i sees keys 0 .. i; "bottom-right": query i sees keys 0 .. i + seqlen_k - seqlen_q.
    scale: positive, head_dim ** -0.5 by default. descale: factors by which fp8 q, k and v are multiplied. config: a
    HopperConfig instead of the default one; its dtype, head_dim and causal are replaced by those of the call. name: the
    entry's name; by default the name in the config.

    Returns o, like q (bfloat16 for fp8 inputs). With return_lse it returns (o, lse); lse is fp32 [batch, num_heads,
    seqlen_q], the natural logarithm of each row's sum of exponentials. For a query that sees no key, o is 0 and lse is
    -inf.

    Accuracy of fp8. The tensor cores add up the fp8 products of a score with about 13 bits, so scores and lse have an
    error of up to head_dim * 2 ** -17 of the largest partial sum. With scores in the thousands o is useless. A row's
    sum adds fp16 probabilities, up to 32 of them in fp16: its relative error is up to 2 ** -10. All else is as exact as
    with fp16.

    Raises TypeError or ValueError, before any GPU work, for arguments that the kernel does not support.
    """
    return call(
        "hopper",
        first_call,
        q,
        k,
        v,
        causal=causal,
        scale=scale,
        return_lse=return_lse,
        config=config,
        name=name,
        descale=descale,
    )


def first_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None,
    scale: float | None,
    return_lse: bool,
    config: HopperConfig | None,
    name: str | None,
    descale: tuple[float, float, float],
    facts: Any = None,
) -> Any:
    """Check a call and launch it through Triton. Keep the launch for later calls with equal `Facts` (hot_path.py)."""
    q_descale, k_descale, v_descale = descale
    problem = check_problem(q, k, v, DTYPES, causal, scale, descale=q_descale * k_descale)
    config = _fitting_config(problem, config, name)
    scaled = partial(launch, out_scale=float(v_descale))
    kept = partial(keep, facts)
    return attend(problem, config, q, k, v, scaled, return_lse=return_lse, needs_lse=False, keep=kept)


def _fitting_config(problem: Problem, config: HopperConfig | None, name: str | None) -> HopperConfig:
    dtype, head_dim, causal = problem.dtype, problem.head_dim, problem.causal
    if config is None:
        config = default_config(problem.arch, dtype, head_dim, causal, problem.seqlen_q)
    else:
        config = replace(config, dtype=dtype, head_dim=head_dim, causal=causal)
    if name is not None:
        config = replace(config, name=name)
    config.require(problem.arch)
    return config


def launch(
    config: HopperConfig,
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor | None,
    out_scale: float,
) -> Launched:
    """Start the kernel on checked tensors, with at most one CTA per SM. O is multiplied by `out_scale`.

    With lse=None it writes no lse.
    """
    tensors = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}
    dtypes, boxes = config.dtypes, config.boxes
    batch_heads = problem.batch * problem.num_heads
    programs = min(sm_count(q.device), batch_heads * -(-problem.seqlen_q // config.block_m))
    nothing = unread(q.device)
    order = nothing
    if config.ordered:
        lengths = [-(-n // LENGTH_STEP) * LENGTH_STEP for n in (problem.seqlen_q, problem.seqlen_k)]
        tiles = -(-problem.seqlen_q // config.block_m)
        order = order_on_gpu(config, batch_heads, problem.qheads_per_kvhead, *lengths, tiles, programs, q.device)
    arguments = {name: descriptor(x, dtypes[name], boxes[name]) for name, x in tensors.items()} | {
        "lse": nothing if lse is None else lse,
        "lse_rows": 0 if lse is None else problem.seqlen_q,
        "scale": problem.scale,
        "score_scale": problem.scale * LOG2_E,
        "out_scale": out_scale,
        "causal_offset": problem.causal_offset,
        "batch": problem.batch,
        "num_heads": problem.num_heads,
        "qheads_per_kvhead": problem.qheads_per_kvhead,
        "seqlen_q": problem.seqlen_q,
        "seqlen_k": problem.seqlen_k,
        "order": order,
    }
    compiled = attention_kernel[(programs,)](**arguments, **constexprs(config), **compile_options(config))
    named = {"q_desc": "q", "k_desc": "k", "v_desc": "v", "o_desc": "o"} | ({} if lse is None else {"lse": "lse"})
    return Launched(compiled, (programs,), arguments, named)


@cache
def unread(device: Any) -> Tensor:
    """Make a tensor for arguments that the kernel never accesses. It is never freed: CUDA graphs keep its address."""
    import torch

    with uncaptured(), torch.cuda.stream(torch.cuda.Stream(device)):
        return torch.empty(4, dtype=torch.float32, device=device)


@cache
def order_on_gpu(
    config: HopperConfig,
    batch_heads: int,
    qheads_per_kvhead: int,
    seqlen_q: int,
    seqlen_k: int,
    tiles: int,
    programs: int,
    device: Any,
) -> Tensor:
    """Copy tile_order to the GPU, for `tiles` tiles of each head. The tensor is never freed: CUDA graphs may read it.

    The copy runs on its own stream, so it waits for no other work and is not captured into a CUDA graph.
    """
    import torch

    order = tile_order(config, batch_heads, qheads_per_kvhead, seqlen_q, seqlen_k, programs, tiles)
    with uncaptured(), torch.cuda.stream(torch.cuda.Stream(device)):
        return torch.tensor(order, dtype=torch.int32, device=device)


def constexprs(config: HopperConfig) -> dict[str, Any]:
    """Make the kernel's compile-time arguments."""
    return {"NAME": config.name, "OPTIONS": Constants(config.options)}


def compile_options(config: HopperConfig) -> dict[str, Any]:
    """Choose the options of Triton's compiler.

    The default partition (load) has four warps. Fusion is set because its default differs between Triton versions.
    """
    return {"num_warps": 4, "maxnreg": config.entry_registers, "enable_fp_fusion": True}


def offline_arguments(config: HopperConfig, with_lse: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Make the constexprs, and the types of all other arguments that are not i32."""
    types = dict.fromkeys(FLOATS, "fp32") | {"lse": "*fp32", "order": "*i32" if config.ordered else "*fp32"}
    return constexprs(config), types | descriptor_types(config.dtypes, config.boxes)
