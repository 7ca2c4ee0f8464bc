"""The torch operator of attention, `torch.ops.gluon_kernels.attention`.

Calls use the operator under torch.compile, with fake tensors and with subclasses of torch.Tensor. It is traced as one
node with dynamic sizes, and has no gradient. All other calls launch directly: see hot_path.py.
"""

from importlib import import_module
from typing import Any

import torch

from .host import out_dtype

PLAIN = (torch.Tensor, torch.nn.Parameter)  # a subclass may intercept operators
is_compiling = torch.compiler.is_compiling


def is_plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Check whether a call may launch directly: nothing traces or intercepts it."""
    if is_compiling() or not (type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN):
        return False
    return not torch._C._len_torch_dispatch_stack()


def traced(
    kernel: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: str | None,
    scale: float | None,
    return_lse: bool,
    config: Any = None,
    name: str | None = None,
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Any:
    """Call attention through the torch operator. `kernel`: the kernel's subpackage, or "" to choose it by GPU."""
    if config is not None:
        raise ValueError(
            "config: not supported under torch.compile, with fake tensors or with tensor subclasses; leave it out"
        )
    o, lse = torch.ops.gluon_kernels.attention(q, k, v, kernel, causal, scale, return_lse, name, list(descale))
    return (o, lse) if return_lse else o


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kernel: str,
    causal: str | None,
    scale: float | None,
    return_lse: bool,
    name: str | None,
    descale: list[float],
) -> tuple[torch.Tensor, torch.Tensor]:
    options: dict[str, Any] = {"causal": causal, "scale": scale, "return_lse": return_lse, "name": name}
    if tuple(descale) != (1.0, 1.0, 1.0):
        options["descale"] = tuple(descale)
    module = import_module(f".{kernel}.launch" if kernel else ".api", __package__)
    result = module.attention(q, k, v, **options)
    if return_lse:
        o, lse = result
        return o, lse
    return result, q.new_empty(0, dtype=torch.float32)


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kernel: str,
    causal: str | None,
    scale: float | None,
    return_lse: bool,
    name: str | None,
    descale: list[float],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Make outputs of the right shapes and dtypes. The launch checks the arguments."""
    o = torch.empty_like(q, dtype=out_dtype(q))
    lse = q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)
    return o, lse


torch.library.custom_op("gluon_kernels::attention", _attention, mutates_args=()).register_fake(_fake)
