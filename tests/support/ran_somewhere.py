"""Did each step of `make test` pass, and did each test run anywhere? A plugin that notes, a command that sums up.

    TESTS_RAN=FOLDER/STEP pytest ...      tests/conftest.py takes the plugin, which notes FOLDER/STEP/*.json
    python tests/support/ran_somewhere.py FOLDER STEP ... [--without STEP]
                                          exit 1 where FOLDER/STEP/passed is missing, or a test ran in no environment

A test may run nowhere if a marker says why: gpu, machine, matrix, nightly. A module that is skipped as a whole counts
as one test, which ran if any of its tests did.
"""

from __future__ import annotations

import argparse
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
    """Return the tests that ran in no environment, each with the reason of its last skip."""
    notes = [json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))]
    have_run = {test for note in notes for test in note["ran"]}
    have_run |= {test.partition("::")[0] for test in have_run}
    return {test: why for note in notes for test, why in note["skipped"].items() if test not in have_run}


def main(folder: Path, steps: list[str], without: list[str]) -> int:
    """Print what failed and what did not run; return the exit code.

    Tests that ran nowhere are counted only if every environment ran: else each test of a missing one would be listed.
    """
    failed = [step for step in steps if not (folder / step / "passed").exists()]
    whole = not without and all(any((folder / step).glob("*.json")) for step in steps if step.startswith("test"))
    missed = nowhere(folder) if whole else {}
    for test, why in missed.items():
        print(f"{test}: runs nowhere: {why}")
    if not whole:
        print("NOT COUNTED: which tests ran in no environment")
    for step in failed:
        print(f"FAILED: make {step}")
    for name in without:
        print(f"LEFT OUT: test-{name}")
    return 1 if failed or missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", nargs="+")
    parser.add_argument("--without", action="append", default=[], choices=("torch", "cute"))
    options = parser.parse_args()
    sys.exit(main(options.folder, options.steps, options.without))
