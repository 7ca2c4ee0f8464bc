"""Does each test run in some environment of `make test`? A plugin that notes what ran, and a command that counts.

    TESTS_RAN=FOLDER pytest ...           tests/conftest.py takes the plugin: it notes FOLDER/ENVIRONMENT-PROCESS.json
    python tests/support/ran_somewhere.py FOLDER ENVIRONMENT ...     exit 1 where a test ran in none

A test may run nowhere if a marker says why: gpu, machine, matrix, nightly. A module that is skipped as a whole counts
as one test, which ran if any of its tests did.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

MAY_RUN_NOWHERE = {"gpu", "machine", "matrix", "nightly"}

ran: set[str] = set()
skipped: dict[str, str] = {}


def pytest_runtest_logreport(report: Any) -> None:
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        if not MAY_RUN_NOWHERE & set(report.keywords):
            skipped[report.nodeid] = reason(report)
    elif report.when == "call":
        ran.add(report.nodeid)


def pytest_collectreport(report: Any) -> None:
    if report.outcome == "skipped" and not is_all_on_a_gpu(Path(report.nodeid)):
        skipped[report.nodeid] = reason(report)


def is_all_on_a_gpu(path: Path) -> bool:
    """Whether a module that cannot be imported is marked so as a whole."""
    marks = path.read_text().partition("\npytestmark = ")[2] if path.is_file() else ""
    return "gpu" in marks[:60].lower()


def pytest_unconfigure() -> None:
    folder = Path(os.environ["TESTS_RAN"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(sys.prefix).name}-{os.getpid()}.json"
    path.write_text(json.dumps({"ran": sorted(ran), "skipped": skipped}))


def reason(report: Any) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


def nowhere(folder: Path) -> dict[str, str]:
    """The tests that ran in no environment, with the last reason."""
    noted = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    have_run = {test for one in noted for test in one["ran"]}
    have_run |= {test.partition("::")[0] for test in have_run}
    return {test: why for one in noted for test, why in one["skipped"].items() if test not in have_run}


def main(folder: Path, environments: list[str]) -> int:
    for name in environments:
        if not any(folder.glob(f"{name}-[0-9]*.json")):
            print(f"NOT COUNTED which tests run nowhere: none ran in {name}")
            return 0
    for test, why in (missed := nowhere(folder)).items():
        print(f"{test}: runs nowhere: {why}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
