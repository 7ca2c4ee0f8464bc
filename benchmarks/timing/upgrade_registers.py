"""What does the upgrade of ptxas that gives chunk_gla_bwd_kernel_dv 32 registers cost? Needs a GPU and ptxas 13.5.37.

The kernel is flash-linear-attention's, in the first of its autotuned configurations, with the shapes of a training
step. Its program runs once with launches recorded. Then each form is assembled from the same PTX, and `tritonhook ab`
times it against the code of Triton's own ptxas.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment
from tritonhook.capture.policy.levers import Lever, lever
from tritonhook.capture.selection import Kernel, kernels_in
from tritonhook.capture.store import CaptureFolder
from tritonhook.errors import UsageError
from tritonhook.ptxas.pool import Limits, sweep
from tritonhook.tuning.candidates import Choice, Subject, choices, subject_of

NEEDS = ("gpu", "fla")
KERNEL, PROGRAM = "chunk_gla_bwd_kernel_dv", ("fla-1", "gla.chunk_gla")
FORMS = ("ptxas=13.5.37", "maxnreg=255+ptxas=13.5.37", "maxnreg=128+ptxas=13.5.37", "O1+ptxas=13.5.37", "maxnreg=128")
FIGURES = ("registers", "stack", "spill_stores", "spill_loads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, help="keep captures and timings there")
    parser.add_argument("--forms", nargs="+", default=list(FORMS), help="levers, as `tritonhook tune` takes them")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        folder = _recorded(work / "captures")
        kernel = next(one for one in kernels_in(folder) if isinstance(one, Kernel) and one.name == KERNEL)
        choice = _assembled(folder, kernel, map(lever, arguments.forms))
        own = work / "own.cubin"
        own.write_bytes(choice.plain.cubin)
        samples = []
        for one in choice.others:
            cubin = work / f"{one.text}.cubin"
            cubin.write_bytes(one.cubin)
            figures = {name: getattr(one.resources, name) for name in FIGURES}
            timed = _timed(own, cubin, kernel.launches[0].path)
            samples.append({"form": one.text, "ptxas": one.ptxas, **figures, "timed": timed})
            print(f"{one.text}: {timed.get('verdict')} {timed.get('ratio')}", flush=True)
        plain = {name: getattr(choice.plain.resources, name) for name in FIGURES}
        return {
            "what": f"{KERNEL} in its first configuration under other ptxas and levers, against Triton's own",
            "summary": {sample["form"]: sample["timed"].get("ratio") for sample in samples},
            "environment": environment("triton", "torch", "fla-core"),
            "launch": kernel.launches[0].summary,
            "own": {"ptxas": choice.plain.ptxas, **plain},
            "same_code": {one.lever.text: one.reason for one in choice.dropped},
            "samples": samples,
        }


def _recorded(out: Path) -> CaptureFolder:
    """The program's captures with its launches, made in a process of its own."""
    words = ["run", "--launches", "--out", str(out), "-m", "benchmarks", "programs", *PROGRAM, "--real", "--first"]
    own = {"TRITON_CACHE_DIR": f"{out}.cache"}
    subprocess.run([sys.executable, "-m", "tritonhook", *words], env=os.environ | own, cwd=REPOSITORY, check=True)
    return CaptureFolder.open(out)


def _assembled(folder: CaptureFolder, kernel: Kernel, levers: Iterable[Lever]) -> Choice:
    subject = subject_of(folder, kernel, trust=True)
    if not isinstance(subject, Subject):
        raise UsageError(subject.reason)
    (found,) = choices([(subject, tuple(levers))], lambda jobs: sweep(jobs, os.cpu_count(), None, None, Limits()))
    if not isinstance(found, Choice):
        raise UsageError(str(found))
    return found


def _timed(own: Path, other: Path, launch: Path) -> dict[str, Any]:
    """What `tritonhook ab` says: the outputs may differ by rounding, as the codes multiply and add in another order."""
    words = [sys.executable, "-m", "tritonhook", "ab", str(own), str(other), "--args", str(launch), "--rtol", "1e-2"]
    done = subprocess.run([*words, "--json"], cwd=REPOSITORY, capture_output=True, text=True)
    try:
        found = dict(json.loads(done.stdout))
    except ValueError:
        return {"error": done.stderr.strip()[-500:]}
    blocks = [{name: statistics.median(us) for name, us in block["times_us"].items()} for block in found["blocks"]]
    ratios = [block["candidate"] / block["reference"] for block in blocks]
    kept = ("device", "verdict", "reason", "wrong", "stopped")
    told = {name: statistics.median(block[name] for block in blocks) for name in blocks[0]} if blocks else {}
    times = [{"process": block["process"]} | block["times_us"] for block in found["blocks"]]
    ratio = statistics.median(ratios) if ratios else None
    return {name: found[name] for name in kept} | {"ratio": ratio, "us": told, "times_us": times}
