"""Parameters of the sums of each architecture's tensor cores. They are published ones (sources: sums.py); those of
sm_90 are also measured on a GPU: benchmarks/results/emulate_tensor_cores.json."""

from __future__ import annotations

import re

from tritonhook.emulate.tensor_core.sums import Sums
from tritonhook.errors import NotUnderstood

FP8 = ("e4m3", "e5m2")
NARROW = (*FP8, "e3m2", "e2m3", "e2m1")
_AMPERE, _ADA, _HOPPER, _BLACKWELL = "sm_80", "sm_89", "sm_90", "sm_100"


def generation(arch: str) -> str:
    """Return the oldest architecture with the same tensor cores, e.g. "sm_80" for sm_86. Raises NotUnderstood."""
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
    """Return the parameters of a warp's product (mma.sync: HMMA, QMMA). kind: format of A. k: numbers per sum in the
    instruction. result: format of D. Raises NotUnderstood."""
    found = generation(arch)
    if found in (_AMPERE, _ADA):
        depth = {"f16": 8, "bf16": 8, "tf32": 4}.get(kind, 16)
        if kind in FP8 and found == _ADA:
            return Sums(13, min(depth, k), result, 13)
        if kind in NARROW:
            raise NotUnderstood(f"mma of {kind} on {arch}")
        return Sums(24, min(depth, k), result)
    if found == _HOPPER and kind in NARROW:
        raise NotUnderstood(f"mma of {kind} on {arch}, for which ptxas writes other instructions")
    return Sums(25, k, result)


def wgmma_sums(kind: str, k: int, result: str) -> Sums:
    """Return the parameters of a warpgroup's product (wgmma: HGMMA, QGMMA) on sm_90a. Arguments: see `mma_sums`."""
    return Sums(13, k, result, 13) if kind in FP8 else Sums(25, k, result)


def scaled_sums(kind: str) -> Sums:
    """Return the parameters of products with block scales. kind: mxf8f6f4, mxf4 or mxf4nvf4."""
    return Sums(25, 32) if kind == "mxf8f6f4" else Sums(35, 64)
