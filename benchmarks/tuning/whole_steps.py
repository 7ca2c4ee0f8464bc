"""Training steps as wholes: a block of gated linear attention, and a Llama layer with Liger's kernels. On a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

with suppress(ImportError):  # the names need no torch
    import torch

Step = Callable[[], Any]


def gla() -> Step:
    """A block of gated linear attention with its feed-forward network, 1,024 wide, 4 x 2,048 tokens."""
    from fla.ops.gla import chunk_gla

    width, heads, batch, tokens = 1024, 8, 4, 2048
    model = torch.nn.ModuleDict(
        {
            "norm": torch.nn.LayerNorm(width),
            "qkvg": torch.nn.Linear(width, 4 * width, bias=False),
            "out": torch.nn.Linear(width, width, bias=False),
            "up": torch.nn.Linear(width, 4 * width),
            "down": torch.nn.Linear(4 * width, width),
        }
    ).to("cuda", torch.bfloat16)
    x = torch.randn(batch, tokens, width, device="cuda", dtype=torch.bfloat16)

    def step() -> Any:
        model.zero_grad(set_to_none=False)
        q, k, v, g = model["qkvg"](model["norm"](x)).view(batch, tokens, 4, heads, width // heads).unbind(2)
        mixed, _ = chunk_gla(q, k, v, torch.nn.functional.logsigmoid(g) / 16)
        hidden = x + model["out"](mixed.reshape(batch, tokens, width))
        out = hidden + model["down"](torch.nn.functional.gelu(model["up"](hidden)))
        out.float().square().mean().backward()
        return out

    return step


def llama() -> Step:
    """A layer of a Llama with Liger's RMSNorm, rotary embedding, SwiGLU and cross entropy, 2,048 wide."""
    from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm
    from liger_kernel.transformers.functional import liger_rope, liger_swiglu

    width, heads, batch, tokens, vocabulary = 2048, 16, 4, 2048, 32000
    depth = width // heads
    linear = torch.nn.Linear
    model = torch.nn.ModuleDict(
        {
            "norm": LigerRMSNorm(width),
            "qkv": linear(width, 3 * width, bias=False),
            "out": linear(width, width, bias=False),
            "norm2": LigerRMSNorm(width),
            "gate": linear(width, 5632, bias=False),
            "up": linear(width, 5632, bias=False),
            "down": linear(5632, width, bias=False),
            "head": linear(width, vocabulary, bias=False),
        }
    ).to("cuda", torch.bfloat16)
    loss = LigerCrossEntropyLoss()
    x = torch.randn(batch, tokens, width, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(0, vocabulary, (batch * tokens,), device="cuda")
    angles = torch.randn(1, tokens, depth, device="cuda")
    cos, sin = angles.cos(), angles.sin()

    def step() -> Any:
        model.zero_grad(set_to_none=False)
        q, k, v = model["qkv"](model["norm"](x)).view(batch, tokens, 3, heads, depth).permute(2, 0, 3, 1, 4)
        q, k = liger_rope(q.contiguous(), k.contiguous(), cos, sin)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v.contiguous(), is_causal=True)
        hidden = x + model["out"](mixed.transpose(1, 2).reshape(batch, tokens, width))
        normed = model["norm2"](hidden)
        hidden = hidden + model["down"](liger_swiglu(model["gate"](normed), model["up"](normed)))
        found = loss(model["head"](hidden).view(-1, vocabulary), labels)
        found.backward()
        return found

    return step


STEPS: dict[str, Callable[[], Step]] = {"gla": gla, "llama": llama}
