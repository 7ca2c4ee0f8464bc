"""Outputs of two launches and whether they are the same: torch tensors in, a sentence out."""

from __future__ import annotations

from typing import Any


def outputs_of(result: Any) -> list[Any]:
    """Copies of the tensors a launch returned, in order, so that the next launch cannot change them."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result.detach().clone()]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [tensor for item in result for tensor in outputs_of(item)]
    return []


def difference(reference: list[Any], candidate: list[Any], rtol: float | None) -> str | None:
    """How the outputs differ, in a sentence; None if they are equal (bit for bit, or within `rtol`)."""
    import torch

    if len(reference) != len(candidate):
        return f"{len(candidate)} output tensors instead of {len(reference)}"
    for index, (a, b) in enumerate(zip(reference, candidate, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index} is {b.dtype} {tuple(b.shape)}, not {a.dtype} {tuple(a.shape)}"
        bits_a, bits_b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))  # a number has no view
        if torch.equal(bits_a, bits_b):
            continue
        x, y = ((torch.view_as_real(t) if t.is_complex() else t).double() for t in (a, b))
        worst = (x - y).abs().max().item()
        if rtol is None:
            return f"output {index} differs in its bits (largest difference {worst:.3g})"
        scale = x.abs().max().item()
        if not worst <= rtol * max(scale, torch.finfo(torch.float32).tiny):  # NaN is a difference too
            return f"output {index} differs by {worst:.3g} where the largest value is {scale:.3g} (rtol {rtol:g})"
    return None


def shaped_as(outputs: list[Any], reference: list[Any]) -> list[Any]:
    """A baseline's outputs in the reference's shapes and types, where they hold as many values: [4, 16, S, D] is
    [64, S, D] to whom it does not matter. Outputs that the reference does not have are left out."""
    fitting = []
    for ours, theirs in zip(outputs, reference, strict=False):
        same = ours.numel() == theirs.numel() and ours.is_floating_point() == theirs.is_floating_point()
        fitting.append(ours.reshape(theirs.shape).to(theirs.dtype) if same else ours)
    return fitting
