"""Host code that all attention kernels share: check q, k and v, allocate o and lse, handle empty inputs.

Each kernel's launch module chooses the configuration and launches. This module imports neither Triton nor a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from .config import TORCH_NAMES, KernelConfig, causal_offset, why_not_causal

VECTOR_BYTES = 16  # TMA and cp.async copy this many bytes at a time: addresses and strides must be multiples of it

Tensor = Any  # torch.Tensor; torch is imported only by a call


class Problem(NamedTuple):
    """The checked arguments of one call: dtype, mask, scale, and the sizes of q, k and v."""

    dtype: str
    arch: int  # compute capability of the GPU that holds the tensors: 90 = sm_90
    causal: str | None
    scale: float
    batch: int
    num_heads: int
    num_heads_kv: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int

    @property
    def qheads_per_kvhead(self) -> int:
        return self.num_heads // self.num_heads_kv

    @property
    def causal_offset(self) -> int:
        """Shift of the causal mask: query i sees keys 0 .. i + causal_offset."""
        return causal_offset(self.causal, self.seqlen_q, self.seqlen_k)


def check_problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dtypes: tuple[str, ...],
    causal: str | None,
    scale: float | None,
    *,
    descale: float = 1.0,
    zero_strides: bool = True,
) -> Problem:
    """Check the arguments of a call and return them as a Problem.

    `dtypes`: dtypes that the kernel supports. `scale`: None means head_dim ** -0.5; it is multiplied by `descale`.
    `zero_strides`: whether the kernel can read expanded tensors, which have strides of 0. Raises TypeError or
    ValueError, which name the tensor and the requirement.
    """
    dtype = check_tensors(q, k, v, dtypes, zero_strides=zero_strides)
    batch, num_heads, seqlen_q, head_dim = q.shape
    reason = why_not_causal(causal)
    if reason is not None:
        raise ValueError(reason)
    scale = (head_dim**-0.5 if scale is None else float(scale)) * descale
    if not 0 < scale < math.inf:
        raise ValueError(f"scale {scale}: must be positive and finite, as row maxima are taken before scaling")
    import torch

    major, minor = torch.cuda.get_device_capability(q.device)
    return Problem(
        dtype, 10 * major + minor, causal, scale, batch, num_heads, k.shape[1], seqlen_q, k.shape[2], head_dim
    )


def check_tensors(q: Tensor, k: Tensor, v: Tensor, dtypes: tuple[str, ...], *, zero_strides: bool = True) -> str:
    """Check q, k and v; return their dtype, one of `dtypes`. Raises TypeError or ValueError if a check fails."""
    dtype = _common_dtype(q, k, v, dtypes)
    if tuple(k.shape) != tuple(v.shape):
        raise ValueError(f"k has shape {tuple(k.shape)}, v {tuple(v.shape)}: they must be equal")
    batch, num_heads, seqlen_q, head_dim = q.shape
    if (batch, head_dim) != (k.shape[0], k.shape[3]):
        raise ValueError(f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: batch and head_dim must be equal")
    if k.shape[1] == 0 or num_heads % k.shape[1]:
        raise ValueError(f"q has {num_heads} heads, k {k.shape[1]}: the first must be a multiple of the second")
    if max(batch * num_heads * seqlen_q, seqlen_q + k.shape[2]) >= 2**31:
        raise ValueError(
            f"q has shape {tuple(q.shape)}, k {tuple(k.shape)}: too large, as kernels number rows in 32 bits"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if 0 not in x.shape:
            _check_memory(name, x, zero_strides)
    return dtype


def _common_dtype(q: Tensor, k: Tensor, v: Tensor, dtypes: tuple[str, ...]) -> str:
    ours = {f"torch.{TORCH_NAMES[name]}": name for name in dtypes}
    if str(q.dtype) not in ours:
        raise TypeError(f"q is {q.dtype}: the kernel takes {', '.join(ours)}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: pass [batch, num_heads, seqlen, head_dim]")
        if x.shape[3] == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: head_dim, the last number, must not be 0")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype}, q is {q.dtype}: they must be equal")
        if x.device != q.device or x.device.type != "cuda":
            raise ValueError(f"{name} is on {x.device}: q, k and v must be on one CUDA device")
    return ours[str(q.dtype)]


def _check_memory(name: str, x: Tensor, zero_strides: bool) -> None:
    """Raise ValueError if the tensor cannot be copied 16 bytes at a time."""
    strides = x.stride()
    if strides[3] != 1:
        raise ValueError(f"{name}'s last dimension has stride {strides[3]}: call {name}.contiguous()")
    for size, stride in zip(x.shape[:3], strides[:3], strict=True):
        if size > 1 and (stride * x.element_size() % VECTOR_BYTES or not (stride or zero_strides)):
            raise ValueError(
                f"{name} has strides {tuple(strides)}: all but the last must be multiples of {VECTOR_BYTES} bytes"
                f"{'' if zero_strides else ' and not 0'}; call {name}.contiguous()"
            )
    if x.data_ptr() % VECTOR_BYTES:
        raise ValueError(f"{name} starts at {x.data_ptr():#x}: not {VECTOR_BYTES}-byte aligned; call {name}.clone()")


def check_config(config: KernelConfig, **needed: Any) -> None:
    """Raise ValueError if a field of the caller's configuration does not fit the tensors."""
    for field, value in needed.items():
        if getattr(config, field) != value:
            raise ValueError(f"config.{field} is {getattr(config, field)!r}: these arguments need {value!r}")


def attend(
    problem: Problem,
    config: KernelConfig,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    launch: Callable[..., Any],
    *,
    return_lse: bool,
    needs_lse: bool = True,
    keep: Callable[..., None] | None = None,
) -> Any:
    """Allocate o and lse, fill them with `launch(config, problem, q, k, v, o, lse)`, and return o or (o, lse).

    o has the shape and strides of q; lse is fp32 [batch, num_heads, seqlen_q]. Without queries or without keys no
    kernel is launched. `needs_lse`: the kernel always writes lse. If it is false, `launch` gets lse=None in calls
    without return_lse. `keep` is called after the launch with the result of `launch`, q, o and lse.
    """
    import torch

    o = torch.empty_like(q, dtype=getattr(torch, TORCH_NAMES[config.out_dtype]))
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) if return_lse or needs_lse else None
    if 0 in q.shape or 0 in k.shape:
        # For a query that sees no key, o is 0 and lse is -inf.
        o.zero_()
        if lse is not None:
            lse.fill_(-math.inf)
    else:
        with torch.cuda.device(q.device):
            launched = launch(config, problem, q, k, v, o, lse)
            if keep is not None:
                keep(launched, q, o, lse)
    return (o, lse) if return_lse else o


def out_dtype(q: Tensor) -> Any:
    """Return torch's dtype of O: bfloat16 for fp8, else the dtype of q."""
    import torch

    return torch.bfloat16 if q.element_size() == 1 else q.dtype


@cache
def sm_count(device: Any) -> int:
    """Read how many SMs the GPU has."""
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)
