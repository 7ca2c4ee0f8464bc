"""Does a sweep keep the processors busy with ptxas, and does a second one assemble nothing?

    python -m benchmarks sweep [--runs 3] [--out FILE]

500 kernels (families, shapes and architectures of the lab) over every ptxas at hand from 12.8 on, in random order, into
an empty cache; then the same in a new process with that cache. Summary: `cpu_efficiency`, the CPU time of the ptxas
processes, as the system counts it, over wall time times processors, and `cached_rerun_s`, the second
run with the start of Python, medians of the runs. `ptxas_cpu_ms`, `python_cpu_ms`: per job.
`other_processors`: how many processors other programs used meanwhile; `cpu_efficiency_of_free_processors` leaves these
out of the denominator.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment, seconds

QUICK = ("--runs", "1", "--count", "20")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=500, help="kernels")
    parser.add_argument("--workers", type=int, help="ptxas runs at a time (default: processors and ten)")
    parser.add_argument("--rerun", metavar="CACHE", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.rerun:
        assert all(cached for _, cached in swept(jobs(arguments.count), arguments.rerun, arguments.workers))
        return None
    samples = [measure(arguments.count, arguments.workers) for _ in range(arguments.runs)]
    return {
        "environment": environment("tritonhook", "triton"),
        "jobs": arguments.count,
        "ptxas": [tool.version for tool in ptxas()],
        "samples": samples,
        "summary": summary(samples),
    }


def summary(samples: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def jobs(count: int) -> list[Any]:
    from tritonhook.lab.kernels.families import FAMILIES, SHAPES
    from tritonhook.ptxas.pool import Job

    tools = ptxas()
    archs = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
    kernels = [(f, s, arch) for arch in archs for f in FAMILIES if f.supports(arch) for s in SHAPES]
    dice = random.Random(0)
    dice.shuffle(kernels)
    made = []
    for number in range(count):
        family, shape, arch = kernels[number % len(kernels)]
        ptx = family.ptx(shape, arch, f"kernel_{number:03}")
        made.append(Job(ptx.text, tools[number % len(tools)], ("-v", f"--gpu-name={arch}")))
    dice.shuffle(made)
    return made


def ptxas() -> list[Any]:
    from tritonhook.cli._sweeps import wanted_tools

    return [tool for tool in wanted_tools(("all",)) if [int(n) for n in tool.version.split(".")] >= [12, 8]]


def swept(made: list[Any], cache: str, workers: int | None) -> list[tuple[Any, bool]]:
    from tritonhook.ptxas.pool import ResultCache, sweep

    found: list[tuple[Any, bool]] = []
    for _ in sweep(made, workers, ResultCache(cache), lambda job, outcome, known: found.append((outcome, known))):
        pass
    return found


def measure(count: int, workers: int | None) -> dict[str, float]:
    made = jobs(count)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as cache:
        load = os.getloadavg()[0]
        busy, own, python, start = busy_seconds(), own_seconds(), time.process_time(), time.perf_counter()
        outcomes = [outcome for outcome, _ in swept(made, cache, workers)]
        wall = time.perf_counter() - start
        python = time.process_time() - python
        others = (busy_seconds() - busy) - (own_seconds() - own)
        again = [sys.executable, "-m", "benchmarks", "sweep", "--count", str(count), "--rerun", cache]
        cached = seconds(lambda: subprocess.run(again, cwd=REPOSITORY, check=True))
    assert all(outcome.image is not None for outcome in outcomes), {o.message for o in outcomes}
    cpu = sum(outcome.cpu_s for outcome in outcomes)
    return {
        "cpu_efficiency": cpu / (wall * cores),
        "cpu_efficiency_of_free_processors": cpu / (wall * cores - max(others, 0)),
        "cached_rerun_s": cached,
        "wall_s": wall,
        "ptxas_cpu_ms": 1000 * cpu / len(outcomes),
        "python_cpu_ms": 1000 * python / len(outcomes),
        "other_processors": others / wall,
        "load_average_before": load,
    }


def own_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def busy_seconds() -> float:
    """CPU time of the whole machine that was not idle: user, nice, system, irq, softirq, steal."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
