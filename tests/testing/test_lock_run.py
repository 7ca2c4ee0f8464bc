"""`pytest --kernel-lock`: whole runs, parts of them, with pytest-xdist, interrupted; real compiles in real runs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.testing.conftest import Project
from tritonhook.snapshot.lockfile import read_lock

KERNELS = """
OPTIONS = {"ptx_options": os.environ["PTXAS_SAYS"]} if "PTXAS_SAYS" in os.environ else {}
def test_product():
    kernels.compile_gemm(**OPTIONS)
def test_sum():
    kernels.compile_kernel(**OPTIONS)
"""
CHILD = """
def test_in_a_child_process():
    code = "import triton_kernels as kernels; kernels.compile_kernel(kernels.multiply_kernel)"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
LOCK = "--kernel-lock"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A project with a lock of two files of tests."""
    made = Project(tmp_path_factory.mktemp("first"), cache)
    made.write("tests/test_kernels.py", KERNELS)
    made.write("tests/test_child.py", CHILD)
    (made.folder / "pytest.ini").write_text("[pytest]\n")
    done = made.run("tests", LOCK, "--kernel-update")
    assert done.code == 0, done.said
    assert "3 new" in done.said
    return made.folder


@pytest.fixture
def locked(first: Path, tmp_path: Path, cache: Path) -> Project:
    """A copy of it."""
    return Project(Path(shutil.copytree(first, tmp_path / "copy")), cache)


def names(project: Project) -> list[str]:
    return [locked.identity.kernel for locked in read_lock(project.folder / "tritonhook.lock")]


def test_the_same_kernels_pass_and_others_fail_the_run(locked: Project) -> None:
    before = locked.lock()
    assert 'tests = ["tests"]' in before
    assert names(locked) == ["add_kernel", "gemm_kernel", "multiply_kernel"]
    same = locked.run("tests", LOCK, "--kernel-captures=kept")
    assert len(list((locked.folder / "kept/kernels").iterdir())) == 3
    assert (same.code, "3 kernels, all with the same code" in same.said) == (0, True)
    other = locked.run("tests", LOCK, PTXAS_SAYS="-O1")
    assert other.code == 1
    assert "kernels of tritonhook.lock FAILED" in other.said
    assert "3 passed" in other.said
    row = next(line for line in other.said.splitlines() if line.startswith("gemm_kernel"))
    assert re.search(r"\d+ → \d+", row)
    assert "2 kernels changed by ptxas options -O1 added" in other.said
    allowed = locked.run("tests", LOCK, "--kernel-fail-on=spills,stack", PTXAS_SAYS="-O1")
    assert allowed.code == 0, allowed.said
    assert locked.lock() == before


@pytest.mark.nightly
def test_workers_of_xdist_capture_and_the_controller_compares(locked: Project) -> None:
    before = locked.lock()
    other = locked.run("tests", LOCK, "-n2", PTXAS_SAYS="-O1")
    assert (other.code, "2 changed" in other.said) == (1, True), other.said
    part = locked.run("tests", LOCK, "-n2", "-k", "sum")
    assert (part.code, "1 kernel, all with the same code" in part.said) == (0, True), part.said
    (locked.folder / "tritonhook.lock").unlink()
    again = locked.run("tests", LOCK, "-n2", "--kernel-update")
    assert (again.code, locked.lock()) == (0, before), again.said


def test_tests_that_workers_leave_out_by_a_hook_make_a_part(locked: Project) -> None:
    """No option of the command line says so: the workers tell the controller."""
    (locked.folder / "conftest.py").write_text(
        "def pytest_collection_modifyitems(config, items):\n"
        "    left = [item for item in items if 'product' in item.name]\n"
        "    items[:] = [item for item in items if item not in left]\n"
        "    config.hook.pytest_deselected(items=left)\n"
    )
    for words in ((), ("-n2",)) if "NIGHTLY" in os.environ else (("-n1",),):
        done = locked.run("tests", LOCK, *words)
        assert done.code == 0, done.said
        assert "1 kernel not compiled, so neither compared nor removed" in done.said
        assert "deselected: gemm_kernel sm_90a" in done.said


@pytest.mark.parametrize(
    "words",
    [
        ("tests", "-k", "sum"),
        pytest.param(("tests/test_kernels.py::test_sum",), marks=pytest.mark.nightly),
        pytest.param(("tests/test_kernels.py",), marks=pytest.mark.nightly),
        ("--deselect=x", "."),
    ],
)
def test_a_part_of_the_tests_says_nothing_about_the_other_kernels(locked: Project, words: tuple[str, ...]) -> None:
    before = names(locked)
    if words[-1] == ".":
        (locked.folder / "tests/test_child.py").unlink()
    done = locked.run(*words, LOCK, "--kernel-update", PTXAS_SAYS="-O1")
    assert done.code == 0, done.said
    assert names(locked) == before
    lines = [line for line in locked.lock().splitlines() if line.startswith(("options", "tests"))]
    assert lines[0] == 'tests = ["tests"]'
    assert '"-O1"' in lines[1]  # of the sum
    assert "-O1" not in lines[-1]  # of the child process, which does not ask for it
    assert len(list((locked.folder / "tritonhook.lock.d").iterdir())) == 3


def test_a_kernel_that_no_test_compiles_any_more_is_gone(locked: Project) -> None:
    (locked.folder / "tests/test_child.py").unlink()
    done = locked.run("tests", LOCK)
    assert (done.code, "1 gone" in done.said) == (1, True), done.said
    done = locked.run(LOCK, "--kernel-update")  # of the whole project: these tests and perhaps more
    assert (done.code, names(locked)) == (0, ["add_kernel", "gemm_kernel"]), done.said
    assert 'tests = ["."]' in locked.lock()


def test_a_run_that_compiles_nothing_is_not_compared_and_not_written(locked: Project) -> None:
    """As where the captures of a new compiler fail, while its tests pass."""
    before = locked.lock()
    (locked.folder / "tests/test_child.py").unlink()
    locked.write("tests/test_kernels.py", "def test(): pass\n")
    done = locked.run("tests", LOCK, "--kernel-fail-on=spills")
    assert (done.code, "nothing was compared" in done.said) == (1, True), done.said
    done = locked.run("tests", LOCK, "--kernel-update")
    assert locked.lock() == before, done.said
    assert "tritonhook.lock is not written: the tests compiled no kernel" in done.said


@pytest.mark.parametrize(
    "how", [pytest.param("skip('no such GPU')", marks=pytest.mark.nightly), "fail('wrong')", "xfail('wrong')"]
)
def test_a_test_that_did_not_pass_leaves_its_kernels_alone(locked: Project, how: str) -> None:
    """But for an expected failure, which counts as run."""
    before = locked.lock()
    locked.write("tests/test_child.py", f"import pytest\ndef test():\n    pytest.{how}\n")
    done = locked.run("tests", LOCK)
    kept = "1 kernel not compiled, so neither compared nor removed, because 1 test" in done.said
    assert (done.code, kept) == {"s": (0, True), "f": (1, True), "x": (1, False)}[how[0]], done.said
    done = locked.run("tests", LOCK, "--kernel-update")
    assert (locked.lock() == before) is (how[0] != "x")
    assert ("tritonhook.lock stays as it was: tests failed" in done.said) is (how[0] == "f")


def test_kernels_for_another_architecture_are_left_alone(locked: Project) -> None:
    locked.write("tests/test_kernels.py", "def test():\n    kernels.compile_kernel(arch=80)\n")
    (locked.folder / "tests/test_child.py").unlink()
    done = locked.run("tests", LOCK, "--kernel-update")
    assert "these tests compiled for sm_80 only" in done.said
    assert names(locked) == ["add_kernel", "add_kernel", "gemm_kernel", "multiply_kernel"]


@pytest.mark.parametrize("words", [(), pytest.param(("-n2",), marks=pytest.mark.nightly)])
def test_an_interrupted_run_leaves_the_lock(locked: Project, words: tuple[str, ...]) -> None:
    before = locked.lock()
    locked.write("tests/test_child.py", "def test():\n    raise KeyboardInterrupt\n")
    done = locked.run("tests", LOCK, "--kernel-update", *words, PTXAS_SAYS="-O1")
    assert done.code != 0
    assert "wrote" not in done.said
    assert words or "not compared: the run did not finish" in done.said
    assert locked.lock() == before


@pytest.mark.parametrize(
    ("words", "lock", "said"),
    [
        (("--kernel-lock=none.lock",), None, "--kernel-lock=none.lock: no such file; --kernel-update writes it"),
        (
            ("--kernel-lock=tests",),
            None,
            "--kernel-lock=tests: a folder; give --kernel-lock=FILE, or --kernel-lock as the last",
        ),
        (("--kernel-lock", "test_k.py", "--kernel-update"), None, "--kernel-lock=test_k.py: not a lock"),
        (("--kernel-lock", "pytest.ini"), None, "--kernel-lock=pytest.ini: not a lock"),
        (("--kernel-update",), None, "--kernel-update: only with --kernel-lock"),
        (("--kernel-fail-on=code",), None, "--kernel-fail-on: only with"),
        ((LOCK, "--kernel-fail-on=speed"), None, "--fail-on 'speed': must be one of spills"),
        ((LOCK, "--kernel-update"), "format = 1\n[[kernel", "no lock, or damaged"),
        ((LOCK,), "under a run", "start pytest without `tritonhook run`"),
        ((LOCK,), "format = 9\n", "its format is 9, this version reads 1; update tritonhook"),
    ],
)
def test_what_cannot_be_is_said_before_any_test_runs(
    locked: Project, words: tuple[str, ...], lock: str | None, said: str
) -> None:
    environment = {"TRITONHOOK_RUN": "{}"} if lock == "under a run" else {}
    if lock is not None and not environment:
        (locked.folder / "tritonhook.lock").write_text(lock)
    before = locked.lock()
    done = locked.run("tests", *words, **environment)
    assert (done.code, said in done.said, "passed" in done.said) == (4, True, False), done.said
    assert locked.lock() == before


def test_a_lock_whose_ptx_is_missing_is_not_updated_by_a_part(locked: Project) -> None:
    before = locked.lock()
    shutil.rmtree(locked.folder / "tritonhook.lock.d")
    done = locked.run("tests", LOCK, "--kernel-update", "-k", "sum")
    assert done.code == 4
    assert "cannot read the PTX of gemm_kernel" in done.said
    assert "version control" in done.said
    assert locked.lock() == before


def test_kernels_that_another_run_locks_meanwhile_stay(locked: Project) -> None:
    """The other run ends while this one's tests run: it writes a lock of all tests."""
    for name in ("tritonhook.lock", "tritonhook.lock.d"):
        (locked.folder / name).rename(locked.folder / f"other-{name}")
    locked.write(
        "tests/test_kernels.py",
        KERNELS + "def test_another_run_ends():\n"
        "    for name in ('tritonhook.lock', 'tritonhook.lock.d'):\n"
        "        os.rename(f'other-{name}', name)\n",
    )
    done = locked.run("tests/test_kernels.py", LOCK, "--kernel-update", PTXAS_SAYS="-O1")
    assert (done.code, "wrote tritonhook.lock: 3 kernels" in done.said) == (0, True), done.said
    assert names(locked) == ["add_kernel", "gemm_kernel", "multiply_kernel"]
    assert 'tests = ["tests", "tests/test_kernels.py"]' in locked.lock() and "-O1" in locked.lock()
