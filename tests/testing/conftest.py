"""Another project's tests: a folder with kernels, and pytest run there in a process of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from ended import python_ended
from repository import ROOT, SUPPORT

_LOADED = (
    () if any(one.name == "tritonhook" for one in entry_points(group="pytest11")) else ("tritonhook.pytest_plugin",)
)
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with tests. cache: Triton's, for all runs."""

    folder: Path
    cache: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import os, subprocess, sys\nimport triton_kernels as kernels\n{text}")

    def run(self, *words: str, fresh: bool = False, **environment: str) -> Run:
        """Run pytest there, without Hypothesis's plugin: loading it takes three quarters of a run.

        fresh: in a process that has imported nothing.
        """
        line = [*_WITHOUT, *(word for name in _LOADED for word in ("-p", name)), *words]
        paths = [str(SUPPORT), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {
            "PYTHONPATH": os.pathsep.join(paths),
            "TRITON_CACHE_DIR": str(self.cache),
            "COLUMNS": "200",
        } | environment
        without = ("TRITON", "PYTEST")
        done = python_ended("-m", "pytest", *line, folder=self.folder, status=None, without=without, fresh=fresh, **own)
        return Run(done.returncode, done.stdout + done.stderr)

    def lock(self, name: str = "tritonhook.lock") -> str:
        return (self.folder / name).read_text()


@dataclass(frozen=True, slots=True)
class Run:
    code: int | None
    said: str


@pytest.fixture(autouse=True, scope="module")
def _warm(warm_start: None) -> None:
    """Runs start warm, but for those that ask for a fresh process."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("triton_kernels", reason="needs Triton")
    return tmp_path_factory.mktemp("triton-cache")


@pytest.fixture
def project(tmp_path: Path, cache: Path) -> Project:
    """An empty project."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    return Project(folder, cache)
