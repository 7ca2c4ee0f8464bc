"""Whole training steps with a policy and without: a small GLA of flash-linear-attention, and a Llama layer with Liger's
kernels. An autotuner chooses among eight of its configurations, as when the steps were recorded.

    python -m benchmarks tune_h200 record|assemble|race|policy --work W
    python -m benchmarks end_to_end --work W [--processes 5] [--blocks 8] [--only gla llama]

On a GPU. Each process builds a model, runs its step without the policy and under W/tritonhook.toml, and times both side
by side. Summary: `gain_percent_NAME` with `verdict_NAME`; `steps_2pct_faster`. A whole step that is less than 2% faster
is told as such in the docs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from benchmarks.tuning.whole_steps import STEPS
from benchmarks.verify import programs

with suppress(ImportError):  # `--help` does not need it
    import torch

NEEDS = ("gpu", "torch", "triton", "fla", "liger_kernel")
OFFLINE = ("--list",)
QUICK = ("--list",)
SEED = 20261123


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, default=Path("tune-h200"), help="with tritonhook.toml")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=8, help="of each process")
    parser.add_argument("--only", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--onto", type=Path, help="a result, whose other steps are kept")
    parser.add_argument("--child", nargs=2, metavar=("STEP", "PROCESS"), help="be one of the processes")
    parser.add_argument("--list", action="store_true", help="only say which steps there are")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.list:
        print(*(f"{name}: {make.__doc__}" for name, make in STEPS.items()), sep="\n")
        return None
    if arguments.child:
        print(json.dumps(measured(arguments, arguments.child[0], int(arguments.child[1]))), flush=True)
        return None
    found: dict[str, list[dict[str, Any]]] = {}
    for sample in json.loads(arguments.onto.read_text())["samples"] if arguments.onto else ():
        found.setdefault(sample["step"], []).append(sample)
    return document(
        found | {name: [child(arguments, name, n) for n in range(arguments.processes)] for name in arguments.only}
    )


def child(arguments: argparse.Namespace, name: str, number: int) -> dict[str, Any]:
    words = ["--work", str(arguments.work), "--blocks", str(arguments.blocks), "--child", name, str(number)]
    command = [sys.executable, "-m", "benchmarks", "end_to_end", *words]
    own = os.environ | {"TRITON_CACHE_DIR": str(arguments.work / f"cache-steps-{name}")}  # of the recording
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=own)
    lines = [line for line in found.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(f"{name}, process {number}: status {found.returncode}, nothing measured", file=sys.stderr)
    return dict(json.loads(lines[-1])) if lines else {"applied": [], "blocks": [], "us": None}


def measured(arguments: argparse.Namespace, name: str, number: int) -> dict[str, Any]:
    """Blocks of one process: the step as it is, under the policy, and as it is once more."""
    import tritonhook
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.capture.triton.autotuner import choices_of
    from tritonhook.timing.places import CodePlaces
    from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
    from tritonhook.timing.timer import TimedSide, Timer

    torch.manual_seed(0)
    programs.take_real_shapes()
    programs.try_few_configurations()
    step, out = STEPS[name](), arguments.work / f"end-to-end-{name}-{number}"
    policy = arguments.work / "tritonhook.toml"
    own: dict[str, dict[int, Any]] = {REFERENCE: {}, CANDIDATE: {}, CONTROL: {}}

    @contextmanager
    def within(side: str) -> Iterator[None]:
        """Each side has its own choices of autotuners."""
        session = tritonhook.session(out, policy=policy) if side == CANDIDATE else nullcontext()
        with choices_of({}, own[side]), session:
            step()  # what the first launches of a session look up is not timed
            yield

    for side in CodePlaces(SEED + number).order(list(own)):
        with within(side):
            for _ in range(3):
                step()
            torch.cuda.synchronize()
    captures = CaptureFolder.open(out)
    levers = [(one.kernel, one.lever) for one in map(captures.capture, captures.records) if one.lever]
    sides = [TimedSide(side, step, partial(within, side)) for side in own]
    timer = Timer(sides, seed=SEED + number)
    timer.prepare()
    blocks = [asdict(timer.take_block(number)) for _ in range(arguments.blocks)]
    graphs = all(side.graph is not None for side in sides)
    return {"applied": levers, "blocks": blocks, "graphs": graphs, "gpu": torch.cuda.get_device_name()}


def document(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    from tritonhook._util.schema import as_schema
    from tritonhook.timing.statistics import Comparison, SampleBlock

    summary: dict[str, Any] = {}
    for name, processes in found.items():
        blocks = [as_schema(block, SampleBlock) for one in processes for block in one["blocks"]]
        comparison = Comparison(tuple(blocks))
        if (effect := comparison.effect()) is None:
            summary[f"verdict_{name}"] = "nothing measured"
            continue
        summary |= {
            f"gain_percent_{name}": 100 * (1 - effect.ratio),
            f"interval_percent_{name}": [100 * (1 - effect.high), 100 * (1 - effect.low)],
            f"verdict_{name}": comparison.verdict.value,
            f"reason_{name}": comparison.reason,
            f"step_us_{name}": blocks[0].median_us("reference"),
            f"levers_{name}": _levers(processes),
            f"graphs_{name}": all(one.get("graphs", False) for one in processes),
        }
    faster = [name for name in found if summary.get(f"verdict_{name}") == "faster"]
    summary["steps_2pct_faster"] = sum(summary[f"gain_percent_{name}"] >= 2 for name in faster)
    gpu = next((one["gpu"] for some in found.values() for one in some if "gpu" in one), None)
    samples = [
        {"step": name, **one, "blocks": [{k: v for k, v in block.items() if k != "order"} for block in one["blocks"]]}
        for name, some in found.items()
        for one in some
    ]
    return {"summary": summary, "environment": environment("torch", "triton") | {"gpu": gpu}, "samples": samples}


def _levers(processes: Sequence[dict[str, Any]]) -> int:
    """How many kernels got a lever in every process."""
    return min((len(one["applied"]) for one in processes), default=0)
