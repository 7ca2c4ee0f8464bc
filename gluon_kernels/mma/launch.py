"""Launch the mma.sync attention, and make the arguments and options with which Triton compiles it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..device.other_scheduler import best_trigger
from ..host import VECTOR_BYTES, Problem, Tensor, attend, check_config, check_problem
from ..hot_path import Launched, call, keep
from .config import DTYPES, MmaConfig, default_config
from .kernel import attention_kernel

# Bytes of the L2 cache that K and V of the heads that run at the same time may take. From sm_80 to sm_120 the cache has
# 40 MiB or more.
L2_BYTES = 24 * 1024 * 1024


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    config: MmaConfig | None = None,
    name: str | None = None,
) -> Any:
    """Compute forward attention with mma.sync: softmax(scale * q k^T) v.

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim]. num_heads is a multiple
    of num_heads_kv; head_dim is 64, 128 or 256; both lengths may be 0. One dtype for all: float16, bfloat16, or
    float8_e4m3fn (not on sm_80). The last dimension is contiguous, all other strides are multiples of 16 bytes, and the
    tensors are 16-byte aligned.
    causal: None; "top-left": query i sees keys 0 .. i; "bottom-right": query i sees keys 0 .. i + seqlen_k - seqlen_q.
    scale: positive, head_dim ** -0.5 by default. config: by default `default_config(...)` for this GPU; it selects
    ptxas's other scheduler by the pragma `mma_throughput` if Triton's ptxas supports it. name: name of the kernel's
    entry function; if set, the config's name and trigger have no effect.

    Returns o, like q (bfloat16 for fp8 inputs). With return_lse it returns (o, lse); lse is fp32 [batch, num_heads,
    seqlen_q], the natural logarithm of each row's sum of exponentials. For a query that sees no key, o is 0 and lse is
    -inf.

    Raises TypeError or ValueError, before any GPU work, for arguments that the kernel does not support.
    """
    return call("mma", first_call, q, k, v, causal=causal, scale=scale, return_lse=return_lse, config=config, name=name)


def first_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None,
    scale: float | None,
    return_lse: bool,
    config: MmaConfig | None,
    name: str | None,
    facts: Any = None,
) -> Any:
    """Check a call and launch it through Triton. Keep the launch for later calls with equal `Facts` (hot_path.py)."""
    problem = check_problem(q, k, v, DTYPES, causal, scale)
    config = _fitting_config(problem, config, name)
    kept = partial(keep, facts)
    return attend(problem, config, q, k, v, launch, return_lse=return_lse, needs_lse=False, keep=kept)


def _fitting_config(problem: Problem, config: MmaConfig | None, name: str | None) -> MmaConfig:
    if config is None:
        config = default_config(problem.arch, problem.dtype, problem.head_dim, problem.causal, problem.seqlen_q)
        if config.trigger is not None:
            config = replace(config, trigger=best_trigger(problem.arch))
    else:
        check_config(config, dtype=problem.dtype, head_dim=problem.head_dim, causal=problem.causal)
    if name is not None:
        config = replace(config, name=name, trigger=None)
    config.require(problem.arch)
    return config


def launch(
    config: MmaConfig, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor | None
) -> Launched:
    """Start the kernel on checked tensors. With lse=None it writes no lse."""
    batch_heads = problem.batch * problem.num_heads
    kv_bytes = 2 * problem.seqlen_k * problem.head_dim * config.element_bytes
    section = min(batch_heads, max(1, L2_BYTES // kv_bytes) * problem.qheads_per_kvhead)
    tiles = -(-problem.seqlen_q // config.block_m)
    tensors = (q, k, v, o)
    values = (
        q, k, v, o, o if lse is None else lse, problem.scale,
        problem.seqlen_q, problem.seqlen_k, problem.causal_offset,
        batch_heads, problem.num_heads, problem.qheads_per_kvhead, section,
        *[_vectors(x, dimension) for x in tensors for dimension in (0, 1)],
    )  # fmt: skip
    grid = (tiles * batch_heads,)
    fixed = constexprs(config, lse is not None, [_row_stride(x) for x in tensors])
    compiled = attention_kernel[grid](*values, **fixed, **compile_options(config))
    named = {"q": "q", "k": "k", "v": "v", "o": "o", "lse": "o" if lse is None else "lse"}
    return Launched(compiled, grid, dict(zip(attention_kernel.arg_names, values, strict=False)), named)


def _vectors(x: Tensor, dimension: int) -> int:
    """Return a stride in units of 16 bytes; 0 for a dimension of size 1, whose stride is arbitrary."""
    return x.stride(dimension) * x.element_size() // VECTOR_BYTES if x.shape[dimension] > 1 else 0


def _row_stride(x: Tensor) -> int:
    """Return the row stride in elements. A single row has an arbitrary stride; replace it by an aligned one."""
    stride: int = x.stride(2)
    return stride if stride * x.element_size() % VECTOR_BYTES == 0 else x.shape[3]


def constexprs(config: MmaConfig, with_lse: bool, row_strides: Sequence[int]) -> dict[str, Any]:
    """Make the kernel's compile-time arguments. `row_strides`: row strides of Q, K, V and O, in elements."""
    q_stride, k_stride, v_stride, o_stride = row_strides
    return {
        "NAME": config.entry,
        "HEAD_DIM": config.head_dim,
        "CAUSAL": config.causal is not None,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "STAGES": config.stages,
        "PARTS": config.parts,
        "KEEP_Q": config.keep_q,
        # O is computed from rounded probabilities and divided by their sum. lse needs the sum before rounding.
        "SUM_BY_MMA": config.sum_by_mma and not with_lse,
        "WITH_LSE": with_lse,
        "PRAGMA": config.trigger == "pragma",
        "Q_STRIDE": q_stride,
        "K_STRIDE": k_stride,
        "V_STRIDE": v_stride,
        "O_STRIDE": o_stride,
    }


def compile_options(config: MmaConfig) -> dict[str, Any]:
    """Choose the options of Triton's compiler. Fusion is set because its default differs between Triton versions."""
    return {"num_warps": config.warps, "enable_fp_fusion": True}


def offline_arguments(config: MmaConfig, with_lse: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Make the constexprs for contiguous tensors, and the types of all other arguments that are not i32."""
    types = dict.fromkeys(("q", "k", "v"), f"*{config.dtype}")
    types |= {"o": f"*{config.out_dtype}", "lse": "*fp32", "scale": "fp32"}
    return constexprs(config, with_lse, [config.head_dim] * 4), types
