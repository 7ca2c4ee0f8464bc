"""Addresses of a matrix's numbers in shared memory: matrix descriptors and swizzles of wgmma (sm_90).

Source: PTX ISA 9, "Matrix descriptor" and "Strides"; CUTLASS, cute/arch/mma_sm90_desc.hpp (canonical layouts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.numbers import Array
from tritonhook.errors import NotUnderstood

_SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes of a row of the swizzle pattern, by bits 62 and 63; 16: none


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix descriptor. start: address. leading, stride: byte offsets between blocks (PTX ISA). row: bytes of a row
    of the swizzle pattern, 16 for none."""

    start: int
    leading: int
    stride: int
    row: int

    @classmethod
    def of(cls, bits: int) -> Descriptor:
        """Decode the 64 bits of a descriptor. Raises NotUnderstood for a base offset."""
        if bits >> 49 & 7:
            raise NotUnderstood(f"matrix descriptor {bits:#x} with a base offset")
        start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        return cls(start, leading, stride, _SWIZZLES[bits >> 62 & 3])


def swizzled(addresses: Array, row: int) -> Array:
    """Permute units of 16 bytes, as TMA and wgmma do. row: bytes of a row of the pattern: 128, 64, 32; 16 for none."""
    return addresses ^ (addresses >> 3 & row - 16)


def addresses(one: Descriptor, length: int, k: int, size: int, is_k_major: bool) -> Array:
    """Return the addresses of a matrix's numbers in shared memory, int64 (length, k). length: m or n. size: bytes of a
    number. is_k_major: numbers along k are adjacent."""
    at, depth = np.arange(length)[:, None], np.arange(k)[None, :]
    if is_k_major:
        column = depth * size
        if one.row == 16:
            found = at // 8 * one.stride + at % 8 * 16 + column // 16 * one.leading + column % 16
        else:
            found = at // 8 * one.stride + at % 8 * one.row + column
    else:
        per_row = one.row // size
        inside = at % per_row * size
        if one.row == 16:
            found = at // per_row * one.stride + inside + depth // 8 * one.leading + depth % 8 * 16
        else:
            found = at // per_row * one.leading + inside + depth // 8 * one.stride + depth % 8 * one.row
    return swizzled(one.start + found, one.row)
