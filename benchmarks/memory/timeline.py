"""One watched run on a GPU: three Triton kernels, the second with a stack that is reserved for every thread.

    python -m benchmarks timeline [--out FILE]      # makes benchmarks/results/memory_timeline.json, on a GPU

The file is the document of `tritonhook mem watch --save`; `tritonhook show` shows it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULT = "memory_timeline"
# Run in a child of its own: what it takes goes with it. The tile of the second matmul does not fit 32 registers.
PROGRAM = """
import time
import torch, triton, triton.language as tl

@triton.jit
def matmul(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        x = tl.load(a + rows[:, None] * k + (inner + at)[None, :])
        y = tl.load(b + (inner + at)[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total)

@triton.jit
def spilling_matmul(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        x = tl.load(a + rows[:, None] * k + (inner + at)[None, :])
        y = tl.load(b + (inner + at)[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total)

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

half = {"device": "cuda", "dtype": torch.float16}
a, b = torch.randn(128, 512, **half), torch.randn(512, 128, **half)
c = torch.empty(128, 128, device="cuda")
time.sleep(0.2)
matmul[(1,)](a, b, c, 512, 128, 128, 32, num_warps=8)
torch.cuda.synchronize()
expected = a.float() @ b.float()
assert (c - expected).abs().max() < 0.5
time.sleep(0.3)
big = [torch.ones(64 << 20, device="cuda") for _ in range(3)]
time.sleep(0.3)
spilling_matmul[(1,)](a, b, c, 512, 128, 128, 32, num_warps=1)
torch.cuda.synchronize()
assert (c - expected).abs().max() < 0.5
time.sleep(0.4)
scale[(64 << 10,)](big[0], 64 << 20, 1024)
torch.cuda.synchronize()
del big[1:]
torch.cuda.empty_cache()
time.sleep(0.3)
"""


NEEDS = ("gpu", "torch", "triton")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        script, seen = Path(folder) / "watched.py", Path(folder) / "seen.json"
        script.write_text(PROGRAM)
        command = [sys.executable, "-m", "tritonhook", "mem", "watch", "--save", str(seen), str(script)]
        subprocess.run(command, check=True)
        return dict(json.loads(seen.read_text()))
