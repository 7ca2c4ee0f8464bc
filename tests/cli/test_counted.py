"""Counters where people look at kernels: locks and their gate, diff, show, run, and captured kernels in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("triton")

from command_line import failing
from dry_runs import run_dry

import tritonhook
from tests.capture.dry_run.test_programs import PRELUDE
from tritonhook.cli import main
from tritonhook.errors import UsageError

KERNEL = """
import triton.language as tl

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at {stride}, mask=at < n)
    tl.store(x + at, values * 2, mask=at < n)

scale[({grid},)](x, {n}, BLOCK=128)
"""
LINE = "script.py:13"  # of the load


TORCH = "import torch, triton\nx = torch.zeros(1000, device='cuda')\n"


def script(stride: str = "", grid: int = 2, n: int = 250) -> str:
    return PRELUDE + KERNEL.format(stride=stride, grid=grid, n=n)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of the script, of one whose loads are apart, and of one that launches more of these."""
    folder = tmp_path_factory.mktemp("captures")
    for name, how in {"old": {}, "worse": {"stride": "* 4"}, "larger": {"stride": "* 4", "grid": 3, "n": 380}}.items():
        run_dry(folder, script(**how))
        (folder / "out").rename(folder / name)
    return folder


@pytest.fixture
def captured(captures: Path, tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (captures / name for name in ("old", "worse", "larger", "script.py")):
        (tmp_path / folder.name).symlink_to(folder)
    monkeypatch.chdir(tmp_path)


def test_a_gate_holds_counters_of_the_locked_launch(captured, capsys) -> None:
    assert main(["lock", "old", "-o", "k.lock", "--count"]) == 0
    locked = Path("k.lock").read_text()
    assert 'launch = "grid 2x1x1' in locked and "sectors = 64" in locked and "conflicts = 0" in locked
    assert main(["check", "k.lock", "old", "--fail-on", "conflicts,sectors,instructions"]) == 0
    assert main(["check", "k.lock", "worse", "--fail-on", "conflicts,instructions+200%"]) == 0
    capsys.readouterr()
    for rule, status in (("sectors+5%", 1), ("sectors+400%", 0), ("conflicts", 0)):
        assert main(["check", "k.lock", "worse", "--fail-on", rule]) == status, rule
    assert "64 → 157" in capsys.readouterr().out
    # Counters of another launch cannot be compared: the check fails, whatever they are.
    assert main(["check", "k.lock", "larger", "--fail-on", "sectors+999%"]) == 1
    assert "no launch of this shape was recorded" in capsys.readouterr().out
    assert main(["check", "k.lock", "worse", "--update"]) == 0
    assert "sectors = 157" in Path("k.lock").read_text()
    assert main(["lock", "old", "-o", "without.lock"]) == 0
    capsys.readouterr()
    assert "no old kernel has counters" in failing(capsys, "check", "without.lock", "worse", "--fail-on", "sectors")


def test_diff_names_the_lines_whose_counters_moved(captured, capsys) -> None:
    assert main(["diff", "old", "worse", "--fail-on", "sectors"]) == 1
    assert main(["diff", "old", "old", "--fail-on", "sectors"]) == 0
    capsys.readouterr()
    kernels = [f"{name}/{tritonhook.load(name)[0].id}" for name in ("old", "worse")]
    assert main(["diff", *kernels, "--count", "--json"]) == 1
    moved = json.loads(capsys.readouterr().out)["moved"]
    assert {"line": LINE, "counter": "L2 Theoretical Sectors Global", "a": 32, "b": 125} in moved


def test_source_lines_have_counters(captured, capsys) -> None:
    kernel = tritonhook.load("worse")[0]
    assert main(["show", f"worse/{kernel.id}", "--source", "--count", "--wide"]) == 0
    (line,) = (row for row in capsys.readouterr().out.splitlines() if "tl.load" in row)
    assert "125" in line.split()
    assert main(["show", f"worse/{kernel.id}", "--count", "--html", "page.html"]) == 0
    assert ">wavefronts</th>" in Path("page.html").read_text()
    assert kernel.counters.total.sectors == 157
    assert kernel.counters.lines[kernel.counters.instructions[-1].file, 13].sectors == 125
    with pytest.raises(UsageError, match="capture folder"):
        _ = type(kernel)(kernel.capture).counters


def test_an_emulated_run_counts_its_kernels(tmp_path, triton_cache) -> None:
    pytest.importorskip("torch")
    text = TORCH + KERNEL.format(stride="* 4", grid=2, n=250)
    done = run_dry(tmp_path, text, "--emulate", "--count", "--json")
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["metrics"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 125
