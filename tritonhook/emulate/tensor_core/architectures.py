"""How each architecture's tensor cores add. *Published* parameters (see sums.py); those of sm_90 are *executed*:
benchmarks/results/emulate_tensor_cores.json."""

from __future__ import annotations

import re

from tritonhook.emulate.tensor_core.sums import Sums
from tritonhook.errors import NotUnderstood

FP8 = ("e4m3", "e5m2")
NARROW = (*FP8, "e3m2", "e2m3", "e2m1")
_AMPERE, _ADA, _HOPPER, _BLACKWELL = "sm_80", "sm_89", "sm_90", "sm_100"


def generation(arch: str) -> str:
    """Return the architecture whose tensor cores this one has."""
    number = int(re.sub(r"\D", "", arch))
    if number in (80, 86, 87, 88):
        return _AMPERE
    if number == 89:
        return _ADA
    if number == 90:
        return _HOPPER
    if 100 <= number < 130:
        return _BLACKWELL
    raise NotUnderstood(f"tensor cores of {arch}")


def mma_sums(arch: str, kind: str, k: int, result: str) -> Sums:
    """Of the machine's warp-wide product (HMMA, QMMA). kind: format of A. k: of the instruction."""
    found = generation(arch)
    if found in (_AMPERE, _ADA):
        depth = {"f16": 8, "bf16": 8, "tf32": 4}.get(kind, 16)
        if kind in FP8 and found == _ADA:
            return Sums(13, min(depth, k), result, 13)
        if kind in NARROW:
            raise NotUnderstood(f"mma of {kind} on {arch}")
        return Sums(24, min(depth, k), result)
    if found == _HOPPER and kind in NARROW:
        raise NotUnderstood(f"mma of {kind} on {arch}, where ptxas writes other instructions for it")
    return Sums(25, k, result)


def wgmma_sums(kind: str, k: int, result: str) -> Sums:
    """Of HGMMA and QGMMA on sm_90a."""
    return Sums(13, k, result, 13) if kind in FP8 else Sums(25, k, result)


def scaled_sums(kind: str) -> Sums:
    """Of products with block scales. kind: mxf8f6f4, mxf4, mxf4nvf4."""
    return Sums(25, 32) if kind == "mxf8f6f4" else Sums(35, 64)
