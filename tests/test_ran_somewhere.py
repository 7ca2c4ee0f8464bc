"""A test that runs in no environment is found, unless a marker says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hangs import HANG_S
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


@pytest.mark.parametrize("workers", [pytest.param((), marks=pytest.mark.nightly), ("-n", "2")])
def test_what_ran_nowhere_is_named(workers: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_skipped.py").write_text(MODULE)
    (tmp_path / "test_gpu.py").write_text(MODULE + "pytestmark = pytest.mark.gpu\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    for where in ("here", "there"):
        paths = os.pathsep.join([str(SUPPORT), str(ROOT)])
        own = {"TESTS_RAN": str(tmp_path / "ran"), "WHERE": where, "PYTHONPATH": paths}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers]
        outer = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        subprocess.run(command, cwd=tmp_path, env=outer | own, check=True, capture_output=True, timeout=HANG_S)
    assert sorted(nowhere(tmp_path / "ran")) == ["test_skipped.py", "test_some.py::test_never"]
    environment = Path(sys.prefix).name
    assert main(tmp_path / "ran", [environment]) == 1
    assert "test_some.py::test_never: runs nowhere: Skipped: no reason\n" in capsys.readouterr().out
    assert main(tmp_path / "ran", [environment, "another"]) == 0
    assert capsys.readouterr().out == "NOT COUNTED which tests run nowhere: none ran in another\n"
