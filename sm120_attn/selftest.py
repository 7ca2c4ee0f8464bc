"""What the owner of an RTX 50 or a GB10 runs once: check, bench, inspect, into one JSON file to send back.

    python -m sm120_attn selftest [--out sm120-selftest.json] [--quick]

The kernels were written without such a GPU. This finds out whether they are right there, and how fast, with what is
needed to understand a surprise: the device, its clocks and power limit, the versions, the instruction counts of the
very kernels that ran. Nothing is sent anywhere, and the file names neither the machine nor its user.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import bench, cases, check, compiled, inspect
from .needs import require_folder, require_gpu, require_hypothesis

SMI = "clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu,driver_version"
FP8_LIMIT_S = 1800
QUICK = ("113 x 203", "tail 15 of 64", "packed", "GQA", "values")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("sm120-selftest.json"), metavar="FILE")
    parser.add_argument("--force", action="store_true", help="write over the file")
    parser.add_argument("--quick", action="store_true", help="a part of it, in about a minute")
    parser.add_argument("--jobs", type=int, default=4, help="processes that compile ahead (default: 4)")


def main(arguments: argparse.Namespace) -> int:
    if arguments.out.exists() and not arguments.force:
        raise ValueError(f"{arguments.out} exists; name another --out, or say --force")
    if arguments.jobs < 1:
        raise ValueError(f"--jobs {arguments.jobs}: at least 1")
    require_folder(arguments.out)
    require_gpu()
    require_hypothesis()
    result = run(arguments.quick, arguments.jobs)
    arguments.out.write_text(json.dumps(result, indent=1))
    print(f"wrote {arguments.out}: correct: {result['check'].get('passed', 'not known')}. Please send it back.")
    return 0 if result["check"].get("passed") else 1


def run(quick: bool, jobs: int) -> dict[str, Any]:
    """Each part by itself: one that fails leaves its error, and the others still run."""
    started = time.perf_counter()
    print("checking against float64 ...", flush=True)
    checked = _part(lambda: _check(quick, jobs))
    clocks = [_smi()]
    print("timing ...", flush=True)
    timed = _part(lambda: bench.measure("published" if quick else None, True, 5 if quick else 11))
    clocks.append(_smi())
    print("checking FP8, whose kernels have never been executed ...", flush=True)
    checked_fp8 = _part(lambda: _check_fp8(quick, jobs))
    print("counting instructions ...", flush=True)
    return {
        "what": "sm120_attn selftest",
        "format": 1,
        "sources": compiled.source_hash(),
        "device": _part(bench.device),
        "clocks_before_and_after_timing": clocks,
        "check": checked,
        "check_fp8": checked_fp8,
        "bench": timed,
        "inspect": _part(_inspect),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _check(quick: bool, jobs: int) -> dict[str, Any]:
    chosen = [case for kernel in (None, "cp_async", *cases.TILES) for case in cases.matrix(kernel)]
    if quick:
        chosen = [case for case in chosen if any(text in case.name for text in QUICK)]
    result = check.check_all(chosen, 50 if quick else 1000, quick, jobs)
    print(check.summary(result))
    del result["verdicts"]  # thousands; the failures are kept
    return result


def _check_fp8(quick: bool, jobs: int) -> dict[str, Any]:
    """In a process of its own, which has an end: this may be the first run of these kernels on any GPU."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "check.json"
        command = [sys.executable, "-m", "sm120_attn", "check", "--fp8", "--jobs", str(jobs), "--json", str(out)]
        command += ["--only", "FP8 native"] * quick
        done = subprocess.run(command, timeout=FP8_LIMIT_S, check=False)
        if not out.exists():
            return {"error": f"the check ended with status {done.returncode} and left no result"}
        result = json.loads(out.read_text())
    del result["verdicts"]
    return result


def _inspect() -> dict[str, Any]:
    """Of the kernels that long sequences get on this device."""
    from . import launch

    arch, _ = launch.device_facts(0)
    return inspect.report([inspect.inspect(config) for config in inspect.configs((arch,), (64, 128), (False, True))])


def _part(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:  # a GPU that nobody has seen these kernels on: anything may happen
        print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
        return {"error": f"{type(error).__name__}: {error}"}


def _smi() -> dict[str, str]:
    """Clocks and power as nvidia-smi gives them; {} without it."""
    try:
        command = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader", "--id=0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(SMI.split(","), [cell.strip() for cell in done.stdout.strip().split(",")], strict=False))
