"""Values of a call: its tensors, the caller's options, and the Call that is derived from both."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from ..config import FP8, Config, Features
from ..mask_bounds import Bounds, bounds

DTYPES = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2",
}  # fmt: skip
OUT_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
DESCALES = ("q_descale", "k_descale", "v_descale")


class Tensors(NamedTuple):
    """The tensors of a call. See `attention` for their shapes."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_k: torch.Tensor | None = None
    q_descale: torch.Tensor | None = None
    k_descale: torch.Tensor | None = None
    v_descale: torch.Tensor | None = None
    sinks: torch.Tensor | None = None

    @property
    def varlen(self) -> bool:
        """Whether sequences are packed."""
        return self.cu_seqlens_q is not None or self.cu_seqlens_k is not None

    @property
    def batch(self) -> int:
        lengths = self.q.shape[0] if self.cu_seqlens_q is None else self.cu_seqlens_q.shape[0] - 1
        return int(lengths)

    @property
    def descales(self) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Factors of FP8 q, k and v: float32 tensors of one number or [batch, heads]; None means 1."""
        return self.q_descale, self.k_descale, self.v_descale


class AttentionOptions(NamedTuple):
    """The arguments of `attention` that are not tensors, unchanged."""

    causal: bool
    window: tuple[int | None, int | None] | None
    align: str
    scale: float | None
    softcap: float
    max_seqlen_q: int | None
    max_seqlen_k: int | None
    return_lse: bool
    out_dtype: torch.dtype | None


class Call(NamedTuple):
    """Options of a call, without its tensors.

    softcap: 0 means none.
    max_seqlen_q, max_seqlen_k: rows of the longest sequence if sequences are packed; else rows of q and k.
    config: the kernel to use instead of the planned kernel, for tests and benchmarks.
    out_dtype: dtype of the output of FP8 inputs (None: bfloat16); None for other inputs.
    """

    visible: Bounds
    align: str
    scale: float
    softcap: float
    lse: bool
    max_seqlen_q: int
    max_seqlen_k: int
    config: Config | None = None
    out_dtype: torch.dtype | None = None


def check_types(tensors: Any) -> None:
    """Raise TypeError if a field of a NamedTuple is not a tensor. None is allowed in a field with a default."""
    for name, given in zip(tensors._fields, tensors, strict=True):
        if not isinstance(given, torch.Tensor) and not (given is None and name in tensors._field_defaults):
            raise TypeError(f"{name} is of type {type(given).__name__}: must be a torch.Tensor")


def make_call(tensors: Tensors, options: AttentionOptions) -> Call:
    """Make a Call from the caller's options. Raises TypeError or ValueError if that is impossible."""
    check_types(tensors)
    q, k = tensors[:2]
    if q.dim() == 0 or q.shape[-1] == 0:
        raise ValueError(f"q is {list(q.shape)}: must have a last dimension, head_dim, that is not empty")
    max_seqlen_q, max_seqlen_k = options.max_seqlen_q, options.max_seqlen_k
    if tensors.cu_seqlens_q is None and tensors.cu_seqlens_k is None:
        if q.dim() != 4 or k.dim() != 4:
            raise ValueError(
                f"q has {q.dim()} and k {k.dim()} dimensions: must be [batch, sequence, heads, head_dim], or packed "
                "[total, heads, head_dim] with cu_seqlens_q and cu_seqlens_k"
            )
        max_seqlen_q, max_seqlen_k = q.shape[1], k.shape[1]
    if max_seqlen_q is None or max_seqlen_k is None:
        raise ValueError(
            "max_seqlen_q and max_seqlen_k are needed with cu_seqlens: to read them from there, the host would have to "
            "wait for the GPU"
        )
    return Call(
        visible=bounds(options.causal, options.window),
        align=options.align,
        scale=1 / math.sqrt(q.shape[-1]) if options.scale is None else options.scale,
        softcap=options.softcap,
        lse=options.return_lse,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        out_dtype=options.out_dtype,
    )


def features_of(tensors: Any, call: Any) -> Features:
    """List the features that a call needs. tensors, call: Tensors and Call, or CacheTensors and CacheCall."""
    return Features(
        causal=call.visible.causal,
        window=call.visible.window,
        softcap=call.softcap > 0,
        varlen=tensors.cu_seqlens_q is not None,
        lse=call.lse,
        sinks=tensors.sinks is not None,
    )


def output_dtype(q: torch.Tensor, asked: torch.dtype | None) -> torch.dtype:
    """Choose the output's dtype: for FP8 inputs `asked` (None: bfloat16), else q's dtype."""
    return (asked or torch.bfloat16) if DTYPES.get(q.dtype) in FP8 else q.dtype
