"""`attention`, the public operator, and the table of kernels for each GPU."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from .host import Tensor

# Compute capability -> its kernels, fastest first. Each name is a subpackage whose module `launch` defines `attention`.
KERNELS = {
    80: ("mma",),
    90: ("hopper", "mma"),
    100: ("blackwell",),
    103: ("blackwell",),
    120: ("mma",),
    121: ("mma",),
}


def kernels_for(arch: int) -> tuple[str, ...]:
    """List the kernels for compute capability `arch` (90 = sm_90), fastest first. Raises ValueError if it has none."""
    if arch not in KERNELS:
        raise ValueError(f"sm_{arch} has no kernel; there are kernels for sm_{', sm_'.join(map(str, KERNELS))}")
    return KERNELS[arch]


def launcher(kernel: str) -> Any:
    """Import the launch module of a kernel. Raises ImportError if Triton is too old or missing."""
    return import_module(f".{kernel}.launch", __package__)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: str | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    name: str | None = None,
) -> Any:
    """Compute forward attention, softmax(scale * q k^T) v, with the kernel for the GPU that holds the tensors.

    q: [batch, num_heads, seqlen_q, head_dim]; k, v: [batch, num_heads_kv, seqlen_k, head_dim], on one CUDA device and
    of one dtype. num_heads is a multiple of num_heads_kv (grouped queries). The last dimension is contiguous, all other
    strides are multiples of 16 bytes, and the tensors are 16-byte aligned.
    dtypes: float16 and bfloat16; float8_e4m3fn except on sm_80; float8_e5m2 on sm_90, sm_100 and sm_103. head_dim: 64
    or 128; 256 except on sm_100 and sm_103.
    causal: None; "top-left": query i sees keys 0 .. i; "bottom-right": query i sees keys 0 .. i + seqlen_k - seqlen_q.
    scale: positive, head_dim ** -0.5 by default. name: the kernel's entry name in the cubin; by default the name that
    was fastest in measurements. ptxas can make other machine code for another name.

    Returns o, [batch, num_heads, seqlen_q, head_dim] in q's dtype (bfloat16 for fp8). With return_lse it returns
    (o, lse); lse is fp32 [batch, num_heads, seqlen_q], the natural logarithm of each row's sum of exponentials. For a
    query that sees no key, o is 0 and lse is -inf.

    fp8 on sm_90: the error of scores is about 2^-13 of the largest score. Use bfloat16 if scores are in the thousands.

    The first call with a combination of shapes, strides, dtypes and options is checked and planned. Later calls with
    the same combination only launch. No call waits for the GPU. Under torch.compile a call is one operator, without a
    gradient.

    Raises TypeError or ValueError, before any GPU work, if no kernel supports the arguments; the message has each
    kernel's reason. Raises ImportError if Triton is older than 3.6.
    """
    import torch

    if torch.compiler.is_compiling():
        from .torch_op import traced

        return traced("", q, k, v, causal=causal, scale=scale, return_lse=return_lse, name=name)
    if q.device.type != "cuda":
        raise ValueError(f"q is on {q.device}: the kernels run on CUDA devices")
    reasons: list[TypeError | ValueError] = []
    for operator in _operators(q.get_device()):
        try:
            return operator(q, k, v, causal=causal, scale=scale, return_lse=return_lse, name=name)
        except (TypeError, ValueError) as error:
            reasons.append(error)
    raise type(reasons[0])("; ".join(map(str, reasons)))


@cache
def _operators(device: int) -> tuple[Any, ...]:
    """List the `attention` functions of the kernels for a GPU, fastest first."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return tuple(launcher(kernel).attention for kernel in kernels_for(10 * major + minor))
