"""What the kernels should compute, and how wrong PyTorch itself is in the same precision. Torch, on any device.

The reference takes the inputs as they are: quantised already, so that only the kernel's own arithmetic is judged.
"""

import math

# The unnormalised probabilities of an fp8 attention lie in [0, 1]; 2^8 times larger they use e4m3 up to 256 of 448.
FP8_P_SCALE = 256.0
TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}


def visible_keys(queries: int, keys: int, causal: str | None, device=None):
    """Per query how many keys it sees, from key 0 on: int64 [queries], between 0 and keys."""
    import torch

    if causal is None:
        return torch.full((queries,), keys, device=device)
    diagonal = {"top-left": 0, "bottom-right": keys - queries}
    if causal not in diagonal:
        raise ValueError(f"causal {causal!r}: not None, 'top-left' or 'bottom-right'")
    return (torch.arange(1, queries + 1, device=device) + diagonal[causal]).clamp(0, keys)


def attention_reference(q, k, v, *, causal: str | None = None, scale: float | None = None, dtype=None, visible=None):
    """(o, lse) of attention in `dtype`, float64 by default, one head at a time.

    q [batch, heads, queries, head_dim], k and v [batch, kv_heads, keys, head_dim]; o like q, lse
    [batch, heads, queries]: natural logarithm of the sum of exponentials. A query that sees no key gets 0 and -inf.
    `visible` [queries] replaces what `causal` says about how many keys each query sees.
    """
    if visible is None:
        visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    return _by_head(_exact, q, k, v, visible, scale, dtype)


def quantised_reference(q, k, v, *, causal: str | None = None, scale: float | None = None):
    """(o, lse) in float32 with the probabilities rounded to q's dtype: what an fp8 attention cannot do better.

    PyTorch has no attention for fp8; this stands for it. o is rounded to bfloat16, as the kernels do.
    """
    import torch

    visible = visible_keys(q.shape[2], k.shape[2], causal, q.device)
    o, lse = _by_head(_rounded, q, k, v, visible, scale, torch.float32)
    return o.to(torch.bfloat16), lse


def low_precision(q, k, v, *, causal: str | None = None, scale: float | None = None):
    """PyTorch's own attention in q's dtype, [batch, heads, queries, head_dim]: the measure for the kernels' errors.

    Rows that see no key are whatever PyTorch makes of them. fp8: see `quantised_reference`.
    """
    import torch

    if q.element_size() == 1:
        return quantised_reference(q, k, v, causal=causal, scale=scale)[0]
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    allowed = None if causal is None else _allowed(visible_keys(q.shape[2], k.shape[2], causal, q.device), k)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Not cuDNN's: it compiles for each new shape.
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)


def _allowed(visible, k):
    """bool [queries, keys]"""
    import torch

    return torch.arange(k.shape[2], device=k.device)[None] < visible[:, None]


def _by_head(one, q, k, v, visible, scale, dtype):
    import torch

    dtype = dtype or torch.float64
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[1] // k.shape[1]
    hidden = None if bool((visible >= k.shape[2]).all()) else ~_allowed(visible, k)
    o = torch.empty(q.shape, dtype=dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=dtype, device=q.device)
    for b in range(q.shape[0]):
        for shared in range(k.shape[1]):
            mine = slice(shared * group, (shared + 1) * group)
            scores = q[b, mine].to(dtype) @ k[b, shared].to(dtype).T * scale
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            o[b, mine], lse[b, mine] = one(scores, v[b, shared])
    return o, lse


def _exact(scores, v):
    import torch

    lse = torch.logsumexp(scores, -1)
    # A row without keys: exp(-inf - 0) is 0, where exp(-inf + inf) would be NaN.
    p = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return p @ v.to(scores.dtype), lse


def _rounded(scores, v):
    import torch

    top = scores.amax(-1, keepdim=True)
    p = torch.exp(scores - top.masked_fill(top == -math.inf, 0.0))
    total = p.sum(-1, keepdim=True)
    rounded = (p * FP8_P_SCALE).to(v.dtype).to(scores.dtype) / FP8_P_SCALE
    o = torch.where(total == 0, 0.0, rounded @ v.to(scores.dtype) / total)
    return o, torch.logsumexp(scores, -1)
