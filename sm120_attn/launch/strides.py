"""Strides of tensors, and copies of tensors that a kernel cannot read directly. Kernels load 16 bytes at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

ALIGN_BYTES = 16  # alignment of addresses, and of all strides but the last


def is_aligned(tensor: torch.Tensor) -> bool:
    """Check whether the last stride is 1 and all others are multiples of 16 bytes. Does not look at the address."""
    strides = tensor.stride()
    if strides[-1] != 1:
        return False
    off = [step * tensor.element_size() % ALIGN_BYTES for step in strides[:-1]]
    return not any(off) or all(size == 1 for size, bad in zip(tensor.shape, off, strict=False) if bad)


def aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor so that its rows start at multiples of 16 bytes. If necessary, FP8 rows get padding."""
    *outer, columns = tensor.shape
    wide = whole_rows(columns, tensor.element_size())
    if wide == columns:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor.new_empty((*outer, wide))[..., :columns].copy_(tensor)


def whole_rows(columns: int, element_bytes: int) -> int:
    """Round a number of columns up, so that a row is a multiple of 16 bytes."""
    each = ALIGN_BYTES // element_bytes
    return -(-columns // each) * each


def kernel_strides(tensor: torch.Tensor) -> Sequence[int]:
    """Return the tensor's strides. A dimension of size 1, whose stride has no meaning, gets the stride of a copy."""
    shape: Sequence[int] = tensor.shape
    strides: Sequence[int] = tensor.stride()
    if 1 not in shape:
        return strides
    usual = contiguous_strides((*shape[:-1], whole_rows(shape[-1], tensor.element_size())))
    return [step if size != 1 else u for size, step, u in zip(shape, strides, usual, strict=True)]


def lse_shape(q: torch.Tensor) -> tuple[int, ...]:
    """Compute the shape of the LSE of q's rows: [batch, heads, rows], or [heads, total] for packed queries."""
    return (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides
