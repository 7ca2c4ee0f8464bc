"""Give torch's sums and autocast on the CPU the precision of a GPU, in a dry run whose launches are executed.

CUDA's operators add 16-bit numbers in float32 and round once. Some operators of the CPU round after each step, and add
float32 numbers one by one. Here the CPU's operators, forward and backward, get arguments of a wider type, and their
results are rounded. So a test that compares a kernel with torch compares it with the result of torch on a GPU. The
operators are replaced in torch's dispatcher, for all threads. A TorchDispatchMode is not used, because programs can see
it and take it for a tracer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

# Operators that compute sums. Operators that torch composes of other operators are omitted.
_SUMS = (
    *("sum", "nansum", "mean", "var", "std", "var_mean", "std_mean", "prod", "cumsum", "cumprod"),
    *("norm", "linalg_vector_norm", "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("mm", "bmm", "addmm", "baddbmm", "addmv", "dot", "vdot", "convolution", "convolution_backward"),
    *(f"_scaled_dot_product_flash_attention_for_cpu{end}" for end in ("", "_backward")),
    *("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
    *("mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_backward", "embedding_dense_backward"),
    *("index_add", "scatter_add", "scatter_reduce", "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d"),
)
_NORMS = tuple(
    name + end for name in ("native_layer_norm", "native_group_norm", "native_batch_norm") for end in ("", "_backward")
)  # float32 is widened too, to float64, because the CPU adds thousands of elements one by one
_MADE_OF_OTHERS = ("convolution", "convolution_backward")  # replaced as a whole: their parts are not operators
# Arguments that an operator writes although its schema does not mark them as written.
_UNANNOTATED = {"native_batch_norm": ("running_mean", "running_var")}

# Operators for which CUDA's autocast widens 16-bit arguments to float32 (torch, aten/src/ATen/autocast_mode.h:
# AT_FORALL_FP32, and the list with a result type). The CPU's autocast does so for fewer operators.
_FLOAT32_IN_AUTOCAST = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow", "softplus", "layer_norm", "native_layer_norm", "group_norm", "cosine_similarity", "logsumexp"),
    *("poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div"),
    *("l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss"),
    *("soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist"),
    *("pdist", "cdist", "renorm", "prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum", "norm"),
    *("linalg_vector_norm", "linalg_matrix_norm", "frobenius_norm", "nuclear_norm"),
)


@contextmanager
def autocast_of_the_gpu() -> Iterator[None]:
    """Make the CPU's autocast widen arguments of the same operators as CUDA's autocast."""
    import torch

    packets = (getattr(torch.ops.aten, name) for name in _FLOAT32_IN_AUTOCAST)
    overloads = (getattr(packet, name) for packet in packets for name in packet.overloads())
    readers = (it for it in overloads if not any(one.alias_info for one in it._schema.arguments))
    with _replaced("AutocastCPU", ((it, partial(_in_float32, it)) for it in readers)):
        yield


@contextmanager
def _replaced(key: str, operators: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Replace operators during a `with` block. key: dispatch key. operators: (operator, replacement)."""
    import torch

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # torch warns of operators that are replaced
        warnings.simplefilter("ignore", UserWarning)
        for operator, own in operators:
            library.impl(operator, own, key)
    try:
        yield
    finally:
        library._destroy()


def _in_float32(operator: Any, *args: Any, **named: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    def widened(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor

    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        args, named = tree_map_only(torch.Tensor, widened, (args, named))
        return operator(*args, **named)


@contextmanager
def rounded_once() -> Iterator[None]:
    """Make torch's sums on the CPU compute in a wider type and round once, during a `with` block."""
    import torch

    wider = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
    of_norms = dict.fromkeys((*wider, torch.float32), torch.float64)
    integers = dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64)
    # histc on the CPU does not support integers.
    types = dict.fromkeys(_SUMS, wider) | dict.fromkeys(_NORMS, of_norms) | {"histc": integers}
    sums = (
        (overload, _Sum(overload, types[name], _UNANNOTATED.get(name, ())))
        for name in types
        for variant in (name, f"{name}_")
        for overload in _overloads(variant)
    )
    with _replaced("CPU", sums):
        yield


def _overloads(name: str) -> Iterator[Any]:
    """Yield the overloads of an operator that have a kernel for the CPU."""
    import torch

    if (packet := getattr(torch.ops.aten, name, None)) is None:
        return
    for overload in packet.overloads():
        full = f"aten::{name}" + ("" if overload == "default" else f".{overload}")
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        if torch._C._dispatch_has_kernel(full) and (
            has_kernel(full, "CPU") or (name in _MADE_OF_OTHERS and overload == "default")
        ):
            yield getattr(packet, overload)


class _Sum:
    """Replacement of an operator that computes in a wider type. wider: the wider type for each type. unannotated:
    arguments that the operator writes, although its schema does not mark them as written."""

    def __init__(self, operator: Any, wider: Mapping[Any, Any], unannotated: tuple[str, ...]) -> None:
        import torch

        self.operator, self.wider = operator, wider
        self.kernel = torch.library.get_kernel(operator, "CPU")
        self.keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        schema = operator._schema
        self.names = [one.name for one in schema.arguments]
        self.outputs = [one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write]
        self.written = (*self.outputs, *unannotated)
        self.dtypes: dict[Any, tuple[Any, ...]] = {}  # types of the results, by types of the arguments

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute in the wider type; round the results and the written arguments to their own types."""
        import torch

        values = (*args, *named.values())
        if not any(isinstance(value, torch.Tensor) and value.dtype in self.wider for value in values):
            return self.kernel.call_boxed(self.keys, *args, **named)
        with torch._C.DisableTorchFunction():
            own = {**dict(zip(self.names, args, strict=False)), **named}
            dtypes = self._dtypes(own, args, named)
            wide = {name: self._widened(value) for name, value in own.items()}
            result = self.kernel.call_boxed(self.keys, *list(wide.values())[: len(args)], **{n: wide[n] for n in named})
            for name in self.written:
                if own.get(name) is not None and own[name] is not wide[name]:
                    own[name].resize_(wide[name].shape).copy_(wide[name])
        if self.outputs:
            return own[self.outputs[0]] if len(self.outputs) == 1 else tuple(own[name] for name in self.outputs)
        if not isinstance(result, tuple):
            return result.to(dtypes[0])
        return tuple(one if one is None else one.to(dtype) for one, dtype in zip(result, dtypes, strict=True))

    def _widened(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return value.to(self.wider.get(value.dtype, value.dtype))
        return self.wider.get(value, value) if isinstance(value, torch.dtype) else value

    def _dtypes(self, own: Mapping[str, Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the types of the results, by calling the operator with meta tensors. Meta results have the same types
        as on CUDA."""
        import torch

        def kind(value: Any) -> Any:
            is_type = isinstance(value, (torch.dtype, bool))
            return value.dtype if isinstance(value, torch.Tensor) else value if is_type else None

        def empty(value: Any) -> Any:
            return value.to("meta") if isinstance(value, torch.Tensor) else value

        kinds = tuple(map(kind, own.values()))
        if not self.outputs and kinds not in self.dtypes:
            made = self.operator(*map(empty, args), **{name: empty(value) for name, value in named.items()})
            self.dtypes[kinds] = tuple(kind(one) for one in (made if isinstance(made, tuple) else (made,)))
        return self.dtypes.get(kinds, ())
