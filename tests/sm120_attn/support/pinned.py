"""Loops of assembled kernels, held to a golden file."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from repository import GOLDEN

PINNED = ("kernel", "loop", "instructions", "mma", "other", "MUFU", "LDSM", "SHFL", "PRMT", "MOV", "NOP", "spills")
ALL = bool({"NIGHTLY", "RENEW_GOLDEN"} & os.environ.keys())  # a golden file that is renewed has all kernels


def all_loops(report: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(report["loops"] + report["other_loops"], key=lambda loop: (loop["kernel"], loop["loop"]))


def check_loops(report: dict[str, Any], file: str) -> None:
    """Compare the loops of a report with golden/sm120/FILE; skip if another ptxas made them.

    Renew on purpose: RENEW_GOLDEN=1 pytest THE_TESTS_FILE, and say in the commit why.
    """
    ptxas, path = report["kernels"][0]["ptxas"], GOLDEN / "sm120" / file
    found = [{name: loop[name] for name in PINNED} for loop in all_loops(report)]
    if os.environ.get("RENEW_GOLDEN"):
        lines = ",\n  ".join(json.dumps(loop) for loop in found)
        path.write_text(f'{{"ptxas": "{ptxas}", "loops": [\n  {lines}\n]}}\n')
    wanted = json.loads(path.read_text())
    if ptxas != wanted["ptxas"]:
        pytest.skip(f"pinned for ptxas {wanted['ptxas']}, the DSL has {ptxas}")
    made = {loop["kernel"] for loop in found}
    assert found == [loop for loop in wanted["loops"] if ALL or loop["kernel"] in made]
