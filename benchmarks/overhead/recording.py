"""What it costs to record the launches of CuTe kernels, on the host: FlashAttention 4's call, and a kernel of two
pointers.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks recording [--out FILE] [--rounds N]

Host code that was compiled before `enable()` is not seen, and a session records the launches of what it captured: each
round compiles in a new session, times calls there, and calls of the same code when the session has ended. `known`: on
the same memory. `new`: results are kept, so that each call has memory which was not met before. A sample is the median
of a round's calls.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import environment, median_difference

NEEDS = ("gpu", "torch", "cutlass", "flash_attn")
QUICK = ("--rounds", "2")
CALLS = 100
Call = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=6)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    import tritonhook

    place = Path(tempfile.mkdtemp())
    samples: dict[str, dict[str, list[float]]] = {}
    measured(compiled())  # torch's allocator has the memory from here on
    for number in range(arguments.rounds):
        with tritonhook.session(place / str(number), launches=True):
            calls = compiled()
            recorded = measured(calls)
        for name, us in measured(calls).items():
            one = samples.setdefault(name, {"plain_us": [], "recorded_us": []})
            one["plain_us"].append(us)
            one["recorded_us"].append(recorded[name])
    found = [len([*folder.glob("kernels/*/launches/*.json")]) for folder in place.iterdir()]
    return {
        "summary": summary(samples) | {"sessions": len(found), "sessions_with_launches": sum(map(bool, found))},
        "environment": environment("torch", "nvidia-cutlass-dsl", "flash-attn-4")
        | {"gpu": torch.cuda.get_device_name()},
        "samples": samples,
    }


def summary(samples: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    return {f"{name}_added_us": median_difference(one["recorded_us"], one["plain_us"]) for name, one in samples.items()}


def compiled() -> dict[str, Call]:
    calls = {"fa4": flash_attention(), "small": small()}
    for call in calls.values():
        call()
    return calls


def measured(calls: dict[str, Call]) -> dict[str, float]:
    return {f"{name}_{what}": timed(call, what == "new") for name, call in calls.items() for what in ("new", "known")}


def timed(call: Call, keep: bool) -> float:
    """The median time of a call on the host, in microseconds. keep: give each call's result memory of its own."""
    import torch

    torch.cuda.synchronize()
    times, kept = [], []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        made = call()
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if keep:
            kept.append(made)
    torch.cuda.synchronize()
    return statistics.median(times)


def flash_attention() -> Call:
    import torch
    from flash_attn.cute.interface import _flash_attn_fwd, flash_attn_func

    _flash_attn_fwd.compile_cache.clear()
    q, k, v = (torch.randn(1, 256, 2, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    return lambda: flash_attn_func(q, k, v)


def small() -> Call:
    """A kernel that reads one pointer and writes the other; its output is made for each call."""
    import cute_kernels
    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    x = from_dlpack(torch.zeros(128, device="cuda"))
    add = cute.compile(cute_kernels.add, x, from_dlpack(torch.zeros(128, device="cuda")))

    def call() -> Any:
        made = torch.empty(128, device="cuda")
        add(x, from_dlpack(made))
        return made

    return call
