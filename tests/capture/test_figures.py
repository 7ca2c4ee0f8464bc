"""What captured kernels need of a GPU is what `ptxas -v` prints, or it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from tma_kernels import compile_tma, copy_2d

import tritonhook
from tritonhook.capture.figures import resources_of
from tritonhook.capture.store.reader import CaptureFolder
from tritonhook.cubin.summary import KernelSummary
from tritonhook.ptxas.toolchain import Assembled, find_toolchain


@pytest.mark.parametrize("arch", [90, 120])
def test_spills_of_a_tma_kernel_are_those_of_the_log(
    arch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For TMA loads on sm_120a ptxas 12.9 calls the driver, with an argument on the stack: that is no spill."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with tritonhook.session(tmp_path / "captures"):
        compile_tma(copy_2d, {"BLOCK_M": 64, "BLOCK_N": 64}, arch=arch)
    ((record, capture),) = CaptureFolder.open(tmp_path / "captures").captures().items()
    resources = resources_of({record: capture}, capture.ptx.text)[record]
    assert isinstance(resources, KernelSummary) and capture.assembler.path is not None
    result = find_toolchain(capture.assembler.path).assemble(capture.ptx, ("-v",))
    assert isinstance(result, Assembled)
    told = result.cubin.resources[capture.kernel]
    assert (told.spill_stores, told.spill_loads) == (0, 0)
    assert resources.spill_stores in (None, 0) and resources.spill_loads in (None, 0)
    assert resources.stack == told.stack
