"""`tritonhook tune --check`, `run --policy`, and `policy` in pyproject.toml."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import policies
from ended import python_ended
from repository import SUPPORT
from triton_kernels import compile_gemm

import tritonhook
from tritonhook.cli import main

PROGRAM = """import sys
sys.path[:0] = [{support!r}]
from triton_kernels import compile_gemm
print(compile_gemm().name)
"""


@pytest.fixture
def project(tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with captures of the GEMM, a policy that renames it, and a program that compiles it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "results"))
    with tritonhook.session("plain") as session:
        compile_gemm()
    policies.policy(tmp_path / "tritonhook.toml", session.captures, "name+regusage=10")
    (tmp_path / "program.py").write_text(PROGRAM.format(support=str(SUPPORT)))
    return tmp_path


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return python_ended("-m", "tritonhook", "run", *options, "program.py", folder=project, status=None)


def document(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_show_lists_levers_gains_and_what_can_be_applied(project: Path, capsys) -> None:
    assert main(["tune", "--check"]) == 0
    said = capsys.readouterr().out
    assert "1 kernel: 1 usable" in said and "name+regusage=10" in said and "5.2% (4.5%" in said
    code, found = document(capsys, "tune", "--check", "-o", "tritonhook.toml")
    assert (code, found["captures"], found["kernels"][0]["state"]) == (0, None, "usable")
    text = Path("tritonhook.toml").read_text()
    Path("tritonhook.toml").write_text(text.replace('"name+', '"ptxas=11.0.1+'))
    assert main(["tune", "--check"]) == 0
    assert "1 unusable" in capsys.readouterr().out


def test_check_exits_with_1_where_an_entry_is_stale(project: Path, capsys) -> None:
    code, found = document(capsys, "tune", "--check", "-o", "tritonhook.toml", "plain")
    assert (code, found["kernels"][0]["state"], found["counts"]["applies"]) == (0, "applies", 1)
    text = Path("tritonhook.toml").read_text()
    ptx = text.partition('ptx = "')[2][:64]
    Path("tritonhook.toml").write_text(text.replace(ptx, "0" * 64))
    code, found = document(capsys, "tune", "--check", "-o", "tritonhook.toml", "plain")
    assert (code, found["kernels"][0]["state"]) == (1, "stale")


def test_run_applies_it_and_check_sees_it(project: Path, capsys) -> None:
    done = run(project, "--policy", "tritonhook.toml", "--out", "tuned")
    assert (done.returncode, done.stdout.strip()) == (0, "cutlass_gemm_kernel"), done.stderr
    code, found = document(capsys, "tune", "--check", "-o", "tritonhook.toml", "tuned")
    assert (code, found["kernels"][0]["state"]) == (0, "applied")
    # Without it, into the same folder: the kernel of the first run is no longer what runs.
    assert run(project, "--out", "tuned").stdout.strip() == "gemm_kernel"
    code, found = document(capsys, "tune", "--check", "-o", "tritonhook.toml", "tuned")
    assert (code, found["kernels"][0]["state"]) == (0, "applies")


def test_a_project_names_its_policy_and_the_command_line_comes_first(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.tritonhook]\npolicy = "tritonhook.toml"\n')
    assert run(project).stdout.strip() == "cutlass_gemm_kernel"
    assert run(project, "--prefix", "x_").stdout.strip() == "x_gemm_kernel"
    (project / "pyproject.toml").write_text('[tool.tritonhook]\npolicy = "a.toml"\nrewrites = ["tma-cta"]\n')
    assert "the policy chooses ptxas and rewrites" in run(project).stderr
    (project / "pyproject.toml").write_text('[tool.tritonhook]\npolicy = "none.toml"\n')
    done = run(project)
    assert (done.returncode, "none.toml: cannot read the policy" in done.stderr) == (2, True)


def test_a_missing_ptxas_is_one_note_of_a_run(project: Path) -> None:
    path = project / "tritonhook.toml"
    path.write_text(path.read_text().replace('"name+', '"ptxas=11.0.1+'))
    done = run(project, "--policy", "tritonhook.toml")
    assert (done.returncode, done.stdout.strip()) == (0, "gemm_kernel")
    assert done.stderr.count("tritonhook ptxas add 11.0.1") == 1, done.stderr
