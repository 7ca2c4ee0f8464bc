"""On a GPU: captured programs of nvcc compute the same, also with renamed kernels beside their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from tritonhook.capture.store import CaptureFolder

torch = pytest.importorskip("torch", reason="needs torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU"),
]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="requires nvcc")
@pytest.mark.parametrize("options", [[], ["--prefix", "cutlass_"], ["--strip"]])
def test_a_program_of_nvcc_computes_the_same(tmp_path: Path, options: list[str]) -> None:
    """examples/saxpy.cu checks its own sums, and ends with status 1 where they are wrong."""
    major, minor = torch.cuda.get_device_capability()
    build = ["nvcc", f"-arch=sm_{major}{minor}", str(ROOT / "examples" / "saxpy.cu"), "-o", "saxpy"]
    run = [sys.executable, "-m", "tritonhook", "run", "--out", "captures", *options, "--", *build]
    subprocess.run(run, cwd=tmp_path, check=True, timeout=300)
    done = subprocess.run([str(tmp_path / "saxpy")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "no error: y[0] = 1024, y[1] = 3\n")
    opened = CaptureFolder.open(tmp_path / "captures")
    kernels = {opened.capture(record).kernel for record in opened.records}
    assert "saxpy" in kernels
    assert ("cutlass_saxpy" in kernels) is ("--prefix" in options)
