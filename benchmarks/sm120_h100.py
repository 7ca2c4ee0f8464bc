"""sm120_attn in BF16 on an H100, compiled for sm_90a, against four other attention kernels, in one process.

    FLASH_ATTENTION_ARCH=sm_120 FLASH_ATTENTION_NUM_SMS=132 CUTE_DSL_ARCH=sm_90a SM120_PEER_CUTLASS=... \
        SM120_PEER_FROST=... python benchmarks/sm120_h100.py [--only long] [--peers torch,frost] [--rounds 11]

An H100 is not an RTX 50: this ranks kernels that use only what both have (mma.sync, cp.async, TMA, setmaxnreg, at most
99 KiB of shared memory), and says nothing about an SM120's speed. Peers: sm120_peers.py. A peer that is missing or
fails on a problem is named in the result, and is then no peer of that summary.

Summary: vs_best_peer_geomean, vs_best_peer_min, vs_<peer>_geomean (above 1: ours is faster), host_us.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from _common import RESULTS, environment, write_json

GOALS = {"vs_best_peer_geomean": 1.10, "vs_best_peer_min": 1.10, "host_us": 25}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("published", "long"))
    parser.add_argument("--peers", default="torch,fa4,cutlass_ampere,frost")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, default=RESULTS / "sm120_bf16_h100.json")
    arguments = parser.parse_args()

    from sm120_peers import PEERS

    from sm120_attn import bench

    started = time.perf_counter()
    peers, missing = available({name: PEERS[name] for name in arguments.peers.split(",")})
    for name, why in missing.items():
        print(f"no {name}: {why}", file=sys.stderr)
    makers = {"ours": bench.ours, **peers}
    print(bench.header(list(makers)), flush=True)
    problems = bench.PROBLEMS[arguments.only] if arguments.only else bench.PUBLISHED + bench.LONG
    found = bench.run(problems, makers, arguments.rounds)
    costs = bench.host_costs()
    summary = bench.summary(found, "ours", list(peers)) | {"host_us": costs["attention"]}
    write_json(
        arguments.out,
        {
            "what": "sm120_attn, BF16, compiled for sm_90a and timed on an H100 in turns with the peers",
            "summary": summary,
            "goals": GOALS,
            "missing_peers": missing,
            "host_us": costs,
            "device": bench.device(),
            "environment": environment("torch", "nvidia-cutlass-dsl", "flash-attn-4", "apache-tvm-ffi"),
            "seconds": time.perf_counter() - started,
            "problems": bench.records(found),
        },
    )
    for name, value in summary.items():
        print(f"{name}: {value}")
    return 0


def available(wanted: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The peers that run here, tried on a small problem, and why the others do not."""
    import torch

    q, k, v = (torch.randn(1, 256, 2, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    missing = {}
    for name, make in wanted.items():
        try:
            make(q, k, v, True)()
            torch.cuda.synchronize()
        except Exception as error:  # of other people's software: whatever it is, it is no peer then
            missing[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return {name: make for name, make in wanted.items() if name not in missing}, missing


if __name__ == "__main__":
    sys.exit(main())
