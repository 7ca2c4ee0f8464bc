"""Launch the Hopper attention: `attention`, and what Triton needs to compile the kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from ..device.exp2_polynomial import softmax_exp2_asm
from ..device.fp8_codes import CODES
from ..device.tma_descriptor import descriptor, descriptor_types, tma_strides
from ..device.triton_compat import release
from ..host import Problem, Tensor, attend, check_problem, sm_count
from .config import HopperConfig, default_config
from .kernel import FLOATS, attention_kernel
from .softmax import EXP2_PACK
from .tile_order import tile_order
from .transpose import transpose_kernel

DTYPES = ("fp8e5", "fp8e4nv", "fp16", "bf16")
LOG2_E = 1.4426950408889634
# transpose_kernel: columns of the transposed V come in whole groups of 16, and a program makes 128 of them.
COLUMN_GROUP = 16
TRANSPOSE_BLOCK = 128


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
    """Forward attention on an sm_90 GPU: softmax(scale * q k^T) v.

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim]. num_heads is a multiple
    of num_heads_kv; head_dim is 64, 128 or 256; both lengths may be 0. One dtype for all: float16, bfloat16,
    float8_e4m3fn or float8_e5m2. The last dimension is contiguous, all other strides are multiples of 16 bytes, and the
    tensors are 16-byte aligned.
    causal: None; "top-left": query i sees keys 0 .. i; "bottom-right": query i sees keys 0 .. i + seqlen_k - seqlen_q.
    scale: positive, head_dim ** -0.5 by default. descale: factors that turn fp8 q, k and v into their values. config: a
    HopperConfig instead of the default one; its dtype, head_dim and causal are replaced by those of the call. name: the
    entry's name, by default that of the config.

    Returns o, like q (bfloat16 for fp8 inputs), and with return_lse (o, lse): lse is fp32 [batch, num_heads, seqlen_q],
    the natural logarithm of each row's sum of exponentials. A query that sees no key gets 0 and -inf.

    Accuracy of fp8. Without return_lse exponentials are as rough as e4m3 (see HopperConfig.codes), and a score of NaN
    counts as a key that is not seen, unless the row has no other score; config=default_config(..., lse=True) makes
    exponentials exact. The tensor cores add up fp8 products with few bits: scores are off by up to head_dim * 2 ** -17
    of the largest partial sum, and so is lse. With scores in the thousands o is useless.

    Raises TypeError or ValueError for arguments that the kernel cannot take, before it touches the GPU.
    """
    q_descale, k_descale, v_descale = descale
    problem = check_problem(q, k, v, DTYPES, causal, scale, descale=q_descale * k_descale)
    config = _fitting_config(problem, config, name, return_lse)
    return attend(problem, config, q, k, v, partial(launch, out_scale=float(v_descale)), return_lse=return_lse)


def _fitting_config(problem: Problem, config: HopperConfig | None, name: str | None, return_lse: bool) -> HopperConfig:
    dtype, head_dim, causal = problem.dtype, problem.head_dim, problem.causal
    if config is None:
        exact = return_lse or not codes_fit(head_dim)
        config = default_config(problem.arch, dtype, head_dim, causal, problem.seqlen_q, lse=exact)
    else:
        codes = config.codes and not return_lse
        config = replace(config, dtype=dtype, head_dim=head_dim, causal=causal, codes=codes)
    if name is not None:
        config = replace(config, name=name)
    config.require(problem.arch)
    return config


def codes_fit(head_dim: int) -> bool:
    """Whether ptxas has registers for the form with codes. With Triton 3.9's code for 256 it serialises the MMAs."""
    return head_dim < 256 or release() < (3, 9)


def launch(
    config: HopperConfig,
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    out_scale: float = 1.0,
) -> None:
    """Start the kernel on checked tensors, with at most one CTA per SM. O is multiplied by `out_scale`."""
    if config.transpose_v:
        v = byte_pairs(v)
    elif config.fp8:
        v = transposed_values(v)
    tensors = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}
    dtypes, boxes = config.dtypes, config.boxes
    batch_heads = problem.batch * problem.num_heads
    programs = min(sm_count(q.device), batch_heads * -(-problem.seqlen_q // config.block_m))
    order = lse  # not read by a kernel that is not ordered
    if config.ordered:
        lengths = problem.seqlen_q, problem.seqlen_k
        order = order_on_gpu(config, batch_heads, problem.qheads_per_kvhead, *lengths, programs, q.device)
    attention_kernel[(programs,)](
        **{name: descriptor(x, dtypes[name], boxes[name]) for name, x in tensors.items()},
        lse=lse,
        scale=problem.scale,
        score_scale=problem.scale * LOG2_E,
        out_scale=out_scale,
        causal_offset=problem.causal_offset,
        batch=problem.batch,
        num_heads=problem.num_heads,
        qheads_per_kvhead=problem.qheads_per_kvhead,
        seqlen_q=problem.seqlen_q,
        seqlen_k=problem.seqlen_k,
        order=order,
        **constexprs(config),
        **compile_options(config),
    )


@lru_cache(maxsize=256)
def order_on_gpu(
    config: HopperConfig,
    batch_heads: int,
    qheads_per_kvhead: int,
    seqlen_q: int,
    seqlen_k: int,
    programs: int,
    device: Any,
) -> Tensor:
    """tile_order as a tensor. It is kept, because shapes repeat and it takes a millisecond to make."""
    import torch

    order = tile_order(config, batch_heads, qheads_per_kvhead, seqlen_q, seqlen_k, programs)
    return torch.tensor(order, dtype=torch.int32, device=device)


def byte_pairs(x: Tensor) -> Tensor:
    """Two columns of 8 bits as one of 16. torch would refuse odd strides even of dimensions with one element."""
    import torch

    return x.as_strided(x.shape, tma_strides(x.shape, x.stride())).view(torch.int16)


def transposed_values(v: Tensor) -> Tensor:
    """fp8 V as [batch, num_heads_kv, head_dim, keys], with keys in the order of key_of_column and a multiple of 16."""
    import torch

    batch, num_heads_kv, seqlen_k, head_dim = v.shape
    columns = -(-seqlen_k // COLUMN_GROUP) * COLUMN_GROUP
    out = torch.empty((batch, num_heads_kv, head_dim, columns), dtype=v.dtype, device=v.device)
    strides = (*v.stride()[:3], *out.stride()[:3])
    transpose_kernel[(-(-seqlen_k // TRANSPOSE_BLOCK), num_heads_kv, batch)](
        v.view(torch.int8), out.view(torch.int8), seqlen_k, columns, *strides, head_dim, TRANSPOSE_BLOCK
    )
    return out


def constexprs(config: HopperConfig) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    code = CODES[config.dtype] if config.codes else None
    return {
        "NAME": config.name,
        "CONSUMERS": config.consumers,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal is not None,
        "ORDERED": config.ordered,
        "UNEVEN": config.uneven,
        "TRANSPOSE_V": config.transpose_v,
        "TURNS": config.turns,
        "KEEP_Q": config.keep_q,
        "Q_EARLY": config.q_early,
        "OVERLAP": config.overlap,
        "GUESS": config.guess,
        "INT_MAX": config.int_max,
        "EXP2_ASM": softmax_exp2_asm(EXP2_PACK.value, config.by_fma),
        "CODES": config.codes,
        "CODES_ASM": code.asm(config.guess) if code else "",
        "CODE_SCALE": code.scale if code else 0.0,
        "CODE_START": code.start if code else 0.0,
        "GUARDS": code.guards if code and config.guess else 0,
        "ONE": code.one if code else 0,
        "SHARED_OUT": config.shared_out,
        "REGISTERS": config.consumer_registers,
        "LAZY_BITS": config.lazy_bits,
        "MARGIN_BITS": config.margin_bits,
        "MOST_LANE_SUM": config.most_lane_sum,
        "HEAD_BITS": config.head_bits,
    }


def compile_options(config: HopperConfig) -> dict[str, Any]:
    """Options of Triton's compiler.

    The default partition (load) has four warps. Fusion is named because its default changes with the Triton version.
    """
    return {"num_warps": 4, "maxnreg": config.entry_registers, "enable_fp_fusion": True}


def offline_arguments(config: HopperConfig, with_lse: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Constexprs, and the types of the other arguments that are no i32."""
    if with_lse:
        config = replace(config, codes=False)
    types = dict.fromkeys(FLOATS, "fp32") | {"lse": "*fp32", "order": "*i32" if config.ordered else "*fp32"}
    return constexprs(config), types | descriptor_types(config.dtypes, config.boxes)
