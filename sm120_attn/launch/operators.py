"""Define a torch operator of functions that launch, give shapes, and refuse a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .call import output_dtype
from .hot_path import Result
from .strides import lse_shape


def define_operator(
    name: str,
    launch: Callable[..., Any],
    fake: Callable[..., Any],
    function: str | None = None,
    mutated: tuple[str, ...] = (),
) -> None:
    """Define `torch.ops.sm120_attn.<name>`. torch derives its schema from the annotations of `launch`.

    launch: runs for CUDA tensors; it returns new tensors, and changes those named in `mutated` only. fake: for tracing,
    gives shapes only, of the arguments of `launch` by name; the launch makes the checks. function: its public name, for
    autograd's error; torch allows none for an operator that changes tensors.
    """
    signature = inspect.signature(launch)

    def by_name(*arguments: Any, **named: Any) -> Any:
        return fake(**signature.bind(*arguments, **named).arguments)

    def backward(context: Any, *gradients: Any) -> Any:
        raise NotImplementedError(
            f"sm120_attn.{function} is forward only; call it under torch.no_grad(), or with detached tensors"
        )

    qualified = f"sm120_attn::{name}"
    # No device here, and `launch` below: else custom_op would wrap it in checks that cost 3.5 us per call.
    operator = torch.library.custom_op(qualified, launch, mutates_args=mutated, device_types=())
    operator.register_fake(by_name)
    if function is not None:
        operator.register_autograd(backward)
    torch.library.impl(qualified, "cuda", launch)


def given_lse(q: torch.Tensor, made: Result) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace an LSE of None by an empty tensor, for an operator's schema."""
    o, lse = made
    return o, lse if lse is not None else torch.empty(0, dtype=torch.float32, device=q.device)


def fake_result(
    *, q: torch.Tensor, return_lse: bool, out_dtype: torch.dtype | None = None, **others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make an attention operator's result while it is traced, from its arguments: LSE is empty unless `return_lse`."""
    o = q.new_empty(q.shape, dtype=output_dtype(q, out_dtype))
    return o, q.new_empty(lse_shape(q) if return_lse else (0,), dtype=torch.float32)
