"""The public functions `quantize` and `quantize_qkv`. Plain calls launch directly; traced calls use torch_op.py.

kernels/quantize/kernel.py documents the computation.
"""

from __future__ import annotations

import torch

from ..launch.hot_path import is_plain
from . import torch_op


def quantize(
    x: torch.Tensor,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to FP8: returns (y, descale), where x is about y * descale.

    x           [batch, seqlen, heads, head_dim], bfloat16, float16 or float32, any strides; head_dim 32 to 256 in steps
                of 8. Packed sequences: [total, heads, head_dim], with cu_seqlens (int32, [batch + 1]) and max_seqlen,
                the length of the longest sequence
    dtype       float8_e4m3fn or float8_e5m2
    y           x's shape, in dtype. Rows begin at multiples of 16 bytes, as `attention` requires; so y is contiguous if
                head_dim is a multiple of 16
    descale     float32, [batch, heads]: the largest absolute value of the head, divided by 448 (e5m2: 57344)

    y is x * (448 / amax), in float32, rounded to nearest; amax is the largest absolute value of the head. A head with
    no absolute value above 2^-100 has descale 1. A NaN makes the descale and all values of its head NaN. An infinity
    makes the descale infinite, becomes NaN itself, and makes the other values of its head 0.

    Does not wait for the GPU. Raises TypeError or ValueError for arguments that are not supported.
    """
    longest = _longest(cu_seqlens, max_seqlen, x, "max_seqlen", "cu_seqlens")
    run = torch_op.launch_one if is_plain(x) else torch.ops.sm120_attn.quantize
    y, descale = run(x, dtype, cu_seqlens, longest)
    return y, descale


def quantize_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype = torch.float8_e4m3fn,
    *,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
) -> tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Quantise three tensors in the same launches: returns ((q, k, v), (q_descale, k_descale, v_descale)).

    k and v may have other lengths and heads than q; head_dim and dtype must be the same. See `quantize`.
    """
    longest_q = _longest(cu_seqlens_q, max_seqlen_q, q, "max_seqlen_q", "cu_seqlens_q")
    longest_k = _longest(cu_seqlens_k, max_seqlen_k, k, "max_seqlen_k", "cu_seqlens_k")
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise ValueError("one of cu_seqlens_q and cu_seqlens_k is None: packed sequences need both")
    run = torch_op.launch_three if is_plain(q, k, v) else torch.ops.sm120_attn.quantize_qkv
    found = run(q, k, v, dtype, cu_seqlens_q, cu_seqlens_k, longest_q, longest_k)
    return found[:3], found[3:]


def _longest(
    cu_seqlens: torch.Tensor | None, longest: int | None, x: torch.Tensor, name: str, cu_seqlens_name: str
) -> int:
    """Compute the length of the longest sequence. It is 0 for invalid tensors, which the launch's checks refuse."""
    if cu_seqlens is not None:
        if longest is None:
            raise ValueError(
                f"{name} is needed with {cu_seqlens_name}: to read it from there, the host would have to wait for the "
                "GPU"
            )
        return longest
    return x.shape[1] if isinstance(x, torch.Tensor) and x.dim() == 4 else 0
