"""`tritonhook run --arch` of a CuTe DSL program: compiled for the architecture, and not launched."""

from __future__ import annotations

import pytest
from dry_runs import run_dry
from repository import SUPPORT

from tritonhook.capture.store import CaptureFolder

pytest.importorskip("cutlass")
pytest.importorskip("torch")

SCRIPT = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import cute_kernels as kernels
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
a, b = (from_dlpack(torch.zeros(128, device="cuda")) for _ in range(2))
compiled = cute.compile(kernels.add, a, b)
compiled(a, b)
kernels.both(a, b)
print("went on")
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
def test_kernels_are_compiled_for_the_architecture_and_not_launched(arch, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    assert run_dry(tmp_path, SCRIPT, arch=arch).stdout == "went on\n"
    folder = CaptureFolder.open(tmp_path / "out")
    captures = [folder.capture(record) for record in folder.records]
    assert {(capture.arch, capture.dry_run, capture.front_end) for capture in captures} == {(arch, True, "cute")}
    assert len(captures) == 3
