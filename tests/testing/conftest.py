"""Another project's tests: a folder with kernels, and pytest run there in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from ended import python_ended
from hangs import HANG_S
from known_disassembly import remembering
from repository import ROOT, SUPPORT

from tritonhook.ptxas import toolchain

_LOADED = (
    () if any(one.name == "tritonhook" for one in entry_points(group="pytest11")) else ("tritonhook.pytest_plugin",)
)
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
_FORKS = multiprocessing.get_context("forkserver")
# What every such run imports: one process imports it, and forks for each run.
_FORKS.set_forkserver_preload(["pytest", "triton_kernels", "fake_tensors", "tritonhook.testing.lock_run"])


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
        if fresh:
            done = python_ended("-m", "pytest", *line, folder=self.folder, status=None, without=without, **own)
            return Run(done.returncode, done.stdout + done.stderr)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
        said = self.folder.parent / f"{self.folder.name}.said"
        process = _FORKS.Process(target=_pytest, args=(line, self.folder, kept | own, said))
        process.start()
        process.join(HANG_S)
        if process.exitcode is None:
            process.kill()
        return Run(process.exitcode, said.read_text())

    def lock(self, name: str = "tritonhook.lock") -> str:
        return (self.folder / name).read_text()


def _pytest(line: list[str], folder: Path, environment: Mapping[str, str], said: Path) -> None:
    """Be `python -m pytest` in this folder, with its output in a file."""
    with said.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [str(folder), *environment["PYTHONPATH"].split(os.pathsep)]
    sys.argv = ["pytest", *line]
    known = Path(environment["TRITON_CACHE_DIR"], "disassembled")
    known.mkdir(exist_ok=True)
    pytest.MonkeyPatch().setattr(toolchain, "run_tool", remembering(toolchain.run_tool, known))
    sys.exit(pytest.main(line))


@dataclass(frozen=True, slots=True)
class Run:
    code: int | None
    said: str


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
