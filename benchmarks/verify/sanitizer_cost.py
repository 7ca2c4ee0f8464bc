"""What the sanitizer costs: programs as tests, by `pytest --kernel-emulate`, with and without --kernel-sanitize.

    python -m benchmarks sanitizer_cost [--runs 3] [--out FILE]

Seconds are of the processor, of one thread, while launches were executed, as the plugin reports them; the least of the
runs counts. factor: of the seconds. more_bytes: by how much the peak memory of the process grows. The program `softmax`
is there in two sizes: what the memory grows by for each byte between them is bytes_per_byte of the summary, and what
the smaller one takes is fixed_bytes. Samples: seconds and peak bytes of each run, in turns. Needs torch and triton, no
GPU.
"""

from __future__ import annotations

import argparse
import ast
import os
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from benchmarks.common import environment

NEEDS = ("numpy", "torch", "triton")
QUICK = ("--only", "softmax", "--runs", "1")
ARCH = "sm_90a"
MODES = {"emulated": (), "sanitized": ("--kernel-sanitize",)}
LITTLE, LARGE = "softmax, small", "softmax"
PROGRAMS = {  # bytes of tensors that the launch gets
    LITTLE: 1 << 20, LARGE: 64 << 20, "matmul": 3 << 19, "attention": 1 << 19, "sums": 16 << 20, "histogram": 4 << 20,
}  # fmt: skip
SCRIPT = """
import time
time.monotonic = time.process_time  # which the plugin measures with; other processes cost nothing then
import os, torch, triton, triton.language as tl

@triton.jit
def softmax(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.exp(tl.load(x + at) - tl.max(tl.load(x + at), 0))
    tl.store(y + at, v / tl.sum(v, 0))

@triton.jit
def matmul(a, b, c, N, B: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, K)
    acc = tl.zeros((B, B), tl.float32)
    for first in range(0, N, K):
        x, y = tl.load(a + m[:, None] * N + first + k[None, :]), tl.load(b + (first + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))

@triton.jit
def attention(q, k, v, o, N, D: tl.constexpr, B: tl.constexpr):
    d, rows, cols = tl.arange(0, D), tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B)
    x, acc = tl.load(q + rows[:, None] * D + d[None, :]), tl.zeros((B, D), tl.float32)
    top, total = tl.full((B,), -1e30, tl.float32), tl.zeros((B,), tl.float32)
    for first in range(0, N, B):
        s = tl.dot(x, tl.trans(tl.load(k + (first + cols)[:, None] * D + d[None, :])))
        now = tl.maximum(top, tl.max(s, 1))
        p, scale = tl.exp(s - now[:, None]), tl.exp(top - now)
        total, top, acc = total * scale + tl.sum(p, 1), now, acc * scale[:, None]
        acc = tl.dot(p.to(tl.float16), tl.load(v + (first + cols)[:, None] * D + d[None, :]), acc)
    tl.store(o + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16))

@triton.jit
def sums(x, y, N: tl.constexpr):
    tl.atomic_add(y + tl.program_id(0) % 8, tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0))

@triton.jit
def histogram(x, y, N: tl.constexpr):
    tl.atomic_add(y + tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 1)

def test_it():
    rand, half = (lambda *shape: torch.randn(*shape, device="cuda")), torch.float16
    {
        "softmax, small": lambda: softmax[(128,)](rand(128, 1024), torch.empty(128, 1024, device="cuda"), 1024),
        "softmax": lambda: softmax[(8192,)](rand(8192, 1024), torch.empty(8192, 1024, device="cuda"), 1024),
        "matmul": lambda: matmul[(8, 8)](*(rand(512, 512).to(half) for _ in "abc"), 512, 64, 32),
        "attention": lambda: attention[(16,)](*(rand(1024, 64).to(half) for _ in "qkvo"), 1024, 64, 64),
        "sums": lambda: sums[(4096,)](rand(4096, 1024), torch.zeros(8, device="cuda"), 1024),
        "histogram": lambda: histogram[(1024,)](
            torch.randint(0, 64, (1024, 1024), device="cuda", dtype=torch.int32),
            torch.zeros(64, device="cuda", dtype=torch.int32), 1024),
    }[os.environ["PROGRAM"]]()
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--runs", type=int, default=3)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_it.py").write_text(SCRIPT)
        for program in arguments.only:
            turns = [
                {name: _ran(Path(folder), program, how) for name, how in MODES.items()} for _ in range(arguments.runs)
            ]
            seconds = {name: [turn[name][0] for turn in turns] for name in MODES}
            peaks = {name: [turn[name][1] for turn in turns] for name in MODES}
            row = {
                "program": program,
                "emulated_s": min(seconds["emulated"]),
                "sanitized_s": min(seconds["sanitized"]),
                "factor": round(min(seconds["sanitized"]) / min(seconds["emulated"]), 2),
                "tensors_bytes": PROGRAMS[program],
                "more_bytes": min(peaks["sanitized"]) - min(peaks["emulated"]),
            }
            print(*row.values(), flush=True)
            rows.append(row | {"seconds": seconds, "peaks": peaks})
    more = {row["program"]: row["more_bytes"] for row in rows}
    of_both = more.keys() >= {LITTLE, LARGE}
    return {
        "summary": {
            "programs": len(rows),
            "fixed_bytes": more.get(LITTLE),
            "bytes_per_byte": round((more[LARGE] - more[LITTLE]) / (PROGRAMS[LARGE] - PROGRAMS[LITTLE]), 2)
            if of_both
            else None,
            "factor_geomean": round(statistics.geometric_mean(row["factor"] for row in rows), 2),
            "factor_most": max(row["factor"] for row in rows),
        },
        "evidence": "measured on the CPU",
        "environment": environment("tritonhook", "numpy", "triton"),
        "samples": rows,
    }


def _ran(folder: Path, program: str, how: tuple[str, ...]) -> tuple[float, int]:
    """Run a program as a test: seconds in which its launches were executed, and the process's peak memory in bytes."""
    report = folder / "report.xml"
    options = ("--kernel-arch", ARCH, "--kernel-emulate", "--kernel-limit", "600", *how, f"--junitxml={report}")
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_it.py"],
        cwd=folder,
        env=os.environ | {"PROGRAM": program, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{program} {' '.join(how)}: status {child.returncode}")
    values = {one.get("name"): one.get("value", "") for one in ElementTree.parse(report).iter("property")}
    _, seconds, *_ = ast.literal_eval(values["emulated"])
    return float(seconds), used.ru_maxrss << 10
