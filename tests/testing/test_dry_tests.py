"""`pytest --kernel-arch`: tests run dry, and say so; locks and gates judge the machine code."""

from __future__ import annotations

from pathlib import Path

import pytest
from ended import python_ended
from repository import SUPPORT

pytest.importorskip("triton", minversion="3.6")

TESTS = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import pytest, triton_kernels as kernels
from fake_tensors import Storage, Tensor

def launch():
    x = Tensor(Storage(1 << 20, 4000))
    kernels.add_kernel[(8,)](x, x, x, 1000, BLOCK=128)

def test_values():
    launch()
    assert 0 == 1

def test_passes():
    launch()

def test_error():
    raise ValueError("a program's own")

def test_gate(captured_kernels):
    launch()
    assert captured_kernels["add_kernel"].spills == 0

def test_gate_that_fails(captured_kernels):
    launch()
    assert captured_kernels["add_kernel"].spills == 1

@pytest.mark.skip
def test_skipped(): ...
"""


WRONG = """
import tritonhook.testing.lock_run as it
it.verify_captures = lambda folder: (True, "1 kernel: 1 DIFFERENT")
"""


def run(folder: Path, *words: str, wrong: bool = False) -> tuple[str, int]:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "conftest.py").write_text(WRONG if wrong else "")
    plugins = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        *(["-p", "tritonhook.pytest_plugin"] if _is_not_installed() else []),
    ]
    line, without = ("-m", "pytest", *plugins, "test_it.py", *words), ["TRITONHOOK", "PYTEST", "PYTHON"]
    done = python_ended(*line, folder=folder, status=None, without=without)
    return done.stdout + done.stderr, done.returncode


def _is_not_installed() -> bool:
    from importlib.metadata import entry_points

    return not any(one.value == "tritonhook.pytest_plugin" for one in entry_points(group="pytest11"))


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)], ids=["alone", "xdist"])
def test_values_are_not_judged_and_gates_are(tmp_path, triton_cache, workers) -> None:
    said, code = run(tmp_path, "--kernel-arch", "sm_90a", *workers)
    assert "2 failed, 1 passed, 1 skipped, 2 dry" in said
    assert code == 1
    for name in ("test_error", "test_gate_that_fails"):
        assert f"FAILED test_it.py::{name}" in said
    assert "1 kernel compiled, not launched" in said


def test_a_lock_is_written_and_held_to(tmp_path, triton_cache) -> None:
    chosen = ("-k", "values or passes", "--kernel-arch", "sm_120a", "--kernel-lock", "kernels.lock")
    said, code = run(tmp_path, *chosen, "--kernel-update")
    assert code == 0, said
    text = (tmp_path / "kernels.lock").read_text()
    assert 'arch = "sm_120a"' in text
    assert "dry_run = true" in text
    said, code = run(tmp_path, *chosen)
    assert code == 0, said
    (tmp_path / "test_it.py").write_text("")


def test_captures_can_be_kept(tmp_path, triton_cache) -> None:
    run(tmp_path, "-k", "passes", "--kernel-arch", "sm_90a", "--kernel-captures", "kept")
    assert len(list((tmp_path / "kept/kernels").iterdir())) == 1


def test_an_unknown_architecture_is_refused(tmp_path) -> None:
    said, code = run(tmp_path, "--kernel-arch", "sm_91")
    assert "--arch sm_91: not known to dry runs" in said
    assert code == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "lock",
    [pytest.param((), marks=pytest.mark.nightly), ("--kernel-lock", "kernels.lock", "--kernel-update")],
    ids=["alone", "lock"],
)
def test_kernels_may_be_verified_too(tmp_path, triton_cache, lock) -> None:
    chosen = ("-k", "passes", "--kernel-arch", "sm_90a", "--kernel-verify", *lock)
    said, code = run(tmp_path, *chosen)
    assert code == 0, said
    assert "kernels verified" in said and "1 kernel: 1 SAME" in said
    said, code = run(tmp_path, *chosen, wrong=True)
    assert code == 1 and "kernels verified FAILED" in said


def test_verifying_needs_launches(tmp_path) -> None:
    said, code = run(tmp_path, "--kernel-verify")
    assert "--kernel-verify: only with --kernel-arch" in said and code == pytest.ExitCode.USAGE_ERROR
