"""Compare the outputs of two launches, which are torch tensors, and describe the difference."""

from __future__ import annotations

from typing import Any


def outputs_of(result: Any) -> list[Any]:
    """Copy the tensors in a launch's result, in order, so that the next launch cannot change them."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result.detach().clone()]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in outputs_of(item)]
    return []


def difference(reference: list[Any], candidate: list[Any], rtol: float | None, any_nan: bool = False) -> str | None:
    """Describe how the outputs differ; None if they are equal. rtol: allowed difference as a fraction of the largest
    value; None: bits must be equal. any_nan: two NaNs count as equal even if their bits differ."""
    import torch

    if len(reference) != len(candidate):
        return f"{len(candidate)} output tensors instead of {len(reference)}"
    for index, (a, b) in enumerate(zip(reference, candidate, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index} is {b.dtype} {tuple(b.shape)}, not {a.dtype} {tuple(a.shape)}"
        bits_a, bits_b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))  # view() raises for scalars
        if torch.equal(bits_a, bits_b) or (any_nan and _equal_but_nans(a, b)):
            continue
        x, y = ((torch.view_as_real(t) if t.is_complex() else t).double() for t in (a, b))
        worst = (x - y).abs().max().item()
        if rtol is None:
            return f"output {index} differs in its bits (largest difference {worst:.3g})"
        scale = x.abs().max().item()
        if not worst <= rtol * max(scale, torch.finfo(torch.float32).tiny):  # also true if `worst` is NaN
            return f"output {index} differs by {worst:.3g} where the largest value is {scale:.3g} (rtol {rtol:g})"
    return None


def _equal_but_nans(a: Any, b: Any) -> bool:
    import torch

    if not a.is_floating_point():
        return False
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    same = a.contiguous().view(bits) == b.contiguous().view(bits)
    nans = a.float().isnan() & b.float().isnan() if a.element_size() < 8 else a.isnan() & b.isnan()
    return bool((same | nans).all())


def shaped_as(outputs: list[Any], reference: list[Any]) -> list[Any]:
    """Reshape and convert a baseline's outputs to shape and dtype of the reference's, if the number of values is equal:
    [4, 16, S, D] becomes [64, S, D]. Surplus outputs are omitted."""
    fitting = []
    for ours, theirs in zip(outputs, reference, strict=False):
        same = ours.numel() == theirs.numel() and ours.is_floating_point() == theirs.is_floating_point()
        fitting.append(ours.reshape(theirs.shape).to(theirs.dtype) if same else ours)
    return fitting
