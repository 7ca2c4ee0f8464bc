"""On a GPU: captured programs of nvcc and cuda.tile compute the same, also with renamed kernels beside their own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hangs import HANG_S
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
    subprocess.run(run, cwd=tmp_path, check=True, timeout=HANG_S)
    done = subprocess.run([str(tmp_path / "saxpy")], capture_output=True, text=True, check=False, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (0, "no error: y[0] = 1024, y[1] = 3\n")
    opened = CaptureFolder.open(tmp_path / "captures")
    kernels = {opened.capture(record).kernel for record in opened.records}
    assert "saxpy" in kernels
    assert ("cutlass_saxpy" in kernels) is ("--prefix" in options)


TILE_PROGRAM = """
import sys
import cuda.tile as ct
import torch
from tile_norms import norms
from tile_scale import scale

stream = torch.cuda.current_stream()
torch.manual_seed(0)
a = torch.randn(1000, device="cuda")
doubled = torch.full_like(a, -1.0)
ct.launch(stream, (8,), scale, (a, doubled, 128))
x = torch.randn(64, 4096, device="cuda")
sums = torch.full((64, 256), -1.0, device="cuda")
ct.launch(stream, (64,), norms, (x, sums, 16, 256))
torch.cuda.synchronize()
assert torch.equal(doubled, 2 * a)
wide = x.double()
expected = (wide.exp() * wide).view(64, 16, 256).sum(1)
assert torch.allclose(sums.double(), expected, rtol=1e-5, atol=1e-4), (sums - expected).abs().max()
torch.save(sums, sys.argv[1])
"""


@pytest.mark.skipif(
    not shutil.which("tileiras"), reason="requires tileiras on PATH, as the wheels of front_ends.txt bring it"
)
@pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="requires cuda.tile")
def test_a_program_of_cuda_tile_computes_the_same(tmp_path: Path) -> None:
    """Its kernels are the examples' own; each form of `run` gives the plain program's bits, and captures both."""
    pytest.importorskip("cuda.tile", reason="requires cuda.tile")
    program = tmp_path / "program.py"
    program.write_text(TILE_PROGRAM)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    toolkit = str(Path(str(shutil.which("tileiras"))).resolve().parents[1])  # an older one's libnvvm fails
    environment = os.environ | {
        "PYTHONPATH": paths,
        "CUDA_TILE_CACHE_DIR": "off",
        "CUDA_HOME": toolkit,
        "CUDA_PATH": toolkit,
    }
    forms = {"plain": [], "captured": [], "prefix": ["--prefix", "cutlass_"], "strip": ["--strip"]}
    for name, options in forms.items():
        run = [] if name == "plain" else ["-m", "tritonhook", "run", "--out", name, *options]
        line = [sys.executable, *run, str(program), f"{name}.pt"]
        subprocess.run(line, cwd=tmp_path, env=environment, check=True, timeout=HANG_S)
    results = {name: torch.load(tmp_path / f"{name}.pt") for name in forms}
    assert all(torch.equal(result, results["plain"]) for result in results.values())
    for name, options in list(forms.items())[1:]:
        opened = CaptureFolder.open(tmp_path / name)
        kept = [opened.capture(record) for record in opened.records]
        own = {capture.kernel.split("_")[0] for capture in kept if capture.rewritten_from is None}
        assert own == {"scale", "norms"}
        assert any(capture.rewritten_from for capture in kept) is ("--prefix" in options)
