"""Kernels of reported regressions, as far as the report tells how to write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl


@triton.jit
def layer_norm_11127(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """triton #11127: a row of fp16 at a time, not split."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < n
    value = tl.load(x + row * n + columns, inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / n
    centred = tl.where(inside, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + eps)
    gain = tl.load(weight + columns, inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, inside, other=0.0).to(tl.float32)
    tl.store(out + row * n + columns, ((value - mean) * scale * gain + shift).to(tl.float16), inside)


def reported() -> dict[str, Callable[[], Any]]:
    """Launches of them, by the number of the issue."""
    import torch

    def layer_norm() -> None:
        x = torch.empty(4096, 15360, dtype=torch.float16, device="cuda")
        vectors = torch.empty(2, 15360, dtype=torch.float16, device="cuda")
        options = {"BLOCK": 16384, "num_warps": 16, "num_stages": 2}
        layer_norm_11127[(4096,)](x, *vectors, torch.empty_like(x), 15360, 1e-5, **options)

    return {"triton-11127": layer_norm}
