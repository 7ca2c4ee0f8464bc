"""sm120_attn over a KV cache on an H200, compiled for sm_90a: decode against a copy, and against torch's SDPA.

    CUTE_DSL_ARCH=sm_90a python benchmarks/sm120/sm120_serving_h200.py [--part decode] [--out FILE]

An H200 is not an RTX 50: kernels that use only what both have read its memory at this rate, and this says nothing about
the speed of an SM120. Each call is timed in a captured graph of several calls and, beside it, called eagerly from
Python. Where keys and values fit into the L2 cache, calls rotate among several caches.

Rates count the bytes of K and V once. The ratio divides them by the rate of a copy of 4 GiB in the same run, which
reads and writes. Errors are against float64 on the inputs of the row: the largest error of a row of O, divided by the
largest value of that row.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json

HEADS_KV, DIM = 8, 128
BATCHES, KEYS, GROUPS = (1, 4, 16, 64), (4096, 32768, 131072), (1, 4, 8)
PAGES = (0, 16, 64)  # 0: a contiguous cache
ROUNDS, CALLS = 5, 4
L2_BYTES = 60 << 20  # of an H200; a row counts for the ratio above twice of it
POOL_BYTES = 40 << 30  # of K, and of V


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="may be repeated; default: all")
    parser.add_argument("--out", type=Path, default=RESULTS / "sm120_serving_h200.json")
    arguments = parser.parse_args()
    import torch

    from sm120_attn.compile.build import source_hash
    from sm120_attn.kv_cache.config import DecodeConfig
    from sm120_attn.verify import bench

    started = time.perf_counter()
    document: dict[str, Any] = {
        "what": "sm120_attn over a KV cache, compiled for sm_90a and timed on an H200",
        "summary": {},
        "sources": source_hash(DecodeConfig),
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl"),
    }
    pool = Pool(torch)
    for name in arguments.part or PARTS:
        document |= PARTS[name](pool, document)
        document["seconds"] = time.perf_counter() - started
        document["summary"] = summary_of(document)
        write_json(arguments.out, document)
    for name, value in document["summary"].items():
        print(f"{name}: {value}")
    return 0


class Pool:
    """Random K and V, of which all problems take their caches."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.k, self.v = (torch.empty(POOL_BYTES // 2, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        for tensor in (self.k, self.v):
            for part in tensor.split(1 << 30):
                part.normal_()

    def caches(self, pages: int, size: int, number: int = 0) -> tuple[Any, Any]:
        """K and V of [pages, size, HEADS_KV, DIM]; each number gives others, as long as the pool has room."""
        count = pages * size * HEADS_KV * DIM
        start = number % max(len(self.k) // count, 1) * count
        return tuple(t[start : start + count].view(pages, size, HEADS_KV, DIM) for t in (self.k, self.v))  # type: ignore[return-value]


def problem(pool: Pool, batch: int, keys: int, group: int, page: int, number: int = 0, queries: int = 1) -> Any:
    """The arguments of a call: tensors, options. All sequences are `keys` long."""
    torch = pool.torch
    q = torch.randn(batch, queries, HEADS_KV * group, DIM, dtype=torch.bfloat16, device="cuda")
    lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
    if not page:
        return (q, *pool.caches(batch, keys, number)), {"cache_seqlens": lengths}
    count = batch * keys // page
    table = torch.randperm(count, device="cuda").int().view(batch, keys // page)
    return (q, *pool.caches(count, page, number)), {"cache_seqlens": lengths, "block_table": table}


def captured_us(torch: Any, calls: list[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Microseconds of a call, once per round: a graph of all calls is replayed."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    return [elapsed_us(torch, graph.replay) / len(calls) for _ in range(rounds)]


def eager_us(torch: Any, calls: list[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Microseconds of a call, once per round: Python calls one after another."""

    def all_calls() -> None:
        for call in calls:
            call()

    return [elapsed_us(torch, all_calls) / len(calls) for _ in range(rounds)]


def elapsed_us(torch: Any, work: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end)


# --- parts -------------------------------------------------------------------------------------------------------


def copy_part(pool: Pool, document: dict[str, Any]) -> dict[str, Any]:
    """The rate of a copy, reads and writes together."""
    source, target = pool.k[: 1 << 31], pool.v[-(1 << 31) :]
    kept = target.clone()
    target.copy_(source)
    us = [elapsed_us(pool.torch, lambda: target.copy_(source)) for _ in range(10)]
    target.copy_(kept)
    return {"copy_gb_per_s": 2 * source.nbytes / statistics.median(us) / 1000, "copy_us": us}


def decode_part(pool: Pool, document: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for batch, keys, group, page in itertools.product(BATCHES, KEYS, GROUPS, PAGES):
        rows.append(decode_row(pool, batch, keys, group, page))
        shown = rows[-1]
        ratio = shown["gb_per_s"] / document["copy_gb_per_s"]
        print(f"decode B{batch} {keys} keys GQA {group} page {page}: {shown['captured_us']:.1f} us, "
              f"{shown['gb_per_s']:.0f} GB/s, {ratio:.3f} of a copy, {shown['splits']} splits", flush=True)  # fmt: skip
    return {"decode": rows}


def decode_row(pool: Pool, batch: int, keys: int, group: int, page: int, **given: Any) -> dict[str, Any]:
    from sm120_attn import attention_with_kv_cache
    from sm120_attn.kv_cache import launch

    kv_bytes = 2 * batch * keys * HEADS_KV * DIM * 2
    different = min(max(-(-3 * L2_BYTES // kv_bytes), CALLS), 64)
    made = [problem(pool, batch, keys, group, page, number) for number in range(different)]
    calls = [lambda t=t, o=o: attention_with_kv_cache(*t, **o, **given) for t, o in made]
    captured, eager = captured_us(pool.torch, calls), eager_us(pool.torch, calls)
    plan = next(reversed(launch.prepared_calls.values()))
    us = statistics.median(captured)
    return {
        "batch": batch, "keys": keys, "group": group, "page": page, "splits": plan.num_splits,
        "captured_us": us, "eager_us": statistics.median(eager), "gb_per_s": kv_bytes / us / 1000,
        "beyond_l2": kv_bytes > 2 * L2_BYTES, "error": error_of(pool, *made[0], **given), "samples_us": captured,
    }  # fmt: skip


def error_of(pool: Pool, tensors: Any, options: dict[str, Any], **given: Any) -> float:
    """The largest relative error of the first sequence's rows, against float64."""
    from sm120_attn import attention_with_kv_cache
    from sm120_attn.verify.check_cache import reference

    q, k, v = tensors
    first = {name: t[:1] for name, t in options.items()}
    made = {"q": q[:1], "k_cache": k, "v_cache": v, **first}
    one_head = made | {"q": q[:1, :, : q.shape[2] // HEADS_KV], "k_cache": k[:, :, :1], "v_cache": v[:, :, :1]}
    wanted, _ = reference(one_head, {"causal": True, "window": None, "softcap": 0.0})
    found = attention_with_kv_cache(*tensors, **options, **given)[:1, :, : wanted.shape[2]].double()
    return ((found - wanted).abs().amax(-1) / wanted.abs().amax(-1)).max().item()


def host_part(pool: Pool, document: dict[str, Any]) -> dict[str, Any]:
    """Microseconds of a call on the host, of the smallest problem: the device keeps up."""
    from sm120_attn import attention_with_kv_cache

    found = {}
    for name, page, splits in (("contiguous", 0, 1), ("paged", 16, 1), ("paged_split", 16, 4)):
        tensors, options = problem(pool, 1, 64, 4, page)
        samples = []
        for _ in range(20):
            pool.torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                attention_with_kv_cache(*tensors, **options, num_splits=splits)
            samples.append(1e4 * (time.perf_counter() - start))
        found[name] = statistics.median(samples)
    print("host us:", found, flush=True)
    return {"host_us": found}


def sdpa_part(pool: Pool, document: dict[str, Any]) -> dict[str, Any]:
    """torch's SDPA on K and V that are gathered already, [batch, heads, keys, head_dim]."""
    torch, rows = pool.torch, []
    for batch, keys, group in itertools.product((1, 16), KEYS, GROUPS):
        if batch * keys > 1 << 20:
            continue
        made = [problem(pool, batch, keys, group, 0, number)[0] for number in range(CALLS)]
        made = [tuple(t.transpose(1, 2) for t in tensors) for tensors in made]

        def call(tensors: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True)

        try:
            us = captured_us(torch, [lambda t=t: call(t) for t in made], 3)
        except Exception as error:  # of other software: then it is no peer
            rows.append({"batch": batch, "keys": keys, "group": group, "failed": str(error)[:200]})
            continue
        rows.append({"batch": batch, "keys": keys, "group": group, "captured_us": statistics.median(us)})
        print(f"SDPA B{batch} {keys} keys GQA {group}: {rows[-1]['captured_us']:.1f} us", flush=True)
    return {"sdpa": rows}


PARTS: dict[str, Callable[[Pool, dict[str, Any]], dict[str, Any]]] = {
    "copy": copy_part,
    "decode": decode_part,
    "host": host_part,
    "sdpa": sdpa_part,
}


def summary_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    copy = document.get("copy_gb_per_s")
    for name, page in (("", None), ("_contiguous", 0), ("_page16", 16), ("_page64", 64)):
        rows = [r for r in document.get("decode", ()) if r["beyond_l2"] and page in (None, r["page"])]
        if rows and copy:
            found[f"decode_bandwidth_ratio{name}_geomean"] = geomean([r["gb_per_s"] / copy for r in rows])
    if "decode" in document:
        found["decode_worst_error"] = max(r["error"] for r in document["decode"])
    if "host_us" in document:
        found["decode_host_us"] = max(document["host_us"].values())
    ours = {(r["batch"], r["keys"], r["group"]): r["captured_us"] for r in document.get("decode", ()) if not r["page"]}
    peers = [r for r in document.get("sdpa", ()) if "captured_us" in r]
    if ours and peers:
        ratios = [r["captured_us"] / ours[r["batch"], r["keys"], r["group"]] for r in peers]
        found["decode_vs_sdpa_geomean"] = geomean(ratios)
    return found


def geomean(values: list[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values)))


if __name__ == "__main__":
    sys.exit(main())
