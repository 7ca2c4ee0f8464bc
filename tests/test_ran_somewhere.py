"""A test that runs in no environment is found, unless a marker says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ended import python_ended
from ran_somewhere import main, nowhere
from repository import ROOT, SUPPORT

TESTS = """
import os, pytest
here = pytest.mark.skipif(os.environ["WHERE"] != "here", reason="not there")

def test_runs(): pass
@here
def test_runs_here(): pass
@pytest.mark.skip(reason="no reason")
def test_never(): pass
@pytest.mark.gpu
@pytest.mark.skip(reason="no GPU")
def test_on_a_gpu(): pass
@pytest.mark.xfail
def test_fails(): assert False
"""
MODULE = 'import pytest\npytest.importorskip("no_such_module")\n'


def test_failed_steps_and_tests_that_ran_nowhere_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, warm_start: None
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_skipped.py").write_text(MODULE)
    (tmp_path / "test_gpu.py").write_text(MODULE + "pytestmark = pytest.mark.gpu\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    ran = tmp_path / "ran"
    for where, more in (("here", ("-n", "1")), ("there", ())):
        paths = os.pathsep.join([str(SUPPORT), str(ROOT)])
        own = {"TESTS_RAN": str(ran / f"test-{where}"), "WHERE": where, "PYTHONPATH": paths}
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
        python_ended(*words, folder=tmp_path, without=["PYTEST_XDIST"], **own)
        (ran / f"test-{where}" / "passed").touch()
    assert sorted(nowhere(ran)) == ["test_skipped.py", "test_some.py::test_never"]

    def summed_up(*steps: str, without: list[str]) -> tuple[int, list[str]]:
        return main(ran, list(steps), without), capsys.readouterr().out.splitlines()

    code, lines = summed_up("test-here", "test-there", without=[])
    assert code == 1 and "test_some.py::test_never: runs nowhere: Skipped: no reason" in lines
    code, lines = summed_up("test-here", without=["torch"])
    assert code == 0 and lines[-1] == "LEFT OUT: test-torch"
    code, lines = summed_up("test-here", "test-missing", without=[])  # its environment could not be installed
    assert code == 1 and lines[-1] == "FAILED: make test-missing"
    (ran / "test-here" / "passed").unlink()
    code, lines = summed_up("test-here", "test-there", without=[])
    assert code == 1 and lines[-1] == "FAILED: make test-here"
