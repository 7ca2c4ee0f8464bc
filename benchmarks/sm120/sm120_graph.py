"""sm120_attn in BF16 on an H100, compiled for sm_90a, in CUDA graphs and called from Python, beside its peers.

    FLASH_ATTENTION_ARCH=sm_120 FLASH_ATTENTION_NUM_SMS=132 CUTE_DSL_ARCH=sm_90a SM120_PEER_FROST=... \
        python -m benchmarks sm120_graph [--rounds 9] [--out FILE]
    python -m benchmarks sm120_graph --again     # without a GPU: the summary anew, from the samples

An H100 is not an RTX 50: this ranks kernels that use only what both have (mma.sync, cp.async, TMA, setmaxnreg, at most
99 KiB of shared memory), and tells nothing about an SM120's speed. Rows of short kernels that Python calls are about
launches, so each kernel is also timed in a graph of CALLS launches, in the same rounds. Peers: see sm120_peers.py; one
that is missing is left out. Summary:
ratios above 1 mean that ours is faster; the means say of how many rows they are. `long` rows are those where ours takes
LONG_MS or more in a graph. `best peer`: the fastest one of each row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import environment, write_json
from benchmarks.sm120.sm120_peers import PEERS
from benchmarks.sm120.sm120_serving_h200 import captured
from sm120_attn.verify import bench

RESULT = "sm120_graph_h100"
NAMES = ("torch", "fa4", "frost")
CALLS, LONG_MS = 8, 0.1


NEEDS = ("gpu", "torch", "cutlass")
OFFLINE = ("--again",)
QUICK = ("--rounds", "1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--again", action="store_true", help="only make the summary anew")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    document = json.loads(arguments.out.read_text()) if arguments.again else measured(arguments.rounds, arguments.out)
    return document | {"summary": summary_of(document["problems"])}


def measured(rounds: int, out: Path) -> dict[str, Any]:
    from sm120_attn.compile.build import source_hash
    from sm120_attn.config import Config

    started = time.perf_counter()
    document: dict[str, Any] = {
        "what": "sm120_attn, BF16, compiled for sm_90a: CUDA graphs and eager calls in turns",
        "summary": {},
        "sources": source_hash(Config),
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl", "flash-attn-4", "apache-tvm-ffi"),
        "problems": [],
    }
    for problem in bench.PUBLISHED + bench.LONG:
        document["problems"].append(row_of(problem, rounds))
        document["seconds"] = time.perf_counter() - started
        write_json(out, document)
    return document


def row_of(problem: bench.BenchProblem, rounds: int) -> dict[str, Any]:
    """Samples of all forms, in turns: names with ", graph" are of a graph."""
    import torch

    torch.manual_seed(0)
    shape = (problem.batch, problem.length, problem.heads, problem.head_dim)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    launches, left_out = bench.right_ones(problem, {"ours": bench.ours} | {n: PEERS[n] for n in NAMES}, q, k, v)
    replays = {f"{name}, graph": captured(torch, [launch] * CALLS).replay for name, launch in launches.items()}
    samples = bench.in_turns(launches | replays, rounds)
    samples |= {name: [ms / CALLS for ms in samples[name]] for name in replays}
    row = asdict(problem) | {"samples_ms": samples, "left_out": left_out}
    print(problem.name, " ".join(f"{name}: {ms:.4f}" for name, ms in medians(row).items()), left_out or "", flush=True)
    return row


def medians(row: dict[str, Any]) -> dict[str, float]:
    return {name: statistics.median(samples) for name, samples in row["samples_ms"].items()}


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    times = [medians(row) for row in rows]
    found: dict[str, Any] = {}
    for which, chosen in (("", times), ("_long", [ms for ms in times if ms["ours, graph"] >= LONG_MS])):
        found[f"rows{which}"] = len(chosen)
        for peer in NAMES:
            for kind, suffix in (("graph", ", graph"), ("eager", "")):
                ratios = [ms[peer + suffix] / ms["ours" + suffix] for ms in chosen if peer + suffix in ms]
                if ratios:
                    found[f"vs_{peer}_{kind}{which}_geomean"] = statistics.geometric_mean(ratios)
    for kind, suffix in (("graph", ", graph"), ("eager", "")):
        best = [min(ms[p + suffix] for p in NAMES if p + suffix in ms) / ms["ours" + suffix] for ms in times]
        at = rows[best.index(min(best))]
        problem = bench.BenchProblem(**{n: at[n] for n in ("batch", "length", "head_dim", "causal", "heads")})
        found[f"vs_best_peer_{kind}_geomean"] = statistics.geometric_mean(best)
        found |= {f"vs_best_peer_{kind}_min": min(best), f"vs_best_peer_{kind}_min_at": problem.name}
    return found
