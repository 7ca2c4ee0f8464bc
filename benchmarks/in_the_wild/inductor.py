"""torch.compile on a GPU, with and without tritonhook: the right results, the right kernels, all captured.

    python -m benchmarks inductor [--modes default reduce-overhead ...] [--out FILE]

The block of examples/torch_compile.py, each run in a fresh process: plain, captured, `--strip` and `--prefix cutlass_`,
each with cold caches and again with warm ones; then plain, renamed and plain in one shared cache. Checked for each run:

* it ends with status 0, and tritonhook reports no error;
* its output equals the plain run's, bit for bit. Where Inductor tunes kernels, it is equal within half precision: each
  choice sums in another order, also in two plain runs; the control shows how often. Modes that do not tune run with
  TORCHINDUCTOR_DETERMINISTIC=1: Inductor times reductions there too, and without it two plain runs were seen to differ;
* every Triton kernel that the GPU ran, by the driver's names, is in the captures with PTX and cubin;
* names are as asked for, or a note of the run says why not.

Takes about 20 s a process and eleven or twelve processes a mode. Executed, not timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment, write_json

RESULT = "in_the_wild_torch"
MODES = ("default", "reduce-overhead", "max-autotune", "coordinate-descent")
TUNED = ("max-autotune", "coordinate-descent")
PREFIX = "cutlass_"
VARIANTS: dict[str, list[str] | None] = {
    "plain": None,
    "captured": [],
    "stripped": ["--strip"],
    "prefixed": ["--prefix", PREFIX],
}
# Words of tritonhook that mean that something went wrong.
BAD_WORDS = ("could not", "cannot", "not enabled", "did nothing", "Traceback")


NEEDS = ("gpu", "torch", "triton")
QUICK = ("--modes", "default")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))


def run(arguments: argparse.Namespace) -> int:
    return parent(arguments.modes, arguments.out)


# --- one process ---------------------------------------------------------------------------------


def child(mode: str, result: Path) -> None:
    """Compile and run the block; write what came out, and which kernels the GPU ran."""
    import torch
    from torch._dynamo.utils import counters
    from torch_compile import make

    block, x = make()
    options = {"coordinate_descent_tuning": True} if mode == "coordinate-descent" else None
    with torch.no_grad():
        compiled = torch.compile(block, mode=None if options else mode, options=options)
        for _ in range(4):  # compile, warm up, record a graph, replay it
            y = compiled(x).clone()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            y = compiled(x).clone()
            torch.cuda.synchronize()
        eager = block(x)
    inductor = counters["inductor"]
    document = {
        "sha256": hashlib.sha256(y.cpu().numpy().tobytes()).hexdigest(),
        "close_to_eager": torch.allclose(y, eager, rtol=2e-2, atol=2e-2),
        "kernels": sorted({event.name for event in profile.events() if event.device_type.name == "CUDA"}),
        "graph_cache": {name: inductor[name] for name in ("fxgraph_cache_hit", "fxgraph_cache_miss")},
        "autograd_cache": dict(counters["aot_autograd"]),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name(),
    }
    result.write_text(json.dumps(document))


# --- all of them ---------------------------------------------------------------------------------


def parent(modes: list[str], out: Path) -> int:
    samples: dict[str, Any] = {}
    for mode in modes:
        samples[mode] = run_mode(mode)
        write(out, samples)
    failures = [failure for mode in samples.values() for failure in mode["failures"]]
    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures; wrote {out}")
    return 1 if failures else 0


def write(out: Path, samples: dict[str, Any]) -> None:
    runs = [run for mode in samples.values() for run in mode["runs"]]
    gpu = next((run[name] for run in runs for name in ("gpu",) if name in run), None)
    summary = {
        "processes": len(runs),
        "failures": sum(len(mode["failures"]) for mode in samples.values()),
        "kernels_launched": sum(len(run.get("triton", [])) for run in runs),
        "kernels_renamed": sum(run.get("renamed", 0) for run in runs),
        "tunings": sum(run.get("tunings", 0) for run in runs),
        "bit_for_bit": {name: mode["bit_for_bit"] for name, mode in samples.items()},
    }
    write_json(
        out,
        {
            "format": 1,
            "environment": {**environment("torch", "triton"), "gpu": gpu},
            "samples": samples,
            "summary": summary,
        },
    )


def run_mode(mode: str) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plan = [(variant, temperature, variant) for variant in VARIANTS for temperature in ("cold", "warm")]
        plan += [("plain", "cold", "control")]  # a second plain run with caches of its own: what chance alone changes
        plan += [("plain", "cold", "shared"), ("prefixed", "cold", "shared"), ("plain", "warm", "shared")]
        for number, (variant, temperature, cache) in enumerate(plan):
            runs.append(run_one(mode, variant, temperature, folder / cache, folder / f"{number}"))
    reference = runs[0]
    failures: list[str] = []
    for run in runs:
        failures += [f"{mode}, {run['name']}: {what}" for what in problems(run, reference, mode)]
    same = sum(run.get("sha256") == reference.get("sha256") for run in runs)
    return {"failures": failures, "bit_for_bit": f"{same} of {len(runs)}", "runs": runs}


def run_one(mode: str, variant: str, temperature: str, cache: Path, place: Path) -> dict[str, Any]:
    place.mkdir()
    result, captures = place / "result.json", place / "captures"
    command = [sys.executable]
    options = VARIANTS[variant]
    if options is not None:
        command += ["-m", "tritonhook", "run", "--out", str(captures), *options]
    # A program like any other: the runner's own look for a GPU does not come before torch's.
    command += ["-m", "benchmarks.in_the_wild.inductor", mode, str(result)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TRITONHOOK", "TORCHINDUCTOR"))}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    if mode not in TUNED:
        env["TORCHINDUCTOR_DETERMINISTIC"] = "1"
    began = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    name = f"{variant}, {temperature} {cache.name if cache.name in ('shared', 'control') else ''}".strip()
    run: dict[str, Any] = {"name": name, "variant": variant, "status": done.returncode}
    if done.returncode:
        run["stderr"] = done.stderr[-4000:]
    else:
        run |= json.loads(result.read_text())
        run["triton"] = [kernel for kernel in run["kernels"] if "triton_" in kernel or kernel.endswith("gate")]
        if options is not None:
            run |= captured(captures, run["triton"]) | {"said": said(done.stderr)}
    print(f"{mode:20} {name:24} status {done.returncode} {time.monotonic() - began:5.1f} s", flush=True)
    return run


def said(stderr: str) -> list[str]:
    """Lines of tritonhook's that are neither the table nor the summary."""
    lines = [line for line in stderr.splitlines() if line.startswith(("  ", "tritonhook"))]
    return [line.strip() for line in lines if not line.startswith("tritonhook: ") or "kernels seen" not in line]


def captured(folder: Path, launched: list[str]) -> dict[str, Any]:
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.errors import TritonHookError

    opened = CaptureFolder.open(folder)
    complete: dict[str, str | None] = {}
    damaged: list[str] = []
    for record in opened.records:
        try:
            capture = opened.capture(record)
            if capture.ptx.only_entry() == capture.kernel and capture.cubin.startswith(b"\x7fELF"):
                complete[capture.kernel] = capture.rewritten_from
        except TritonHookError as error:
            damaged.append(f"{record}: {error}")
    return {
        "records": len(opened.records),
        "compiled": sum(not s.cache_hit for s in opened.sightings),
        "from_cache": sum(s.cache_hit for s in opened.sightings),
        "missing": [name for name in launched if name not in complete],
        "renamed": sum(complete.get(name) is not None for name in launched),
        "not_renamed": [name for name in launched if complete.get(name) is None],
        "damaged": damaged,
        "torn": opened.torn,
        "notes": list(opened.notes),
        "tunings": len(opened.tunings),
    }


def problems(run: dict[str, Any], reference: dict[str, Any], mode: str) -> list[str]:
    """What is wrong with a run, in words."""
    if run["status"]:
        return [f"status {run['status']}: {run['stderr'][-600:]}"]
    wrong: list[str] = []
    if not run["close_to_eager"]:
        wrong.append("its output is not that of eager execution")
    if mode not in TUNED and run["sha256"] != reference.get("sha256"):
        wrong.append("its output differs from the plain run's")
    if not run["triton"]:
        wrong.append("no Triton kernel was launched: nothing is proven")
    if run["variant"] == "plain":
        renamed = [name for name in run["triton"] if name.startswith(f"{PREFIX}triton_")]
        return wrong + ([f"a plain run launched {renamed}"] if renamed else [])
    for key in ("missing", "damaged", "torn"):
        if run[key]:
            wrong.append(f"{key}: {run[key]}")
    wrong += [line for line in run["said"] if any(word in line for word in BAD_WORDS)]
    excused = any("own names" in note or "keeps its own name" in note for note in run["notes"])
    own = [name for name in run["not_renamed"] if not name.startswith(PREFIX)]  # a name that has it keeps it
    if run["variant"] == "prefixed" and own and not excused:
        wrong.append(f"not renamed, and no note says why: {own}")
    if run["variant"] == "stripped" and (left := [name for name in run["triton"] if "cutlass" in name]):
        wrong.append(f"not stripped: {left}")
    return wrong


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]))
