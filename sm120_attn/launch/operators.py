"""Define torch operators: a launch for CUDA tensors, output shapes for tracing, and a backward that raises."""

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

    launch: function for CUDA tensors; it returns new tensors, and changes only its arguments named in `mutated`. fake:
    function for tracing; it takes the arguments of `launch` by name, makes outputs of the right shape and checks
    nothing. function: name of the public function, which the error of a backward pass names. It is None for an operator
    that changes tensors, because torch allows no backward there.
    """
    signature = inspect.signature(launch)

    def by_name(*arguments: Any, **named: Any) -> Any:
        return fake(**signature.bind(*arguments, **named).arguments)

    def backward(context: Any, *gradients: Any) -> Any:
        raise NotImplementedError(
            f"sm120_attn.{function} is forward only; call it under torch.no_grad(), or with detached tensors"
        )

    qualified = f"sm120_attn::{name}"
    # Without device_types custom_op does not wrap `launch` in checks, which take 3.5 us per call; impl registers it.
    operator = torch.library.custom_op(qualified, launch, mutates_args=mutated, device_types=())
    operator.register_fake(by_name)
    if function is not None:
        operator.register_autograd(backward)
    torch.library.impl(qualified, "cuda", launch)


def given_lse(q: torch.Tensor, made: Result) -> tuple[torch.Tensor, torch.Tensor]:
    """Replace an LSE of None by an empty tensor, because the operator's schema returns two tensors."""
    o, lse = made
    return o, lse if lse is not None else torch.empty(0, dtype=torch.float32, device=q.device)


def fake_result(
    *, q: torch.Tensor, return_lse: bool, out_dtype: torch.dtype | None = None, **others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the outputs of an attention operator for tracing. LSE is an empty tensor unless `return_lse`."""
    o = q.new_empty(q.shape, dtype=output_dtype(q, out_dtype))
    return o, q.new_empty(lse_shape(q) if return_lse else (0,), dtype=torch.float32)
