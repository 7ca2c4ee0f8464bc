"""`pytest --kernel-arch --kernel-emulate`: tests have real values; what was not executed is skipped and counted."""

from __future__ import annotations

import re

import pytest

from tests.testing.conftest import Project, Run

np = pytest.importorskip("numpy")

TESTS = """
import pytest, unittest
import numpy as np
import triton, triton.language as tl
from fake_tensors import Storage, Tensor

CLOCK = tl.constexpr("mov.u32 $0, %envreg3; // $1")
UNWRITTEN = tl.constexpr("{ .reg .b32 t; add.u32 $0, t, $1; }")

@triton.jit
def asked(out, TEXT: tl.constexpr):
    at = tl.arange(0, 32)
    tl.store(out + at, tl.inline_asm_elementwise(TEXT, "=r,r", [at], tl.int32, is_pure=False, pack=1))

@triton.jit
def followed(pointers, out):
    values = tl.load(pointers).to(tl.pointer_type(tl.int32))
    tl.store(out + tl.arange(0, 32), tl.load(values + tl.arange(0, 32)))

@triton.jit
def slow(out, n):
    total = tl.zeros((32,), tl.int32)
    while tl.sum(total) < n:
        total += 1
    tl.store(out + tl.arange(0, 32), total)

def tensor(array):
    one = Tensor(Storage(array.ctypes.data, array.nbytes), str(array.dtype))
    one.array = array
    return one

def add(n=1000):
    x = tensor(np.arange(n, dtype=np.float32))
    out = tensor(np.zeros(n, np.float32))
    kernels.add_kernel[((n + 127) // 128,)](x, x, out, n, BLOCK=128)
    return out.array

def out():
    return tensor(np.zeros(32, np.int32))

def test_right():
    assert (add() == 2 * np.arange(1000)).all()

def test_wrong():
    assert (add() == 3 * np.arange(1000)).all()

@pytest.mark.xfail
def test_wrong_as_expected():
    test_wrong()

def test_not_understood():
    asked[(1,)](out(), CLOCK)
    assert 0, "not reached"

def test_not_understood_and_caught():
    with pytest.raises(Exception):
        asked[(1,)](out(), CLOCK)

@pytest.fixture(scope="module")
def shared():
    asked[(1,)](out(), CLOCK)

def test_fixture_not_understood(shared): ...
def test_fixture_not_understood_again(shared): ...

class TestCase(unittest.TestCase):
    def test_not_understood(self):
        asked[(1,)](out(), CLOCK)

def test_pointers_not_understood():
    table = np.array([out().array.ctypes.data], np.int64)
    followed[(1,)](tensor(table), out())

def test_out_of_bounds():
    followed[(1,)](tensor(np.array([77], np.int64)), out())

def test_slow():
    slow[(1,)](out(), 1 << 30)

def test_unwritten():
    asked[(1,)](out(), UNWRITTEN)

@pytest.mark.xfail
def test_unwritten_as_expected():
    asked[(1,)](out(), UNWRITTEN)

def test_viewed():
    x = tensor(np.arange(1000, dtype=np.float32))
    x.shape = (900,)
    kernels.add_kernel[(8,)](x, x, tensor(np.zeros(1000, np.float32)), 1000, BLOCK=128)

def test_large():
    assert (add(1 << 19) == 3 * np.arange(1 << 19)).all()
"""


def run(project: Project, *words: str) -> Run:
    project.write("test_it.py", TESTS)
    done = project.run("test_it.py", "-rA", "--kernel-arch", "sm_90a", "--kernel-emulate", *words)
    return Run(done.code, re.sub(r" \d+ deselected,", "", done.said))


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)], ids=["alone", "xdist"])
def test_tests_are_judged_as_they_are(project: Project, workers: tuple[str, ...]) -> None:
    done = run(project, "-k", "not slow and not unwritten and not large and not viewed", *workers)
    assert "2 failed, 1 passed, 6 skipped, 1 xfailed" in done.said and done.code == 1, done.said
    assert "FAILED test_it.py::test_wrong " in done.said and "FAILED test_it.py::test_out_of_bounds " in done.said
    assert "dry_launches.py" not in done.said  # a traceback ends at the test's line that launched
    assert "a tensor of pointers, which are not followed" in done.said
    assert "asked cannot be emulated: line" in done.said and "envreg3" in done.said
    assert "6 tests skipped, as a launch was NOT UNDERSTOOD" in done.said and "3 launches executed in" in done.said


def test_a_launch_over_the_limit_is_skipped(project: Project) -> None:
    done = run(project, "-k", "slow", "--kernel-limit", "0.5")
    assert "1 skipped" in done.said and done.code == 0, done.said
    assert (
        "not finished after 0.5 s" in done.said and "1 test skipped, as a launch was over the time limit" in done.said
    )


def test_a_fault_of_a_kernel_fails_its_test(project: Project) -> None:
    assert "1 passed, 1 xpassed" in run(project, "-k", "unwritten").said
    done = run(project, "-k", "unwritten or right", "--kernel-sanitize")
    assert "1 failed, 1 passed, 1 xfailed" in done.said and done.code == 1, done.said
    assert "asked: uninitialised: registers that nothing has written" in done.said
    assert "2 tests with a finding of the sanitizer" in done.said


def test_a_tensor_ends_where_its_view_ends(project: Project) -> None:
    assert "1 passed" in run(project, "-k", "viewed", "--kernel-sanitize").said
    done = run(project, "-k", "viewed", "--kernel-sanitize", "--kernel-bounds=view")
    assert "1 failed" in done.said and "out of bounds" in done.said and "(3,600 bytes)" in done.said, done.said


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)], ids=["alone", "xdist"])
def test_a_suppressed_finding_fails_no_test(project: Project, workers: tuple[str, ...]) -> None:
    tables = ('kernel = "ask*"\nkind = "uninitialised"', 'kernel = "other"')
    (project.folder / "known.toml").write_text("".join(f"[[suppress]]\n{one}\n" for one in tables))
    (project.folder / "pyproject.toml").write_text('[tool.tritonhook]\nkernel_suppress = "known.toml"\n')
    done = run(project, "-k", "unwritten", "--kernel-sanitize", *workers)
    assert "1 passed, 1 xpassed" in done.said and done.code == 0, done.said
    assert re.findall("unused suppression: .*", done.said) == ['unused suppression: kernel = "other"'], done.said
    (project.folder / "known.toml").write_text('[[suppress]]\nkernel = "other"\n')
    assert "1 failed, 1 xfailed" in run(project, "-k", "unwritten", "--kernel-sanitize", *workers).said


def test_large_tensors_run_dry(project: Project) -> None:
    done = run(project, "-k", "right or large", "--kernel-shrink", "1")
    assert "1 passed, 1 dry" in done.said and done.code == 0, done.said
    assert "1 test dry, as tensors were larger than --kernel-shrink" in done.said


def test_the_project_sets_what_the_command_line_leaves_out(project: Project) -> None:
    project.write("test_it.py", TESTS)
    settings = project.folder / "pyproject.toml"
    settings.write_text('[tool.tritonhook]\nkernel_arch = "sm_90a"\nkernel_limit = 0.5\n')
    done = project.run("test_it.py", "-k", "slow or right", "--kernel-emulate")
    assert "1 passed, 1 skipped" in done.said.replace(" 13 deselected,", ""), done.said
    settings.write_text("[tool.tritonhook]\nkernel_limit = true\n")
    done = project.run("test_it.py", "--kernel-emulate")
    assert "kernel_limit = True: see --kernel-limit" in done.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kernel-emulate",), "--kernel-emulate: give --kernel-arch too"),
        (("--kernel-sanitize",), "--kernel-sanitize: only with --kernel-arch and --kernel-emulate"),
        (("--kernel-suppress=known.toml",), "--kernel-suppress: only with --kernel-arch and --kernel-emulate"),
        (
            ("--kernel-arch=sm_90a", "--kernel-emulate", "--kernel-suppress=known.toml"),
            "--kernel-suppress: only with --kernel-sanitize",
        ),
        (
            ("--kernel-arch=sm_90a", "--kernel-emulate", "--kernel-bounds=view"),
            "--kernel-bounds: only with --kernel-sanitize",
        ),
        (("--kernel-arch=sm_90a", "--kernel-limit=3"), "--kernel-limit: only with --kernel-emulate"),
        (("--kernel-arch=sm_90a", "--kernel-emulate", "--kernel-limit=0"), "give numbers above 0"),
    ],
)
def test_what_does_not_fit_is_refused(project: Project, words: tuple[str, ...], said: str) -> None:
    done = project.run(*words)
    assert said in done.said and done.code == pytest.ExitCode.USAGE_ERROR
