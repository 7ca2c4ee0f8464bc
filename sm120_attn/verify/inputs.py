"""Make tensors and keyword arguments of `attention` for a case of cases.py."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..config import FP8
from .cases import Case


def tensors(case: Case, seed: int = 0, device: str = "cuda") -> tuple[dict[str, Any], dict[str, Any]]:
    """Make q, k and v of a case, and the other arguments of `attention`."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = torch_dtype(case.dtype)
    if case.lengths:
        totals = [sum(lengths) for lengths in zip(*case.lengths, strict=True)]
        sizes: dict[str, tuple[int, ...]] = {
            "q": (totals[0], case.heads),
            "k": (totals[1], case.heads_kv),
            "v": (totals[1], case.heads_kv),
        }
    else:
        sizes = {
            "q": (case.batch, case.rows, case.heads),
            "k": (case.batch, case.keys, case.heads_kv),
            "v": (case.batch, case.keys, case.heads_kv),
        }
    made = {}
    for name, size in sizes.items():
        values = fill(case, name, torch.randn(*size, case.head_dim, generator=generator, device=device))
        if case.dtype in FP8:
            values = values.clamp(-400, 400)
        made[name] = lay_out(case.layout, values.to(dtype))
    if case.layout == "qkv" and sizes["q"] == sizes["k"]:
        together = torch.stack(list(made.values()), dim=-3)  # [..., 3, heads, head_dim], as a linear layer makes it
        made = {name: together[..., i, :, :] for i, name in enumerate(made)}
    options: dict[str, Any] = {
        "causal": case.causal, "window": case.window, "align": case.align, "softcap": case.softcap,
        "scale": case.scale, "return_lse": case.lse,
    }  # fmt: skip
    if case.sinks:
        options["sinks"] = 3 * torch.randn(case.heads, generator=generator, device=device)
    if case.dtype in FP8:
        options |= {"out_dtype": torch_dtype(case.out_dtype), **descales(case, generator, device)}
    if case.lengths:
        for i, name in enumerate(("q", "k")):
            starts = list(itertools.accumulate((lengths[i] for lengths in case.lengths), initial=0))
            options[f"cu_seqlens_{name}"] = torch.tensor(starts, dtype=torch.int32, device=device)
            options[f"max_seqlen_{name}"] = case.longest[i]
    return made, options


def torch_dtype(name: str) -> Any:
    import torch

    return {
        "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
    }[name]  # fmt: skip


def descales(case: Case, generator: Any, device: str) -> dict[str, Any]:
    """Make the descales of a case: random numbers from 0.5 to 1.5."""
    import torch

    sizes: dict[str, tuple[int, ...]] = {}
    if case.descale:
        batch = len(case.lengths) or case.batch
        heads = {"q": case.heads, "k": case.heads_kv, "v": case.heads_kv}
        sizes = {name: (batch, heads[name]) if case.descale == "head" else () for name in heads}
    return {
        f"{name}_descale": 0.5 + torch.rand(size, generator=generator, device=device) for name, size in sizes.items()
    }


def fill(case: Case, name: str, values: Any) -> Any:
    """Turn random values into the case's kind of values. These kinds are difficult for softmax implementations."""
    if case.values == "equal" and name == "k":
        return values * 0 + 0.5  # all scores of a row are equal
    if case.values == "large" and name == "q":
        return values * 250  # scores to about +-1e4 before the scale of 1/sqrt(D)
    if case.values == "outlier" and name == "k":
        values[..., ::37, :, :] *= 60
        return values
    if case.values == "peaked" and name in "qk":
        return values * (3 if name == "q" else 1)  # few keys have nearly all of the weight
    if case.values == "first tile hidden" and name == "q":
        return values.abs() * 8  # with k below: early keys have far lower scores than late keys
    if case.values == "first tile hidden" and name == "k":
        values = values.abs()
        values[..., : values.shape[-3] // 2, :, :] *= -1
        return values
    if case.values == "ones" and name == "v":
        return values * 0 + 1  # O is 1 for all weights
    if case.values == "mean" and name == "v":
        return values * 0.5 + 2
    return values * 1e-3 if case.values == "small" else values


def lay_out(layout: str, values: Any) -> Any:
    """Copy values into another memory layout. The memory between them holds NaN, which must not reach the result."""
    import torch

    def room(*size: int) -> Any:
        return torch.full(size, math.nan, device=values.device).to(values.dtype)

    *outer, rows, heads, dim = values.shape if values.dim() == 4 else (1, *values.shape)
    if layout == "bhsd" and values.dim() == 4:
        return values.transpose(1, 2).contiguous().transpose(1, 2)
    if layout in ("poisoned", "narrow"):
        wide = dim + (8 if layout == "narrow" else 0)
        held = room(outer[0], rows + 150, heads, wide)
        place = held[:, :rows, :, :dim]
    elif layout == "misaligned":  # rows start 2 bytes after a multiple of 16, and are 2 bytes longer
        held = room(outer[0] * rows * heads * (dim + 1) + 1)
        place = held[1:].view(outer[0], rows, heads, dim + 1)[..., :dim]
    elif layout == "expanded" and heads > 1:  # one head, repeated by a stride of 0
        return values[..., :1, :].expand(*values.shape)
    else:
        return values.contiguous()
    place.copy_(values.view(outer[0], rows, heads, dim))
    return place if values.dim() == 4 else place[0]
