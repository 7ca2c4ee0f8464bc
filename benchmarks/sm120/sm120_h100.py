"""sm120_attn in BF16 on an H100, compiled for sm_90a, against four other attention kernels, in one process.

    FLASH_ATTENTION_ARCH=sm_120 FLASH_ATTENTION_NUM_SMS=132 CUTE_DSL_ARCH=sm_90a SM120_PEER_CUTLASS=... \
        SM120_PEER_FROST=... python -m benchmarks sm120_h100 [--only long] [--peers torch,frost] [--rounds 13]
    python -m benchmarks sm120_h100 --again     # without a GPU: the summary anew, from the samples that are there

An H100 is not an RTX 50: this ranks kernels that use only what both have (mma.sync, cp.async, TMA, setmaxnreg, at most
99 KiB of shared memory), and says nothing about an SM120's speed. Peers: sm120_peers.py. A peer that is missing
or fails is named in the result, and is not in the summary.

Beside the kernel that `plan` picks, others of ours (CANDIDATES) are timed in the same rounds, each through the public
call. The summary is about the kernel that `plan` picks *now*: where `plan` has learnt from these samples, its choice is
among them, and --again puts it in.

Summary: vs_best_peer_geomean, vs_best_peer_min, vs_<peer>_geomean (above 1: ours is faster).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from typing import Any

from benchmarks.common import environment, write_json
from sm120_attn.config import Config, why_not
from sm120_attn.planner import Shape, plan
from sm120_attn.verify import bench, cases

RESULT = "sm120_bf16_h100"
ARCH, SMS = "sm_90a", 132
# By head_dim: tiles by name; what one does not name is as in Config.
CANDIDATES: dict[int, dict[str, dict[str, Any]]] = {
    64: {
        "32 rows, 128 keys": {"rows_per_warp": 32, "tile_n": 128},
        "32 rows, other scheduler": {"rows_per_warp": 32, "tile_n": 128, "mma_throughput": True},
        "32 rows, 4 stages": {"rows_per_warp": 32, "stages_k": 4, "stages_v": 4},
        "32 rows, two warps to a row": {"rows_per_warp": 32, "split_keys": True},
        "16 rows": {"q_in_registers": True},
        "16 rows, two warps to a row": {"q_in_registers": True, "split_keys": True},
        "4 warps, 2 CTAs": {"warps": 4, "ctas_per_sm": 2, "rows_per_warp": 32},
    },
    128: {
        "32 rows": {"rows_per_warp": 32, "stages_k": 1, "stages_v": 1},
        "32 rows, other scheduler": {"rows_per_warp": 32, "stages_k": 1, "stages_v": 1, "mma_throughput": True},
        "32 rows, two warps to a row": {"rows_per_warp": 32, "split_keys": True},
        "16 rows": {"q_in_registers": True},
        "16 rows, two warps to a row": {"q_in_registers": True, "split_keys": True},
        "4 warps, 2 CTAs": {
            "warps": 4, "ctas_per_sm": 2, "rows_per_warp": 32, "tile_n": 32, "stages_k": 1, "stages_v": 1,
        },
    },
}  # fmt: skip
CP_ASYNC = {"kernel": "cp_async", "warps": 4, "stages_k": 1, "stages_v": 1, "q_in_registers": True}


NEEDS = ("gpu", "torch", "cutlass")
OFFLINE = ("--again", "--list")
QUICK = ("--list",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=tuple(bench.PROBLEMS))
    parser.add_argument("--peers", default="torch,fa4,cutlass_ampere,frost")
    parser.add_argument("--rounds", type=int, default=13)
    parser.add_argument("--again", action="store_true", help="only make the summary anew")
    parser.add_argument("--list", action="store_true", help="only list the configs that a run needs, as JSON")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.list:
        needed = {json.dumps(asdict(c)): None for p in problems_of(arguments.only) for c in configs_of(p).values()}
        print("\n".join(needed))
        return None
    document = json.loads(arguments.out.read_text()) if arguments.again else measured(arguments)
    return document | {"summary": summary_of(document)}


def problems_of(only: str | None) -> tuple[bench.BenchProblem, ...]:
    return bench.PROBLEMS[only] if only else bench.PUBLISHED + bench.LONG


def planned(problem: bench.BenchProblem) -> Config:
    shape = Shape(
        arch=ARCH, dtype="bf16", head_dim=problem.head_dim, batch=problem.batch, heads=problem.heads,
        heads_kv=problem.heads, seqlen_q=problem.length, seqlen_k=problem.length, sms=SMS, causal=problem.causal,
    )  # fmt: skip
    return plan(shape).config


def configs_of(problem: bench.BenchProblem) -> dict[str, Config]:
    """The kernels of ours that are timed, "ours" first; no kernel twice."""
    found = {"ours": planned(problem)}
    usual = {name: getattr(Config(), name) for name in cases.TILE_FIELDS}
    for label, fields in (CANDIDATES[problem.head_dim] | {"cp.async": CP_ASYNC}).items():
        config = replace(found["ours"], **usual | fields)
        if why_not(config) is None and config not in found.values():
            found[label] = config
    return found


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything but the summary. The result is written after each row: a run that is stopped leaves its rows."""
    from benchmarks.sm120.sm120_peers import PEERS
    from sm120_attn.compile.build import source_hash

    started = time.perf_counter()
    peers, missing = available({name: PEERS[name] for name in arguments.peers.split(",")})
    for name, why in missing.items():
        print(f"no {name}: {why}", file=sys.stderr)
    print(bench.header(["ours", *peers]), flush=True)
    problems = problems_of(arguments.only)
    warm_up(problems[0], peers)
    document: dict[str, Any] = {
        "what": "sm120_attn, BF16, compiled for sm_90a and timed on an H100 in turns with the peers",
        "summary": {},
        "peers": list(peers),
        "missing_peers": missing,
        "sources": source_hash(Config),
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl", "flash-attn-4", "apache-tvm-ffi"),
        "problems": [],
    }
    for problem in problems:
        document["problems"].append(record(problem, peers, arguments.rounds))
        document["seconds"] = time.perf_counter() - started
        write_json(arguments.out, document)
    return document


def warm_up(problem: bench.BenchProblem, peers: dict[str, bench.Maker]) -> None:
    """The first calls of a process take longer, of some sides more than of others: a second of them is not timed."""
    sides = {"ours": bench.ours} | peers
    bench.time_problem(problem, sides, 3)  # compiles
    until = time.perf_counter() + 1
    while time.perf_counter() < until:
        bench.time_problem(problem, sides, 3)


def record(problem: bench.BenchProblem, peers: dict[str, bench.Maker], rounds: int) -> dict[str, Any]:
    import torch

    configs = configs_of(problem)
    makers: dict[str, bench.Maker] = {"ours": bench.ours}
    for number, (label, config) in enumerate(configs.items()):
        if label != "ours":
            makers[label] = bench.chosen(lambda _, config=config: config, number)
    timed = bench.time_problem(problem, makers | peers, rounds)
    torch.cuda.empty_cache()
    shown = {name: timed.samples_ms[name] for name in ("ours", *peers) if name in timed.samples_ms}
    row = bench.TimedLaunch(problem, shown, timed.plan, timed.ptxas)
    best = min((label for label in configs if label in timed.samples_ms), key=timed.ms)
    for name, why in timed.left_out.items():
        print(f"{problem.name}: without {name}: {why}", file=sys.stderr)
    print(f"{bench.line(row)}  best of ours: {best} {timed.ms('ours') / timed.ms(best):.2f}x", flush=True)
    (one,) = bench.records([timed])
    del one["config"]
    return one | {"configs": {label: asdict(config) for label, config in configs.items()}}


def summary_of(document: dict[str, Any]) -> dict[str, Any]:
    """The rows of the kernels that `plan` picks now. Raises SystemExit if one of them was not timed."""
    times, labels = {}, {}
    for one in document["problems"]:
        problem = bench.BenchProblem(**{n: one[n] for n in ("batch", "length", "head_dim", "causal", "heads")})
        config = planned(problem)  # fields that came after the samples have their defaults there
        timed = (n for n, found in one["configs"].items() if Config(**found) == config and n in one["median_ms"])
        label = next(timed, None)
        if label is None:
            raise SystemExit(f"{problem.name}: the kernel that plan() picks now was not timed; run it again on an H100")
        labels[problem.name] = label
        times[problem] = one["median_ms"] | {"ours": one["median_ms"][label]}
    return bench.summary(times, "ours", document["peers"]) | {"planned": labels}


def available(wanted: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The peers that run here, tried on a small problem, and why the others do not."""
    import torch

    q, k, v = (torch.randn(1, 256, 2, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    missing = {}
    for name, make in wanted.items():
        try:
            make(q, k, v, True)()
            torch.cuda.synchronize()
        except Exception as error:  # any error of other software: then it is no peer
            missing[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return {name: make for name, make in wanted.items() if name not in missing}, missing
