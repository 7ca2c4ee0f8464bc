"""Define a torch operator of functions that launch, give shapes, and refuse a gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def define_operator(
    name: str,
    launch: Callable[..., Any],
    fake: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    mutated: tuple[str, ...] = (),
) -> None:
    """Define `torch.ops.sm120_attn.<name>`. torch derives its schema from the annotations of `launch`.

    launch: runs for CUDA tensors; it returns new tensors, and changes those named in `mutated` only. fake: for tracing,
    gives shapes only. backward: what autograd calls; torch allows none for an operator that changes tensors.
    """
    qualified = f"sm120_attn::{name}"
    # No device here, and `launch` below: else custom_op would wrap it in checks that cost 3.5 us per call.
    operator = torch.library.custom_op(qualified, launch, mutates_args=mutated, device_types=())
    operator.register_fake(fake)
    if backward is not None:
        operator.register_autograd(backward)
    torch.library.impl(qualified, "cuda", launch)


def fake_lse(asked: Mapping[str, Any]) -> torch.Tensor:
    """What an attention operator gives as lse while it is traced, by its arguments: nothing unless `return_lse`."""
    q = asked["q"]
    if not asked["return_lse"]:
        shape: tuple[Any, ...] = (0,)
    elif asked["cu_seqlens_q"] is None:
        shape = (q.shape[0], q.shape[2], q.shape[1])
    else:
        shape = (q.shape[1], q.shape[0])
    return q.new_empty(shape, dtype=torch.float32)
