"""What own_sums of the Hopper fp8 attention repairs, and what it costs.

    python -m benchmarks own_sums [--rounds 25] [--out FILE]

Forms: the default; where that has three consumers, the same with two, as own sums need it; and two or four own sums.
`errors`: with lse and without as fp8_accuracy.py judges them, without 8-bit scores in the measure, and of odd lengths
against float64. `times`: all forms of a problem in the same rounds, in CUDA graphs and eager; raw samples are kept.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from benchmarks.common import environment, write_json
from gluon_kernels.config import TORCH_NAMES
from gluon_kernels.hopper.config import HopperConfig, default_config
from gluon_kernels.verify.fp8_accuracy import AccuracyCase, judge_accuracy
from gluon_kernels.verify.reference import attention_reference
from gluon_kernels.verify.timer import time_all

RESULT = "own_sums_h100"
NEEDS = ("gpu", "torch", "triton")
QUICK = ("--rounds", "3")
HEAD_DIMS, SEQLENS = (128, 64), (2048, 8192)
SMALL = {"HEAD_DIMS": (128,), "SEQLENS": (2048,)}
DTYPES, MASKS = ("fp8e4nv", "fp8e5"), (None, "bottom-right")
# Heads, and queries of a head in all batches.
HEADS, TOKENS = 16, 16384
# (data, queries, keys)
ODD = (("q = k", 1024, 1024), ("q = k", 1000, 1000), ("q = k", 300, 1324), ("random", 1000, 1000), ("random", 777, 333))

Sample = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=25)


def run(arguments: argparse.Namespace) -> None:
    import torch

    gpu = environment("torch", "triton") | {"gpu": torch.cuda.get_device_name()}
    errors = [sample for problem in product(DTYPES, HEAD_DIMS, MASKS) for sample in errors_of(*problem)]
    times: list[Sample] = []
    for head_dim, causal, seqlen, dtype in product(HEAD_DIMS, MASKS, SEQLENS, DTYPES):
        times.append(times_of(dtype, head_dim, causal, seqlen, arguments.rounds))
        shown = {form: f"{speed(times[-1], form, 'graph'):.3f}" for form in times[-1]["graph"]}
        print(dtype, head_dim, causal, seqlen, shown, flush=True)
        write_json(arguments.out, document(gpu, errors, times))


def document(gpu: Sample, errors: list[Sample], times: list[Sample]) -> Sample:
    return {"format": 1, "summary": summary(errors, times), "environment": gpu, "errors": errors, "times": times}


def forms(dtype: str, head_dim: int, causal: str | None, seqlen: int) -> dict[str, HopperConfig]:
    """Configurations by name."""
    default = default_config(90, dtype, head_dim, causal, seqlen)
    two = default if default.consumers == 2 else default_config(90, dtype, head_dim, causal, seqlen_q=512)
    found = {"default": default} | ({} if two is default else {"two consumers": two})
    own = {f"own{sums}": replace(two, own_sums=sums) for sums in (2, 4)}
    return found | {name: config for name, config in own.items() if config.why_not(90) is None}


def errors_of(dtype: str, head_dim: int, causal: str | None) -> Iterator[Sample]:
    from gluon_kernels.hopper.launch import attention

    for form, config in forms(dtype, head_dim, causal, SEQLENS[0]).items():
        problem = {"dtype": dtype, "head_dim": head_dim, "causal": causal, "form": form}
        call = partial(attention, config=config)
        for kind in ("q = k", "normal"):
            found = judge_accuracy(AccuracyCase(kind, 4096, head_dim, dtype, causal is not None), call, 0)
            ours = {"rms": found.rms, "worst": found.worst_row, "reason": found.reason}
            measure = {"measure_rms": found.measure_rms, "measure_worst": found.measure_worst_row}
            yield problem | {"what": "judge", "kind": kind} | ours | measure
        for kind, queries, keys in ODD:
            size = {"what": "odd", "kind": kind, "queries": queries, "keys": keys}
            yield problem | size | odd_errors(call, dtype, head_dim, causal, kind, queries, keys)


def odd_errors(
    call: Any, dtype: str, head_dim: int, causal: str | None, kind: str, queries: int, keys: int
) -> dict[str, float]:
    """Errors of O relative to its norm, and how far lse is off, of the rows that see a key."""
    import torch

    torch.manual_seed(queries)
    k, v, q = (made(dtype, 2, 2, n, head_dim) for n in (keys, keys, queries))
    if kind == "q = k":
        q = k[:, :, keys - queries :].contiguous()
    o, lse = call(q, k, v, causal=causal, return_lse=True)
    exact, exact_lse = attention_reference(q, k, v, causal=causal)
    sees = exact_lse != -math.inf
    off, lost, size = (o.double() - exact)[sees], (lse.double() - exact_lse)[sees], exact[sees]
    return {
        "rms": float(off.norm() / size.norm()),
        "worst": float((off.norm(dim=-1) / size.norm(dim=-1)).max()),
        "lse_mean": float(lost.mean()),
        "lse_worst": float(lost.abs().max()),
    }


def made(dtype: str, *shape: int) -> Any:
    import torch

    return torch.randn(shape, device="cuda").to(getattr(torch, TORCH_NAMES[dtype]))


def times_of(dtype: str, head_dim: int, causal: str | None, seqlen: int, rounds: int) -> Sample:
    from gluon_kernels.hopper.launch import attention

    batch = TOKENS // seqlen
    inputs = [made(dtype, batch, HEADS, seqlen, head_dim) for _ in range(3)]
    configs = forms(dtype, head_dim, causal, seqlen)
    calls = {form: partial(attention, *inputs, causal=causal, config=config) for form, config in configs.items()}
    sample = {"dtype": dtype, "head_dim": head_dim, "causal": causal, "seqlen": seqlen, "batch": batch, "heads": HEADS}
    for how in ("graph", "eager"):
        timed = time_all(calls, rounds, graph=how == "graph")
        sample[how] = {form: {"ms": list(one.samples_ms), "captured": one.graph} for form, one in timed.items()}
    return sample


def speed(sample: Sample, form: str, how: str) -> float:
    """How often as fast as the default. how: "graph" or "eager"."""
    default, mine = (statistics.median(sample[how][name]["ms"]) for name in ("default", form))
    return default / mine


def summary(errors: list[Sample], times: list[Sample]) -> dict[str, float]:
    """By head_dim, with the most own sums: the worst row of q = k before and after, and the speeds."""
    found = {}
    for head_dim, form in ((128, "own4"), (64, "own2")):
        if head_dim not in HEAD_DIMS:
            continue
        judged = [s for s in errors if (s["what"], s["head_dim"], s["kind"]) == ("judge", head_dim, "q = k")]
        for name in ("default", form):
            found[f"d{head_dim}_{name}_worst_row"] = max(s["worst"] for s in judged if s["form"] == name)
        for how in ("graph", "eager"):
            speeds = [speed(sample, form, how) for sample in times if sample["head_dim"] == head_dim]
            if speeds:
                found |= {f"d{head_dim}_{how}_speed_{pick.__name__}": pick(speeds) for pick in (min, max)}
    return found
