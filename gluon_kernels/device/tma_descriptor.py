"""TMA descriptors of torch tensors [batch, head, row, column], made on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton.experimental.gluon import language as gl

DTYPES = {"fp8e5": gl.float8e5, "fp8e4nv": gl.float8e4nv, "fp16": gl.float16, "bf16": gl.bfloat16}


def box_layout(dtype: str, box: list[int]) -> Any:
    """Choose the swizzled shared-memory layout of a TMA box, in a form that wgmma and tcgen05 can read."""
    return gl.NVMMASharedLayout.get_default_for(box, DTYPES[dtype])


def descriptor(x: Any, dtype: str, box: list[int]) -> Any:
    """Make the TMA descriptor of a torch tensor, for copies of `box`. `dtype`: a key of DTYPES. Checks no argument."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor(x, list(x.shape), tma_strides(x.shape, x.stride()), box, box_layout(dtype, box))


def descriptor_types(dtypes: dict[str, str], boxes: dict[str, list[int]]) -> dict[str, str]:
    """Map each descriptor argument to Triton's name of its type."""
    return {name: f"tensordesc<{dtypes[name]}{box},{box_layout(dtypes[name], box)!r}>" for name, box in boxes.items()}


def tma_strides(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Compute strides, in elements, that TMA accepts: dimensions of size 1 get the stride of a contiguous tensor."""
    found = list(strides)
    for i in reversed(range(len(shape) - 1)):
        if shape[i] == 1:
            found[i] = found[i + 1] * shape[i + 1]
    return found
