"""`pytest --kernel-arch`: tests run dry, and say so; locks and gates judge the machine code."""

from __future__ import annotations

import pytest

from tests.testing.conftest import Project, Run

TESTS = """
import library
import pytest
import triton, triton.language as tl
from fake_tensors import Storage, Tensor

@pytest.fixture
def tensor_read():
    # as torch's stand-in notes a read of a tensor's values
    from tritonhook.capture.dry_run.gpu import notes
    notes.count("item")

def launch():
    x = Tensor(Storage(1 << 20, 4000))
    kernels.add_kernel[(8,)](x, x, x, 1000, BLOCK=128)

def test_values():
    launch()
    assert 0 == 1

def test_values_with_an_error_of_the_suite_s_own():
    launch()
    try:
        assert 0 == 1
    except AssertionError as error:
        raise RuntimeError("not equal")

def test_passes():
    launch()

@triton.constexpr_function
def checked(n):
    assert n == 1
    return n

@triton.jit
def wrong(n: tl.constexpr):
    checked(n)

def test_does_not_compile():
    wrong[(1,)](2)

def test_refused_by_the_library():
    library.add(None)

def test_judged_by_the_library(tensor_read):
    library.add(None)

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


def run(project: Project, *words: str) -> Run:
    project.write("test_it.py", TESTS)
    project.write("library.py", "def add(x):\n    assert x is not None\n")
    return project.run("test_it.py", *words)


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)], ids=["alone", "xdist"])
def test_values_are_not_judged_and_gates_are(project: Project, workers: tuple[str, ...]) -> None:
    done = run(project, "--kernel-arch", "sm_90a", "--kernel-captures", "kept", *workers)
    assert done.code == 1 and "4 failed, 1 passed, 1 skipped, 4 dry" in done.said
    for name in ("test_error", "test_gate_that_fails", "test_does_not_compile", "test_refused_by_the_library"):
        assert f"FAILED test_it.py::{name}" in done.said
    assert "1 kernel compiled, not launched" in done.said
    assert len(list((project.folder / "kept/kernels").iterdir())) == 1


def test_a_lock_is_written_and_held_to(project: Project) -> None:
    chosen = ("-k", "values or passes", "--kernel-arch", "sm_120a", "--kernel-lock", "kernels.lock")
    for words in (("--kernel-update",), ()):
        done = run(project, *chosen, *words)
        assert done.code == 0, done.said
    text = project.lock("kernels.lock")
    assert 'arch = "sm_120a"' in text and "dry_run = true" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kernel-arch", "sm_91"), "--arch sm_91: not supported by dry runs"),
        (("--kernel-verify",), "--kernel-verify: only with --kernel-arch"),
    ],
)
def test_what_does_not_fit_is_refused(project: Project, words: tuple[str, ...], said: str) -> None:
    done = run(project, *words)
    assert said in done.said and done.code == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "lock",
    [pytest.param((), marks=pytest.mark.nightly), ("--kernel-lock", "kernels.lock", "--kernel-update")],
    ids=["alone", "lock"],
)
def test_kernels_may_be_verified_too(project: Project, lock: tuple[str, ...]) -> None:
    chosen = ("-k", "passes", "--kernel-arch", "sm_90a", "--kernel-verify", *lock)
    done = run(project, *chosen)
    assert done.code == 0 and "kernels verified" in done.said and "1 kernel: 1 SAME" in done.said, done.said
    (project.folder / "conftest.py").write_text(WRONG)
    done = run(project, *chosen)
    assert done.code == 1 and "kernels verified FAILED" in done.said


AUTOTUNED = """
import triton, triton.language as tl
from fake_tensors import Storage, Tensor

@triton.autotune([triton.Config({"BLOCK": block}) for block in (128, 256)], key=["n"])
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def test_copy():
    x = Tensor(Storage(1 << 20, 4000))
    copy[(8,)](x, x, 1000)
"""


def test_all_configurations_of_an_autotuned_kernel_are_compiled(project: Project) -> None:
    project.write("test_it.py", AUTOTUNED)
    done = project.run("test_it.py", "--kernel-arch", "sm_90a", "--kernel-captures", "kept")
    assert done.code == 0 and "2 kernels compiled, not launched" in done.said
