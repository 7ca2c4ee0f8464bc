"""The examples run: on the machine at hand as far as it goes."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest
from ended import python_ended
from repository import ROOT

from tritonhook.capture.store import CaptureFolder

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.usefixtures("warm_start")


def run(folder: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    cache = {"TRITON_CACHE_DIR": str(folder / "cache")}
    return python_ended(*words, folder=folder, status=status, without=["TRITONHOOK"], **cache)


def test_a_triton_kernel(tmp_path: Path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    script = str(EXAMPLES / "triton_kernel.py")
    done = run(tmp_path, script, "mine")
    assert done.stdout.splitlines()[0] == "fast_rows"
    (record,) = CaptureFolder.open(tmp_path / "mine").records
    assert record.startswith("fast_rows-")
    # and as its text says, from outside: the run's prefix comes first, the file's own mapping no longer fits
    done = run(tmp_path, "-m", "tritonhook", "run", "--out", "runs", "--prefix", "cutlass_", script, "mine")
    assert done.stdout.splitlines()[0] == "cutlass_scale_rows"


@pytest.mark.gpu
def test_torch_compile(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch and an NVIDIA GPU")
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU: torch.cuda.is_available() says no")
    script = str(EXAMPLES / "torch_compile.py")
    done = run(tmp_path, "-m", "tritonhook", "run", "--out", "runs", "--strip", script)
    assert "equal to eager" in done.stdout
    folder = CaptureFolder.open(tmp_path / "runs")
    names = {folder.capture(record).kernel for record in folder.records}
    assert any("triton_" in name for name in names)
    assert "gate" in names and not any("cutlass" in name for name in names)


@pytest.mark.parametrize("name", ["layer_norm.py", "spilling_matmul.py", "triton_kernel.py", "torch_compile.py"])
def test_the_commands_in_an_example_are_real(name: str) -> None:
    import shlex

    from tritonhook.cli import parser

    lines = (ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or "").splitlines()
    commands = [line.partition("#")[0].strip() for line in lines if line.strip().startswith("tritonhook ")]
    assert commands
    for command in commands:
        parser().parse_args(shlex.split(command)[1:])
        for word in shlex.split(command):
            assert not word.endswith(".py") or (ROOT / word).exists(), word


def test_the_tutorials_layer_norm_changes_with_its_name(tmp_path: Path) -> None:
    """As docs/tutorials/2-compare.md says: other code under `cutlass_`, and the control has the plain code."""
    pytest.importorskip("triton", minversion="3.6")
    run(tmp_path, "-m", "tritonhook", "run", "--out", "plain", str(EXAMPLES / "layer_norm.py"))
    (record,) = CaptureFolder.open(tmp_path / "plain").records
    assert record.startswith("layer_norm-")
    compared = run(tmp_path, "-m", "tritonhook", "diff", "plain", "--rename", "--json", status=1)
    document = json.loads(compared.stdout)
    assert document["control_is_neutral"]
    assert document["diff"]["verdict"] == "different code"
    assert document["diff"]["scheduler"]["other_scheduler"]["b"] is True


def test_the_tutorials_matmul_reserves_memory_for_its_spills(tmp_path: Path) -> None:
    """As docs/tutorials/4-memory.md says."""
    pytest.importorskip("triton", minversion="3.6")
    run(tmp_path, "-m", "tritonhook", "run", "--out", "spilling", str(EXAMPLES / "spilling_matmul.py"))
    predicted = run(tmp_path, "-m", "tritonhook", "mem", "predict", "spilling", "--gpu", "H200", "--json")
    document = json.loads(predicted.stdout)
    assert document["deepest"] == "spilling_matmul"
    assert document["growth_bytes"]["low"] > 100 << 20
