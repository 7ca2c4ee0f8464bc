"""Call torch functions with tensors that have no memory (`--memory none`): tensors on torch's device "meta"."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tritonhook.capture.dry_run.gpu import notes

# Methods of a tensor that read its values.
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
_KNOWN = "_tritonhook_known"  # attribute of a boolean tensor: the value of all elements
_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_KEEPING = frozenset(("all", "any", "view", "reshape", "getitem"))
_MOST_VALUES = 1 << 30  # bytes of zeros for one call
# Parts of torch's errors if an operator needs values, or has no implementation for meta tensors.
_NEEDS = ("meta tensor", "meta device", "meta' backend", "register_meta", "output_size")


def call_without_memory(func: Any, given: list[Any], named: dict[str, Any]) -> Any:
    """Call a function of torch. If it needs the values of tensors without memory, call it with zeros on the CPU, and
    return results without memory."""
    import torch
    from torch.utils._pytree import tree_map_only

    is_value = func in (getattr(torch.Tensor, name) for name in READS) or _leaves(func, given, named)
    known = getattr(given[0], _KNOWN, None) if given else None
    if is_value and known is not None and func is not torch.Tensor.tolist:
        return func(torch.tensor(known))
    if not is_value:
        try:
            return _knowing(func, given, func(*given, **named))
        except (NotImplementedError, RuntimeError, TypeError) as error:
            if not any(words in str(error).lower() for words in _NEEDS):
                raise
            notes.count(getattr(func, "__name__", str(func)))
    own: dict[int, Any] = {}
    args, kwargs = tree_map_only(torch.Tensor, _zeros(own), (given, named))
    made = func(*args, **kwargs)
    return made if is_value else tree_map_only(torch.Tensor, lambda one: own.get(id(one), one.to("meta")), made)


def _knowing(func: Any, given: list[Any], made: Any) -> Any:
    """Store in the result of a comparison, as an attribute, the value that zeros would give. Programs assert such
    results. func: the function called. made: its result."""
    import torch
    from torch.utils._pytree import tree_map_only

    if not isinstance(made, torch.Tensor) or made.dtype != torch.bool or not made.is_meta:
        return made
    name = getattr(func, "__name__", "").strip("_")
    if name in _COMPARISONS:
        zeros = tree_map_only(torch.Tensor, lambda one: torch.zeros((), dtype=one.dtype, device="cpu"), given)
        setattr(made, _KNOWN, bool(func(*zeros)))
    elif name in _KEEPING and (known := getattr(given[0], _KNOWN, None)) is not None:
        setattr(made, _KNOWN, known)
    return made


def _leaves(func: Any, given: list[Any], named: dict[str, Any]) -> bool:
    """Return True if a meta tensor is copied to real storage."""
    import torch

    if func is torch.Tensor.copy_:
        return bool(given[1].device.type == "meta" != given[0].device.type)
    if func is not torch.Tensor.to or given[0].device.type != "meta":
        return False
    places = [named.get("device"), *given[1:2]]
    return any(torch.device(place).type == "cpu" for place in places if isinstance(place, (str, torch.device)))


def _zeros(own: dict[int, Any]) -> Callable[[Any], Any]:
    """Return a function that makes zeros for a tensor without memory. own: dict to which that function adds the tensor,
    by id of its zeros."""

    def make(value: Any) -> Any:
        if value.device.type != "meta":
            return value
        zeros = _some_zeros(value.shape, value.dtype, layout=value.layout)
        own[id(zeros)] = value
        return zeros

    return make


def _some_zeros(shape: Any, dtype: Any, **named: Any) -> Any:
    import torch

    if math.prod(shape) * dtype.itemsize > _MOST_VALUES:
        raise RuntimeError(f"--memory none: a tensor of shape {tuple(shape)} is read: its zeros need over 1 GiB")
    return torch.zeros(shape, dtype=dtype, device="cpu", **named)
