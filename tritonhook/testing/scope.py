"""What part of its tests a run of pytest was: a kernel is gone only where all tests of the lock ran, and none compiled
it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tritonhook.report.format import count

# Options that choose tests, by their names in pytest's configuration.
_CHOOSING = {
    "keyword": "-k",
    "markexpr": "-m",
    "deselect": "--deselect",
    "lf": "--lf",
    "stepwise": "--stepwise",
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
}
DESELECTED = "tritonhook_deselected"  # how many tests a worker of pytest-xdist left out, for the controller


class RunScope:
    """A plugin of pytest that counts what did not run.

    tests: the files and folders that pytest was given, relative to its root folder.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.tests = _given(config)
        self._chosen = next((name for option, name in _CHOOSING.items() if config.getoption(option, None)), None)
        if any("::" in argument for argument in config.args):
            self._chosen = "single tests"
        self._deselected = self._skipped = self._failed = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker of pytest-xdist has ended."""
        self._deselected += getattr(node, "workeroutput", {}).get(DESELECTED, 0)
        self._failed += bool(error)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._failed += report.failed
        self._skipped += report.skipped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        self._skipped += report.skipped and not hasattr(report, "wasxfail")

    @property
    def why_part(self) -> str | None:
        """Why these are not all tests of the files and folders that were given; None if they are."""
        if self._chosen is not None:
            return f"tests were chosen with {self._chosen}"
        counts = {"deselected": self._deselected, "skipped": self._skipped, "failed": self._failed}
        parts = [f"{count(times, 'test')} {how}" for how, times in counts.items() if times]
        return ", ".join(parts) or None

    def covers(self, tests: Sequence[str]) -> bool:
        """Whether these files and folders are among those that were given."""
        given = {PurePosixPath(path) for path in self.tests}
        return all(given & {PurePosixPath(path), *PurePosixPath(path).parents} for path in tests)


def _given(config: pytest.Config) -> tuple[str, ...]:
    here = config.invocation_params.dir
    paths = {Path(os.path.relpath(here / argument.partition("::")[0], config.rootpath)) for argument in config.args}
    return tuple(sorted(path.as_posix() for path in paths))
