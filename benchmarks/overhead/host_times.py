"""The host's time for a call of each attention, as a multiple of `torch.add_`'s on the same machine.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks host_times [--out FILE] [--rounds N]

Every problem is so small that the GPU keeps up. A sample is a loop of calls; the calls take turns. Microseconds depend
on the machine and on what else runs there; a multiple of the cheapest call that torch has does so less. Summary:
`<call>_adds`, the median over rounds of a call's time by `torch.add_`'s in that round; `add_us`, the latter's median.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.common import environment

NEEDS = ("gpu", "torch", "triton", "cutlass")
QUICK = ("--rounds", "2")
CALLS = 300
ADD = "add"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    calls = {ADD: adding()} | gluon_calls() | sm120_calls()
    for call in calls.values():
        loop_us(call)  # compiles, and warms up
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.rounds):
        for name, call in calls.items():
            samples[name].append(loop_us(call))
    return {
        "summary": summary(samples),
        "environment": environment("torch", "triton", "nvidia-cutlass-dsl") | {"gpu": torch.cuda.get_device_name()},
        "samples": samples,
    }


def summary(samples: dict[str, list[float]]) -> dict[str, float]:
    adds = samples[ADD]
    multiples = {f"{name}_adds": multiple(times, adds) for name, times in samples.items() if name != ADD}
    return {f"{ADD}_us": statistics.median(adds)} | multiples


def multiple(times: list[float], adds: list[float]) -> float:
    return statistics.median(time / add for time, add in zip(times, adds, strict=True))


def loop_us(call: Callable[[], Any]) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def adding() -> Callable[[], Any]:
    import torch

    small = torch.ones(64, device="cuda")
    return lambda: small.add_(1)


def gluon_calls() -> dict[str, Callable[[], Any]]:
    from gluon_kernels.verify.bench import Shape, baseline, subject

    shape = Shape(1, 8, 256, 64)
    inputs = shape.inputs()
    causal = replace(shape, causal=True)
    return {
        "torch_flash": baseline("sdpa_flash", inputs, shape),
        "hopper": subject("hopper_bf16", inputs, shape),
        "hopper_causal": subject("hopper_bf16", inputs, causal),
        "mma": subject("mma_bf16", inputs, shape),
    }


def sm120_calls() -> dict[str, Callable[[], Any]]:
    import torch

    from sm120_attn import attention, attention_with_kv_cache

    q, k, v = (torch.randn(1, 32, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    starts = torch.tensor([0, 12, 32], dtype=torch.int32, device="cuda")
    packed = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 20, "max_seqlen_k": 20}
    token = torch.randn(1, 1, 2, 64, dtype=torch.bfloat16, device="cuda")
    keys = [torch.randn(1, 8000, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    lengths = itertools.count(17)  # as in text generation: one key more at each call

    def one_key_more() -> Any:
        length = next(lengths)
        return attention(token, *(tensor[:, :length] for tensor in keys), causal=True)

    cache = [torch.randn(4, 16, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    row = torch.randn(1, 1, 32, 128, dtype=torch.bfloat16, device="cuda")
    paged = {
        "cache_seqlens": torch.full((1,), 64, dtype=torch.int32, device="cuda"),
        "block_table": torch.arange(4, dtype=torch.int32, device="cuda").view(1, 4),
    }
    return {
        "sm120": lambda: attention(q, k, v, causal=True),
        "sm120_new_length": one_key_more,
        "sm120_packed": lambda: attention(q[0], k[0], v[0], **packed),
        "sm120_paged_decode": lambda: attention_with_kv_cache(row, *cache, **paged),
    }
