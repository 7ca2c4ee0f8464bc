"""Launch the Blackwell attention, and make the arguments and options with which Triton compiles it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..device.tma_descriptor import descriptor, descriptor_types
from ..host import Problem, Tensor, attend, check_config, check_problem, sm_count
from .config import AttentionConfig, default_config
from .kernel import attention_kernel

DTYPES = ("fp8e5", "fp8e4nv", "fp16", "bf16")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    config: AttentionConfig | None = None,
    name: str | None = None,
) -> Any:
    """Compute forward attention on an sm_100 or sm_103 GPU: softmax(scale * q k^T) v.

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim]. num_heads is a multiple
    of num_heads_kv; head_dim is 64 or 128; both lengths may be 0. One dtype for all: float8_e5m2, float8_e4m3fn,
    float16 or bfloat16. The last dimension is contiguous, all other strides are multiples of 16 bytes, and the tensors
    are 16-byte aligned.
    causal: None; "top-left": query i sees keys 0 .. i; "bottom-right": query i sees keys 0 .. i + seqlen_k - seqlen_q.
    scale: positive, head_dim ** -0.5 by default. config: `default_config(...)` by default. name: the entry's name; by
    default the name in the config.

    Returns o, like q (bfloat16 for fp8 inputs, or the config's choice). With return_lse it returns (o, lse); lse is
    fp32 [batch, num_heads, seqlen_q], the natural logarithm of each row's sum of exponentials. For a query that sees no
    key, o is 0 and lse is -inf.

    Raises TypeError or ValueError, before any GPU work, for arguments that the kernel does not support.
    """
    problem = check_problem(q, k, v, DTYPES, causal, scale, zero_strides=False)
    config = _fitting_config(problem, config, name)
    return attend(problem, config, q, k, v, launch, return_lse=return_lse)


def _fitting_config(problem: Problem, config: AttentionConfig | None, name: str | None) -> AttentionConfig:
    dtype, head_dim, causal = problem.dtype, problem.head_dim, problem.causal is not None
    if config is None:
        lengths = {"seqlen_q": problem.seqlen_q, "seqlen_k": problem.seqlen_k}
        config = default_config(problem.arch, dtype, head_dim, causal=causal, **lengths)
    else:
        check_config(config, dtype=dtype, head_dim=head_dim, causal=causal)
    if name is not None:
        config = replace(config, name=name)
    config.require(problem.arch, problem.seqlen_q, problem.seqlen_k)
    return config


def launch(config: AttentionConfig, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    """Start the kernel on checked tensors, with at most one CTA per SM."""
    batch_heads = problem.batch * problem.num_heads
    tiles = batch_heads * -(-problem.seqlen_q // config.block_m)
    tensors = {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": o}
    dtypes, boxes = config.dtypes, config.boxes
    attention_kernel[(min(tiles, sm_count(q.device)),)](
        scale=problem.scale,
        lse=lse,
        batch_heads=batch_heads,
        num_heads=problem.num_heads,
        qheads_per_kvhead=problem.qheads_per_kvhead,
        seqlen_q=problem.seqlen_q,
        seqlen_k=problem.seqlen_k,
        causal_offset=problem.causal_offset,
        **{desc: descriptor(x, dtypes[desc], boxes[desc]) for desc, x in tensors.items()},
        **constexprs(config),
        **compile_options(config),
    )


def constexprs(config: AttentionConfig) -> dict[str, Any]:
    """Make the kernel's compile-time arguments."""
    return {
        "NAME": config.name,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "HEAD_DIM": config.head_dim,
        "STAGES": config.stages,
        "CAUSAL": config.causal,
        "RAGGED": config.ragged,
        "PACKED_ROW_SUM": config.packed_row_sum,
        "EXP_PARTS": config.exp_parts,
        "FMA_PARTS": config.fma_parts,
        "FMA_DEGREE": config.fma_degree,
        "EXP_TURNS": config.turns,
        "EXP_BITS": config.exp_bits,
        "OUT_PARTS": config.out_parts,
        "SOFTMAX_REGS": config.softmax_regs,
    }


def compile_options(config: AttentionConfig) -> dict[str, Any]:
    """Choose the options of Triton's compiler.

    The default partition (correction) has four warps. Together with the other partitions there are 16 warps, so each
    thread starts with 128 registers. Fusion is set because its default differs between Triton versions.
    """
    return {"num_warps": 4, "maxnreg": 128, "enable_fp_fusion": True}


def offline_arguments(config: AttentionConfig, with_lse: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Make the constexprs, and the types of all other arguments that are not i32. The kernel always writes lse."""
    types = {"scale": "fp32", "lse": "*fp32"} | descriptor_types(config.dtypes, config.boxes)
    return constexprs(config), types
