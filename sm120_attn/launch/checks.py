"""Check that a call is supported. Does not read data; the limits of kernels are in config.why_not."""

from __future__ import annotations

import math

import torch

from ..config import ALIGNMENTS, FP8
from ..mask_bounds import Bounds
from .call import DESCALES, DTYPES, OUT_DTYPES, Call, Tensors

BATCH, PACKED = "[batch, sequence, heads, head_dim]", "[total, heads, head_dim]"
MAX_SIZE = 2**31 - 1  # sizes are passed to kernels as int32, strides as int64


def check(tensors: Tensors, call: Call) -> None:
    """Raise TypeError or ValueError, with the wrong value and the requirement, if a call is not supported."""
    q, k, v = tensors[:3]
    check_kinds({"q": q, "k": k, "v": v}, q, PACKED if tensors.varlen else BATCH)
    heads_axis = 1 if tensors.varlen else 2
    if k.shape[heads_axis] != v.shape[heads_axis] or k.shape[:heads_axis] != v.shape[:heads_axis]:
        raise ValueError(f"k is {sizes(k)} and v is {sizes(v)}: all sizes but the last must be the same")
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError(f"head_dim is {q.shape[-1]} in q, {k.shape[-1]} in k, {v.shape[-1]} in v: must be the same")
    check_heads(q.shape[heads_axis], k.shape[heads_axis])
    if tensors.varlen:
        _check_varlen(tensors, call)
    elif q.shape[0] != k.shape[0]:
        raise ValueError(f"batch is {q.shape[0]} in q and {k.shape[0]} in k: must be the same")
    if call.align not in ALIGNMENTS:
        raise ValueError(f"align is {call.align!r}: must be {' or '.join(map(repr, ALIGNMENTS))}")
    check_scores(call.scale, call.softcap, call.visible)
    if tensors.sinks is not None:
        check_sinks(tensors.sinks, q)
    if DTYPES[q.dtype] in FP8:
        _check_fp8(tensors, call)
    else:
        _check_16_bit(tensors, call)


def check_kinds(
    tensors: dict[str, torch.Tensor], q: torch.Tensor, form: str, also: tuple[torch.dtype, ...] = ()
) -> None:
    """Raise TypeError or ValueError unless each tensor has as many dimensions as `form`, and q's dtype and device.

    also: dtypes that are allowed in addition to q's.
    """
    for name, tensor in tensors.items():
        if tensor.dim() != form.count(",") + 1:
            raise ValueError(f"{name} has {tensor.dim()} dimensions {sizes(tensor)}: must be {form}")
        if tensor.dtype not in (q.dtype, *also):
            other = f", or {', '.join(map(str, dict.fromkeys(also)))}" if also else ""
            raise TypeError(f"{name} is {tensor.dtype} and q is {q.dtype}: must be the same{other}")
        if tensor.dtype not in (*DTYPES, *also):
            raise TypeError(f"{name} is {tensor.dtype}: must be one of {', '.join(map(str, DTYPES))}")
        if tensor.device.type != "cuda":
            raise ValueError(f"{name} is on {tensor.device}: must be on a CUDA device")
        check_device(name, tensor, q)
        if max(tensor.shape) > MAX_SIZE:
            raise ValueError(f"{name} has a size of {max(tensor.shape)}: must be at most {MAX_SIZE}")


def check_device(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: must be the same device")


def _check_varlen(tensors: Tensors, call: Call) -> None:
    cu_seqlens_q, cu_seqlens_k = tensors.cu_seqlens_q, tensors.cu_seqlens_k
    for name, tensor in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if tensor is None:
            raise ValueError(f"{name} is missing: packed sequences need both cu_seqlens_q and cu_seqlens_k")
        check_cu_seqlens(name, tensor, tensors.q)
    assert cu_seqlens_q is not None and cu_seqlens_k is not None
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ValueError(
            f"cu_seqlens_q has {cu_seqlens_q.shape[0]} entries and cu_seqlens_k {cu_seqlens_k.shape[0]}: "
            "must be batch + 1 in both"
        )
    for name, longest in (("max_seqlen_q", call.max_seqlen_q), ("max_seqlen_k", call.max_seqlen_k)):
        if not 0 <= longest <= MAX_SIZE:
            raise ValueError(f"{name} is {longest}: must be the longest sequence's number of rows, 0 to {MAX_SIZE}")


def check_cu_seqlens(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    """Raise TypeError or ValueError unless `tensor` is int32 [batch + 1], contiguous, on q's device."""
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} is {tensor.dtype}: must be torch.int32")
    if tensor.dim() != 1 or tensor.shape[0] < 1 or tensor.stride(0) != 1:
        raise ValueError(f"{name} is {sizes(tensor)}: must be contiguous, of one dimension, [batch + 1]")
    check_device(name, tensor, q)


def check_heads(num_heads: int, num_heads_kv: int) -> None:
    if num_heads_kv == 0 or num_heads % num_heads_kv:
        raise ValueError(
            f"{num_heads} query heads and {num_heads_kv} key heads: the first must be a multiple of the second"
        )


def check_scores(scale: float, softcap: float, visible: Bounds) -> None:
    """Raise ValueError if scale, softcap or a window size is out of range."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale is {scale}: must be finite and greater than 0")
    if not (math.isfinite(softcap) and softcap >= 0):
        raise ValueError(f"softcap is {softcap}: must be finite and at least 0 (0: no softcap)")
    for name, keys in (("left", visible.left), ("right", visible.right)):
        if not -1 <= keys <= MAX_SIZE:
            raise ValueError(f"window's {name} is {keys}: must be 0 to {MAX_SIZE}, or -1 (or None) for all")


def _check_16_bit(tensors: Tensors, call: Call) -> None:
    q = tensors.q
    if call.out_dtype not in (None, q.dtype):
        raise TypeError(f"out_dtype is {call.out_dtype} with {q.dtype} inputs: must be None or the dtype of the inputs")
    for name, descale in zip(DESCALES, tensors.descales, strict=True):
        if descale is not None:
            raise TypeError(f"{name} is given with {q.dtype} inputs: must be None, because it is for FP8 inputs only")


def _check_fp8(tensors: Tensors, call: Call) -> None:
    q, num_heads_kv = tensors.q, tensors.k.shape[-2]
    if call.out_dtype is not None and call.out_dtype not in OUT_DTYPES:
        raise TypeError(f"out_dtype is {call.out_dtype}: must be {', '.join(map(str, OUT_DTYPES))}")
    all_heads = (q.shape[-2], num_heads_kv, num_heads_kv)
    for name, descale, heads in zip(DESCALES, tensors.descales, all_heads, strict=True):
        check_descale(name, descale, q, (tensors.batch, heads))


def check_descale(name: str, descale: torch.Tensor | None, q: torch.Tensor, form: tuple[int, int]) -> None:
    """Raise TypeError or ValueError unless a descale is one float32 number or float32 [batch, heads]."""
    if descale is None:
        return
    if descale.dtype != torch.float32:
        raise TypeError(f"{name} is {descale.dtype}: must be torch.float32")
    check_device(name, descale, q)
    if descale.numel() != 1 and tuple(descale.shape) != form:
        raise ValueError(f"{name} is {sizes(descale)}: must be one number, or [batch, heads], {list(form)}")


def check_sinks(sinks: torch.Tensor, q: torch.Tensor) -> None:
    if sinks.dtype != torch.float32:
        raise TypeError(f"sinks is {sinks.dtype}: must be torch.float32")
    if tuple(sinks.shape) != (q.shape[-2],) or sinks.stride(0) != 1:
        raise ValueError(f"sinks is {sizes(sinks)}: must be contiguous, [heads], [{q.shape[-2]}]")
    check_device("sinks", sinks, q)


def sizes(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"
