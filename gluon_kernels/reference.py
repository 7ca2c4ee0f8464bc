"""What the kernels should compute, in fp32 torch. Slow, exact enough to compare with."""

import math


def attention_reference(q, k, v, *, causal: bool = False, sm_scale: float | None = None):
    """fp32 (o, lse) of attention over [batch, heads, n_ctx, head_dim]; lse in bits, like the kernel's."""
    import torch

    sm_scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    scores = q.float() @ k.float().transpose(-1, -2) * sm_scale
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    lse = torch.logsumexp(scores, -1) / math.log(2)
    return torch.softmax(scores, -1) @ v.float(), lse
