"""What the place of code costs: 16 copies of each kernel's code at 16 places, timed beside each other.

    python -m benchmarks tune_h200 record --work W      kernels with launches, from programs of verify/programs.py
    python -m benchmarks placement --work W [--kernels 20] [--seconds 150]

On a GPU. Each process loads 16 copies of one cubin with paddings of drawn sizes between them (timing/places.py), and
times them in drawn order, kernel by kernel. Two processes draw alike, so that their copies lie at the same places, and
one draws otherwise. Summary: `spread_median_percent` and `spread_max_percent`, of the 16 medians of a kernel in one
process (a standard deviation, without the part that blocks differ by); `fastest_to_slowest_max_percent` and
`kernels_above_the_band`, of all processes;
`correlation_same_order`: of the places' times between the two processes that draw alike, median over kernels. 1: the
effect of a place is the same in every process that loads alike; `correlation_other_order`: with the other one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import environment
from benchmarks.tuning.tune_work import planned_kernels
from tritonhook.capture.selection import Kernel
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.errors import TritonHookError

COPIES = 16
BLOCKS = 10
SEEDS = (1, 1, 2)  # of the processes: the first two draw alike

NEEDS = ("gpu", "torch", "triton")
OFFLINE = ("--simulated",)
QUICK = ("--simulated", "--kernels", "2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, default=Path("tune-h200"), help="of tune_h200 record")
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e6, help="of each process; it ends between two kernels")
    parser.add_argument("--child", type=int, metavar="SEED", help="be one of the processes")
    parser.add_argument("--simulated", action="store_true", help="no GPU: every place costs what it likes")
    parser.set_defaults(part=0, parts=1)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.child is not None:
        for row in measured(arguments):
            print(json.dumps(row), flush=True)
        return None
    processes = (
        list(simulated(arguments.kernels)) if arguments.simulated else list(map(partial(child, arguments), SEEDS))
    )
    return document(processes)


def child(arguments: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """What one process measures, in a process of its own: code that was unloaded leaves its place."""
    words = ["--work", str(arguments.work), "--kernels", str(arguments.kernels), "--seconds", str(arguments.seconds)]
    command = [sys.executable, "-m", "benchmarks", "placement", *words, "--child", str(seed)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"process with seed {seed}: status {found.returncode}", file=sys.stderr)
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def measured(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The medians of each block of each copy, in microseconds, of each kernel."""
    ends = time.monotonic() + arguments.seconds
    planned = list(planned_kernels(arguments))
    for plan, folder, kernel in sorted(planned, key=lambda one: one[0]["us"])[: arguments.kernels]:
        if time.monotonic() > ends:
            return
        try:
            copies = timed(folder, kernel, arguments.child)
        except TritonHookError as error:
            print(f"{kernel.name}: {error}", file=sys.stderr)
            continue
        yield {"source": plan["source"], "kernel": kernel.name, "ptx": kernel.ptx, "us": plan["us"], "copies": copies}


def timed(folder: CaptureFolder, kernel: Kernel, seed: int) -> list[list[float]]:
    import torch

    from tritonhook.timing.places import CodePlaces
    from tritonhook.timing.replay import Buffers, LoadedKernel
    from tritonhook.timing.timer import TimedSide, Timer, device_errors

    capture, path = folder.capture(kernel.record), kernel.launches[0].path
    with device_errors():
        buffers = Buffers(read_launch(path), path.parent)
        names = [f"{number:02}" for number in range(COPIES)]
        places = CodePlaces(seed)
        load = dict.fromkeys(names, partial(LoadedKernel, capture.cubin, capture.kernel, buffers))
        loaded = [copy for _, copy in places.load(load, 1)]  # in the order of their places
        for copy in loaded:
            copy.launch()
        torch.cuda.synchronize()
        timer = Timer([TimedSide(name, copy.launch) for name, copy in zip(names, loaded, strict=True)], racing=True)
        timer.prepare()
        blocks = [timer.take_block(0) for _ in range(BLOCKS + 1)][1:]
        for copy in loaded:
            copy.unload()
        places.free()
    usable = [block for block in blocks if block.conditions.unfit is None]
    return [[round(block.median_us(name), 4) for block in usable] for name in names]


def simulated(kernels: int) -> Iterator[list[dict[str, Any]]]:
    import random

    for seed in SEEDS:
        draw, noise = random.Random(seed), random.Random(time.time())
        yield [
            {
                "source": "simulated",
                "kernel": f"k{number}",
                "ptx": "",
                "us": 50.0,
                "copies": [
                    [us * (1 + noise.gauss(0, 0.001)) for _ in range(BLOCKS)]
                    for us in (50 * (1 + draw.gauss(0, 0.003)) for _ in range(COPIES))
                ],
            }
            for number in range(kernels)
        ]


def effects(copies: Sequence[Sequence[float]]) -> list[float]:
    """The log of each place's time over the mean of all."""
    logs = [statistics.median(map(math.log, blocks)) for blocks in copies]
    return [one - statistics.mean(logs) for one in logs]


def spread(copies: Sequence[Sequence[float]]) -> float:
    """The standard deviation between places, without the part of it that blocks differ by."""
    of_blocks = statistics.mean(statistics.variance(map(math.log, blocks)) / len(blocks) for blocks in copies)
    between = statistics.variance([statistics.mean(map(math.log, blocks)) for blocks in copies])
    return math.sqrt(max(between - of_blocks, 0.0))


def document(processes: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """A row for each kernel that all processes timed, and the summary."""
    first, again, other = ({(row["kernel"], row["ptx"]): row for row in rows} for rows in processes)
    rows = []
    for key in first.keys() & again.keys() & other.keys():
        copies = [one[key]["copies"] for one in (first, again, other)]
        if min(len(blocks) for one in copies for blocks in one) < 2:
            continue
        a, b, c = map(effects, copies)
        rows.append(
            {
                **{name: first[key][name] for name in ("source", "kernel", "us")},
                "spread_percent": 100 * spread(copies[0]),
                "fastest_to_slowest_percent": max(100 * (math.exp(max(one) - min(one)) - 1) for one in (a, b, c)),
                "correlation_same_order": correlation(a, b),
                "correlation_other_order": correlation(a, c),
                "copies": copies,
            }
        )
    rows.sort(key=lambda row: -row["spread_percent"])
    gpu: dict[str, Any] = {}
    if "torch" in sys.modules or (processes and processes[0] and processes[0][0]["source"] != "simulated"):
        import torch

        gpu = {"gpu": torch.cuda.get_device_name()}
    return {"summary": summary(rows), "environment": environment("torch", "triton") | gpu, "samples": rows}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: [row[name] for row in rows] for name in rows[0] if name != "copies"} if rows else {}
    found: dict[str, Any] = {"kernels": len(rows), "places": COPIES, "processes": len(rows[0]["copies"]) if rows else 0}
    if rows:
        found |= {
            "spread_median_percent": statistics.median(figures["spread_percent"]),
            "spread_max_percent": max(figures["spread_percent"]),
            "fastest_to_slowest_max_percent": max(figures["fastest_to_slowest_percent"]),
            "kernels_above_the_band": sum(one > 0.5 for one in figures["fastest_to_slowest_percent"]),
            "correlation_same_order": statistics.median(figures["correlation_same_order"]),
            "correlation_other_order": statistics.median(figures["correlation_other_order"]),
        }
    return found


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    return statistics.correlation(a, b) if len(set(a)) > 1 and len(set(b)) > 1 else 0.0
