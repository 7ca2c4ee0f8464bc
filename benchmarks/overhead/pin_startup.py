"""How long until an autotuned kernel's first result, with a policy that pins its configuration and without?

    python -m benchmarks pin_startup [--rounds N] [--out FILE]

On a GPU. A product of two matrices with eight configurations; each sample is a process of its own, from before the
kernel's first call until the GPU is idle. Sides: tuned by Triton, or pinned; with an empty cache of compiled
kernels, or a full one. The pins are recorded by `tritonhook run --pin`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment

NEEDS = ("gpu", "torch", "triton")
QUICK = ("--rounds", "1")
SIZES = 4096, 4096, 1024  # M, N, K
SAYS = "seconds to the first result:"
COLUMNS = tuple(f"{side}_{cache}_s" for side in ("tuned", "pinned") for cache in ("empty", "full"))
TILES = tuple(product((64, 128), (64, 128), (4, 8)))  # rows and columns of a tile, warps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        work, full = Path(folder), Path(folder) / "full"
        under = ["-m", "tritonhook", "run", "--out", str(work / "captures")]
        _process(full, *under, "--pin", str(work / "pins.toml"))
        sides = [], [*under, "--policy", str(work / "pins.toml")]
        rows = []
        for number in range(arguments.rounds):
            caches = [(work / f"{number} {side}", full) for side in range(2)]
            rows.append([_process(cache, *words) for words, of in zip(sides, caches, strict=True) for cache in of])
    return {"environment": environment(), "summary": summary(rows), "columns": list(COLUMNS), "samples": rows}


def summary(rows: list[list[float]]) -> dict[str, Any]:
    medians = [round(statistics.median(column), 3) for column in zip(*rows, strict=True)]
    return {"configurations": len(TILES), **dict(zip(COLUMNS, medians, strict=True))}


def _process(cache: Path, *words: str) -> float:
    """Seconds that this file's program says, started by `words`."""
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *words, __file__], env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout.partition(SAYS)[2].split()[0])


def first_result() -> float:
    import torch
    import triton
    import triton.language as tl

    configs = [triton.Config({"ROWS": rows, "COLUMNS": columns}, num_warps=warps) for rows, columns, warps in TILES]

    @triton.autotune(configs, key=["K"])
    @triton.jit
    def multiply(a, b, c, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr):
        rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inner, total = tl.arange(0, PART), tl.zeros((ROWS, COLUMNS), tl.float32)
        for k in range(0, K, PART):
            x = tl.load(a + rows[:, None] * K + k + inner)
            total = tl.dot(x, tl.load(b + (k + inner)[:, None] * N + columns), total)
        tl.store(c + rows[:, None] * N + columns, total.to(tl.float16))

    m, n, k = SIZES
    a, b, c = (torch.zeros(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n), (m, n)))
    torch.cuda.synchronize()
    began = time.perf_counter()
    multiply[lambda meta: (m // meta["ROWS"], n // meta["COLUMNS"])](a, b, c, n, k, PART=32)
    torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    print(SAYS, first_result(), flush=True)
