"""How long do kernels take by TRITON_INTERPRET=1, and emulated, side by side on one machine?

    python -m benchmarks interpret [--rounds 3] [--only NAME ...] [--out FILE]

The programs of `interpreting/programs.py`, unmodified: once as the interpreter runs them, on tensors of the CPU, and
once by `tritonhook run --arch sm_90a --emulate`. Rounds alternate; each takes processes of its own, and the least CPU
time of two calls after the first, which compiles: it says more than the clock on a machine with other work, whose load
is noted. A result counts as wrong where its error against float64 is above WRONG,
in the L2 norm, relative.

Summary: the geometric mean of the ratios of the programs that are right on both sides, their least, and how many
programs each side fails or computes wrongly.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, coverage, environment

NEEDS = ("torch", "triton")
QUICK = ("--rounds", "1", "--only", "add")
PROGRAMS = Path(__file__).parent / "interpreting" / "programs.py"
WRONG = 5e-3
_SIDES = "interpreted", "emulated"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for side in _SIDES:
                for one in _ran(side, arguments.only, Path(folder)):
                    found.setdefault(one["program"], {}).setdefault(side, []).append(one)
    rows = [_row(name, sides) for name, sides in found.items()]
    for row in rows:
        print(json.dumps(row))
    used = environment("torch", "triton", "numpy") | {"load_average": os.getloadavg()[1]}
    return {"summary": summary(rows), "environment": used, "samples": rows}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    return coverage(len(rows), {"wrong or failed on one side": len(rows) - len(ratios)}) | {
        "programs": len(rows),
        "times_as_fast": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
        "least": min(ratios, default=None),
        **{f"{side}_fails": sum(row[side]["why"] is not None for row in rows) for side in _SIDES},
    }


def _ran(side: str, names: list[str], folder: Path) -> list[dict[str, Any]]:
    command, more = [str(PROGRAMS), "cuda"], {"PYTHONPATH": str(REPOSITORY), "TRITON_CACHE_DIR": str(folder / "cache")}
    if side == "interpreted":
        command, more = [str(PROGRAMS), "cpu"], more | {"TRITON_INTERPRET": "1"}
    else:
        own = "-m", "tritonhook", "run", "--arch", "sm_90a", "--emulate", "--out", str(folder / "captures")
        command = [*own, *command]
    done = subprocess.run(
        [sys.executable, *command, *names],
        env=os.environ | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _row(name: str, sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    row: dict[str, Any] = {"program": name}
    for side in _SIDES:
        runs = sides.get(side, [])
        why = next((one["failed"] for one in runs if "failed" in one), None if runs else "did not run")
        if why is None and not (error := max(one["error"] for one in runs)) < WRONG:
            why = f"wrong by {error:.2g}"
        times = [one["seconds"] for one in runs if "seconds" in one]
        row[side] = {"seconds": statistics.median(times) if times else None, "why": why, "all": times}
    is_right = all(row[side]["why"] is None for side in _SIDES)
    row["ratio"] = row["interpreted"]["seconds"] / row["emulated"]["seconds"] if is_right else None
    return row
