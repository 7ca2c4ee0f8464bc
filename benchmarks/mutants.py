"""Mutation testing: which small changes of the code no test notices.

    make mutants                          # every mutant: some hours
    make mutants MUTANTS='*__mutmut_*3 *__mutmut_*7'    # those whose number ends in 3 or 7: about a fifth
    python -m benchmarks mutants                         # count again what mutants/ holds

mutmut makes the mutants and runs the tests that reach each one; `[tool.mutmut]` in pyproject.toml names the modules and
the tests. This script counts what mutmut left in mutants/ and keeps every survivor with its change. Tests that start
programs of their own in other folders do not see a mutant and are not among them, so the code that only they reach
counts as not tested here. Decorated functions (properties) are not mutated. timing/output_check.py is not among the
modules: its tests need torch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment

MUTANTS = REPOSITORY / "mutants"
SURVIVED, UNTESTED = 0, 33  # exit codes that mutmut records; all others say that a test failed, or ran out of time


NEEDS = ("mutants/",)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    modules = {str(path.relative_to(MUTANTS))[: -len(".meta")]: outcomes(path) for path in MUTANTS.rglob("*.meta")}
    rows = {name: counted(found) for name, found in sorted(modules.items()) if found}
    tried = sum(row["tried"] for row in rows.values())
    killed = sum(row["killed"] for row in rows.values())
    if not tried:
        raise SystemExit(f"{MUTANTS} holds no outcome of a mutant; run `make mutants` first")
    for name, row in rows.items():
        if row["tried"]:
            print(f"{name:<44}{row['killed']:>6} of {row['tried']}")
    return {
        "kind": "mutants",
        "environment": environment("mutmut"),
        "summary": {
            "mutants": sum(row["mutants"] for row in rows.values()),
            "tried": tried,
            "killed": killed,
            "killed_ratio": killed / tried,
        },
        "modules": rows,
        "survivors": {
            name: [change(mutant) for mutant, code in found.items() if code in (SURVIVED, UNTESTED)]
            for name, found in sorted(modules.items())
        },
    }


def outcomes(meta: Path) -> dict[str, int | None]:
    """The exit code of the tests for each mutant of a module; None where it was not tried."""
    return dict(json.loads(meta.read_text())["exit_code_by_key"])


def counted(found: dict[str, int | None]) -> dict[str, Any]:
    tried = [code for code in found.values() if code is not None]
    return {
        "mutants": len(found),
        "tried": len(tried),
        "killed": sum(code not in (SURVIVED, UNTESTED) for code in tried),
        "survived": tried.count(SURVIVED),
        "untested": tried.count(UNTESTED),
    }


def change(mutant: str) -> dict[str, str]:
    """The lines that a mutant takes out of the code and puts in."""
    shown = subprocess.run(["mutmut", "show", mutant], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    lines = [line for line in shown.stdout.splitlines() if not line.startswith(("---", "+++"))]
    return {
        "function": mutant.rpartition(".")[2].rpartition("__mutmut_")[0].replace("\N{LATIN LETTER LATERAL CLICK}", "."),
        "code": " ".join(line[1:].strip() for line in lines if line.startswith("-")),
        "mutant": " ".join(line[1:].strip() for line in lines if line.startswith("+")),
    }
