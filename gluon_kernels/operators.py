"""The operators, one public function each: which kernel computes it on which GPU."""

from importlib import import_module

# Compute capability -> the kernels for it, fastest first.
KERNELS = {
    80: ("attention_mma",),
    90: ("attention_hopper", "attention_mma"),
    100: ("attention_blackwell",),
    103: ("attention_blackwell",),
    120: ("attention_mma",),
    121: ("attention_mma",),
}


def kernels_for(arch: int) -> tuple[str, ...]:
    """Modules of this package that have an attention for compute capability `arch` (90 = sm_90), fastest first.

    Raises ValueError where there is none.
    """
    if arch not in KERNELS:
        raise ValueError(f"sm_{arch}: there are kernels for sm_{', sm_'.join(map(str, KERNELS))}")
    return KERNELS[arch]


def attention(q, k, v, *, causal: str | None = None, scale: float | None = None, return_lse: bool = False, name=None):
    """Forward attention, softmax(scale * q k^T) v, by the kernel for the GPU that the tensors are on.

    q: [batch, heads, queries, head_dim]; k, v: [batch, kv_heads, keys, head_dim] CUDA tensors of one dtype; heads a
    multiple of kv_heads (grouped queries). float16 and bfloat16 everywhere; float8_e4m3fn but on sm_80; float8_e5m2 on
    sm_90 and sm_100. On sm_90 scores of fp8 are good to about 13 bits of the largest, with scores of thousands use
    bfloat16; and some of its exponentials are rough unless lse is asked for (docs/gluon-hopper.md). head_dim 64 or 128;
    256 but on sm_100. The last dimension is contiguous, all other strides are multiples of 16 bytes and the tensors
    16-byte aligned.
    causal: None; "top-left": query i sees keys 0..i; "bottom-right": query i sees keys 0..i + keys - queries.
    scale: positive, head_dim ** -0.5 by default. name: the kernel's entry in the cubin, by default the one that
    was measured to be faster.

    Returns o, [batch, heads, queries, head_dim] in q's dtype (bfloat16 for fp8), and with return_lse (o, lse): lse is
    fp32 [batch, heads, queries], the natural logarithm of each row's sum of exponentials. A query that sees no key
    gets 0 and -inf.

    Raises TypeError or ValueError for what no kernel can take, with the reason, before it touches the GPU; ImportError
    if Triton is older than 3.6.
    """
    import torch

    if q.device.type != "cuda":
        raise ValueError(f"q is on {q.device}: the kernels run on CUDA devices")
    major, minor = torch.cuda.get_device_capability(q.device)
    reasons = []
    for module in kernels_for(10 * major + minor):
        kernel = import_module(f".{module}", __package__)
        try:
            return kernel.attention(q, k, v, causal=causal, scale=scale, return_lse=return_lse, name=name)
        except (TypeError, ValueError) as error:
            reasons.append(error)
    raise type(reasons[0])("; ".join(map(str, reasons)))
