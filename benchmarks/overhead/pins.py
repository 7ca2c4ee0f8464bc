"""What does a launch of an autotuned kernel cost under a policy that pins its configuration?

    python -m benchmarks pins [--calls N] [--rounds N] [--out FILE]

Needs Triton, no GPU: the driver is a stand-in, so that a launch is Triton's own work alone. By turns: the kernel with a
configuration of the Autotuner's own cache, without tritonhook; the same with a pinned one, under `tritonhook.session`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment

NEEDS = ("triton",)
QUICK = ("--calls", "20", "--rounds", "3")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=500, help="launches of a sample")
    parser.add_argument("--rounds", type=int, default=31)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    sys.path.insert(0, str(REPOSITORY / "tests" / "support"))
    import fake_driver

    with tempfile.TemporaryDirectory() as folder, fake_driver.active():
        rows = _sampled(Path(folder), arguments.calls, arguments.rounds)
    columns = ["own_cache_us", "pinned_us"]
    return {"environment": environment(), "summary": summary(rows), "columns": columns, "samples": rows}


def summary(rows: list[list[float]]) -> dict[str, float]:
    plain, pinned = (statistics.median(side) for side in zip(*rows, strict=True))
    return {"own_cache_us": plain, "pinned_us": pinned, "ratio": round(pinned / plain, 3)}


def _sampled(work: Path, calls: int, rounds: int) -> list[list[float]]:
    import tritonhook
    from tritonhook.capture.policy.model import write_policy
    from tritonhook.capture.store import CaptureFolder
    from tritonhook.cli.run import pins_of

    with tritonhook.session(work / "tuned"):
        plain = _launched(_tuner())
    write_policy(work / "pins.toml", (), pins_of(CaptureFolder.open(work / "tuned"), ""))
    rows = []
    with tritonhook.session(work / "pinned", policy=work / "pins.toml"):
        pinned = _launched(_tuner())
    for _ in range(rounds):
        own = _sample(plain, calls)
        with tritonhook.session(work / "pinned", policy=work / "pins.toml"):
            rows.append([own, _sample(pinned, calls)])
    return rows


def _tuner() -> Any:
    import triton
    from triton_kernels import add_kernel, fresh

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [1.0] * 3

    configs = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (2, 4)]
    return triton.autotune(configs, key=["n"], do_bench=bench)(fresh(add_kernel))


def _launched(kernel: Any) -> Any:
    _sample(kernel, 1)
    return kernel


def _sample(kernel: Any, calls: int) -> float:
    """Microseconds of a launch."""
    from triton_kernels import Tensor

    x = Tensor()
    began = time.perf_counter_ns()
    for _ in range(calls):
        kernel[(1,)](x, x, x, 1000)
    return round((time.perf_counter_ns() - began) / 1000 / calls, 3)
