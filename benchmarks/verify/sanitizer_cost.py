"""What the sanitizer costs: five programs by `run --emulate`, with and without --sanitize, beside a dry run of each.

    python -m benchmarks sanitizer_cost [--runs 3] [--out FILE]

CPU seconds and peak memory are those above the dry run, the least of the runs. Needs torch and triton, no GPU. factor:
of the seconds. bytes_per_byte: of a program's tensors, what --sanitize adds. Samples: CPU seconds and peak bytes of
each run, in turns of dry, emulated, sanitized.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import environment

NEEDS = ("numpy", "torch", "triton")
QUICK = ("--only", "softmax", "--runs", "1")
ARCH = "sm_90a"
MODES = {"dry": (), "emulated": ("--emulate",), "sanitized": ("--emulate", "--sanitize")}
PROGRAMS = {"softmax": 64 << 20, "matmul": 3 << 20, "attention": 1 << 20, "sums": 16 << 20, "histogram": 4 << 20}
SCRIPT = """
import sys
import torch, triton, triton.language as tl

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

rand, half = (lambda *shape: torch.randn(*shape, device="cuda")), torch.float16
{
    "softmax": lambda: softmax[(8192,)](rand(8192, 1024), torch.empty(8192, 1024, device="cuda"), 1024),
    "matmul": lambda: matmul[(8, 8)](*(rand(512, 512).to(half) for _ in "abc"), 512, 64, 32),
    "attention": lambda: attention[(16,)](*(rand(1024, 64).to(half) for _ in "qkvo"), 1024, 64, 64),
    "sums": lambda: sums[(4096,)](rand(4096, 1024), torch.zeros(8, device="cuda"), 1024),
    "histogram": lambda: histogram[(1024,)](
        torch.randint(0, 64, (1024, 1024), device="cuda", dtype=torch.int32),
        torch.zeros(64, device="cuda", dtype=torch.int32), 1024),
}[sys.argv[1]]()
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--runs", type=int, default=3)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(SCRIPT)
        for program in arguments.only:
            _ran(Path(folder), program, ())  # compiles it
            turns = [
                {name: _ran(Path(folder), program, how) for name, how in MODES.items()} for _ in range(arguments.runs)
            ]
            found = {name: [turn[name] for turn in turns] for name in MODES}
            seconds = {name: min(one[0] for one in runs) for name, runs in found.items()}
            peaks = {name: min(one[1] for one in runs) for name, runs in found.items()}
            plain, watched = seconds["emulated"] - seconds["dry"], seconds["sanitized"] - seconds["dry"]
            rows.append(
                {
                    "program": program,
                    "emulated_s": round(plain, 2),
                    "sanitized_s": round(watched, 2),
                    "factor": round(watched / plain, 2),
                    "bytes_per_byte": round((peaks["sanitized"] - peaks["emulated"]) / PROGRAMS[program], 2),
                    "seconds": {name: [round(one[0], 3) for one in runs] for name, runs in found.items()},
                    "peaks": {name: [one[1] for one in runs] for name, runs in found.items()},
                }
            )
            print(*rows[-1].values(), flush=True)
    return {
        "evidence": "measured on the CPU",
        "environment": environment("tritonhook", "numpy", "triton"),
        "samples": rows,
    }


def _ran(folder: Path, program: str, how: tuple[str, ...]) -> tuple[float, int]:
    """Run a program; its CPU seconds, and its peak memory in bytes."""
    command = [sys.executable, "-m", "tritonhook", "run", "--arch", ARCH, *how, "--out", str(folder / "captures")]
    child = subprocess.Popen(
        [*command, "--force", "program.py", program], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{program} {' '.join(how)}: status {child.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss << 10
