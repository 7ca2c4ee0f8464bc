"""On a GPU: the emulator stores the GPU's bits for kernels that nobody saw before."""

from __future__ import annotations

import random

from gpu_kernels import NEEDS_GPU

from benchmarks.verify.fuzz_gpu import batches, judged, on_gpu
from benchmarks.verify.made_up import GROUPS
from tritonhook.ptxas.tool import find_ptxas

pytestmark = NEEDS_GPU


def test_no_made_up_kernel_is_emulated_wrong() -> None:
    """500 kernels of eight groups, others each time. What the emulator does not understand is no fault here."""
    tool, asked = find_ptxas(), list(batches(500, random.randrange(10**9), list(GROUPS)))
    _, target, stored = on_gpu(tool, asked)
    rows = [row for batch, done in zip(asked, stored, strict=True) for row in judged(tool, target, *batch, done)]
    assert [row for row in rows if row["verdict"] == "wrong"] == []
    assert any(row["verdict"] == "equal" for row in rows)
