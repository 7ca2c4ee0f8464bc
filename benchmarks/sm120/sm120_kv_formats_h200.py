"""Decode over KV caches in BF16, FP8, MXFP8 and NVFP4 on an H200, compiled for sm_90a: one kernel, four formats.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks sm120_kv_formats_h200 [--seconds 240] [--out FILE]

First it checks results: cases of `sm120_attn check --cache` over MXFP8 and NVFP4 caches, and of every row the first
sequence and key head against float64 of the values that the cache has; what fails is said and is in the result. Then
all formats of a row take turns, round by round: captured graphs of several calls that rotate among caches larger than
the L2 cache, and eager calls. Splits are the planned ones. `us` is the median, `samples_us` has all.

`sm120_kv_formats_hnd_h200` is a run with --heads-first. `sm120_nvfp4_causes_h200` was made by hand: variants of NVFP4.

Rates count the bytes of K and V with their scales once. The ratio divides them by the rate of a copy of 4 GiB, which
reads and writes. An H200 is no RTX 50: see sm120_serving_h200.py.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import environment, write_json
from benchmarks.sm120.sm120_serving_h200 import (
    DIM,
    HEADS_KV,
    L2_BYTES,
    ROUNDS,
    eager_us,
    elapsed_us,
    in_turns,
)

NEEDS = ("gpu", "torch", "cutlass")
KINDS = ("bf16", "e4m3", "mxfp8", "nvfp4")
VALUE_BYTES = {"bf16": 2.0, "e4m3": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
# batch, keys, heads of a group, page; 0: contiguous. The goals are of rows of 8,192 keys and more.
ROWS = [
    (batch, keys, group, page)
    for batch, keys, group, page in itertools.product((1, 16, 64), (8192, 32768, 131072), (4, 8), (16, 64))
    if batch * keys <= 16 * 131072
]
POOL_VALUES = 17 << 28  # of K, and of V: 4.6e9, which BF16 takes 9 GB for
SECONDS = 240
QUICK = ("--seconds", "20")
SMALL = {"POOL_VALUES": 1 << 26, "ROWS": [(1, 8192, 8, 64), (4, 8192, 4, 16)]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no new row begins after as many")
    parser.add_argument("--heads-first", action="store_true", help="pages of HND: the rows of a head are neighbours")
    parser.add_argument("--ctas", type=int, help="CTAs that share an SM with 8 rows, in place of the planned number")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    from sm120_attn.compile.build import source_hash
    from sm120_attn.kernels.decode.config import DecodeConfig
    from sm120_attn.kv_cache import planner
    from sm120_attn.verify import bench

    if arguments.ctas:
        planner.CTAS_PER_SM[8] = arguments.ctas
    started = time.perf_counter()
    document: dict[str, Any] = {
        "what": "decode over KV caches of four formats, compiled for sm_90a and timed on an H200 in turns",
        "summary": {},
        "sources": source_hash(DecodeConfig),
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl"),
        "rounds": ROUNDS,
        "heads_first": arguments.heads_first,
        "ctas_per_sm": dict(planner.CTAS_PER_SM),
    }
    compile_all()
    document["compile_seconds"] = time.perf_counter() - started
    print(f"compiled in {document['compile_seconds']:.0f} s", flush=True)
    document["checks"] = checked()
    write_json(arguments.out, document)
    pool = Pool(torch, arguments.heads_first)
    document |= copy_rate(torch, pool)
    document["rows"] = rows = []
    for shape in ROWS:
        if time.perf_counter() - started > arguments.seconds:
            document["not_timed"] = ROWS[len(rows) :]
            break
        rows.append(row_of(torch, pool, *shape))
        document["summary"] = summary_of(document)
        document["seconds"] = time.perf_counter() - started
        write_json(arguments.out, document)
    document["summary"] = summary_of(document)
    return document


# --- the kernels, and whether they are right ---------------------------------------------------------------------


def compile_all() -> None:
    """Compile the kernels of all rows and checks, 12 at a time."""
    from sm120_attn.launch.prepare import device_facts
    from sm120_attn.verify.compile_ahead import compile_missing

    arch, sms = device_facts(0)
    configs = [config for case in cases() for config in (case.config(arch, sms), case.append_config(arch)) if config]
    for (batch, keys, group, page), kind in itertools.product(ROWS, KINDS):
        configs.append(planned(batch, keys, group, page, kind, arch, sms).config)
    compile_missing(dict.fromkeys(configs), 12)


def planned(batch: int, keys: int, group: int, page: int, kind: str, arch: str, sms: int) -> Any:
    from sm120_attn.kv_cache.planner import CacheShape, plan_cache

    shape = CacheShape(
        arch, "bf16", DIM, batch, group * HEADS_KV, HEADS_KV, 1, keys, sms, page_size=page,
        kv_dtype="" if kind == "bf16" else kind,
    )  # fmt: skip
    return plan_cache(shape)


def cases() -> list[Any]:
    """Cases of `check --cache` over block-scaled caches: few kernels of each format."""
    from sm120_attn.verify.cache_cases import matrix

    found = [case for case in matrix() if case.kv_dtype in ("mxfp8", "nvfp4") and case.head_dim == 128]
    few = ("queries, ", "sequences", "descale head", "packed", "rotary none", "rotary half")
    return [case for case in found if any(part in case.name for part in few)]


def checked() -> dict[str, Any]:
    """Run the cases: how many passed, the worst error over that of a careful implementation, and what failed."""
    from sm120_attn.verify import cache_calls

    verdicts = [cache_calls.check(case) for case in cases()]
    failed = {verdict.name: verdict.why for verdict in verdicts if not verdict.passed}
    print(f"{len(verdicts) - len(failed)} of {len(verdicts)} cases pass", flush=True)
    for name, why in list(failed.items())[:10]:
        print(f"  FAILED {name}: {why}", flush=True)
    return {"cases": len(verdicts), "failed": failed}


# --- the caches --------------------------------------------------------------------------------------------------


class Pool:
    """Random K and V, of which all rows take their caches; of each format as many bytes as its values need."""

    def __init__(self, torch: Any, heads_first: bool = False) -> None:
        self.torch, self.heads_first = torch, heads_first
        self.parts: dict[str, list[tuple[Any, Any]]] = {}
        for kind in KINDS:
            self.parts[kind] = [self._random(kind) for _ in range(2)]

    def _random(self, kind: str) -> tuple[Any, Any]:
        """Values, and scales or None. Bytes of FP8 and FP4 are drawn as they are, and none is NaN."""
        torch = self.torch
        if kind == "bf16":
            values = torch.empty(POOL_VALUES, dtype=torch.bfloat16, device="cuda")
            for part in values.split(1 << 30):
                part.normal_()
            return values, None
        size = POOL_VALUES // 2 if kind == "nvfp4" else POOL_VALUES
        values = torch.empty(size, dtype=torch.uint8, device="cuda")
        for part in values.split(1 << 28):
            if kind == "nvfp4":
                part.random_(0, 256)
            else:  # normal numbers; MXFP8 as large as its scale makes them
                part.copy_((torch.randn(len(part), device="cuda") * (1 if kind == "e4m3" else 100)).clamp(-448, 448)
                           .to(torch.float8_e4m3fn).view(torch.uint8))  # fmt: skip
        if kind == "e4m3":
            return values.view(torch.float8_e4m3fn), None
        block, low, high = (32, 119, 122) if kind == "mxfp8" else (16, 0x28, 0x33)
        scales = torch.randint(low, high, (POOL_VALUES // block,), dtype=torch.uint8, device="cuda")
        return (values.view(torch.float8_e4m3fn) if kind == "mxfp8" else values), scales

    def caches(self, kind: str, pages: int, size: int, number: int) -> dict[str, Any]:
        """The arguments k_cache, v_cache and the scales of a cache; each number gives others, while there is room."""
        made = {}
        rows = pages * size * HEADS_KV
        start = number % max(POOL_VALUES // (rows * DIM), 1) * rows
        for name, parts in zip("kv", self.parts[kind], strict=True):
            for part, flat in zip(("cache", "scales"), parts, strict=True):
                if flat is not None:
                    columns = len(flat) * DIM // POOL_VALUES
                    mine = flat[start * columns : (start + rows) * columns]
                    if self.heads_first:
                        made[f"{name}_{part}"] = mine.view(pages, HEADS_KV, size, -1).transpose(1, 2)
                    else:
                        made[f"{name}_{part}"] = mine.view(pages, size, HEADS_KV, -1)
        return made


def calls_of(torch: Any, pool: Pool, kind: str, shape: tuple[int, int, int, int], q: Any, table: Any) -> list[Any]:
    """The keyword arguments of calls that rotate among caches, which together are three times the L2 cache."""
    batch, keys, _, page = shape
    pages, size = (batch * keys // page, page) if page else (batch, keys)
    kv_bytes = 2 * batch * keys * HEADS_KV * DIM * VALUE_BYTES[kind]
    number = min(max(-(-3 * L2_BYTES // int(kv_bytes)), 16 if kv_bytes < 512 << 20 else 4), 64)
    lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
    given = {"q": q, "cache_seqlens": lengths} | ({} if table is None else {"block_table": table})
    return [given | pool.caches(kind, pages, size, i) for i in range(number)]


# --- timing ------------------------------------------------------------------------------------------------------


def copy_rate(torch: Any, pool: Pool) -> dict[str, Any]:
    """The rate of a copy, reads and writes together."""
    (k, _), (v, _) = pool.parts["bf16"]
    count = min(1 << 31, len(k))
    kept = v[:count].clone()
    us = [elapsed_us(torch, lambda: kept.copy_(k[:count])) for _ in range(10)]
    return {"copy_gb_per_s": 2 * kept.nbytes / statistics.median(us) / 1000, "copy_us": us}


def row_of(torch: Any, pool: Pool, batch: int, keys: int, group: int, page: int) -> dict[str, Any]:
    from sm120_attn import attention_with_kv_cache
    from sm120_attn.launch.prepare import device_facts

    shape = (batch, keys, group, page)
    q = torch.randn(batch, 1, group * HEADS_KV, DIM, dtype=torch.bfloat16, device="cuda")
    table = torch.randperm(batch * keys // page, device="cuda").int().view(batch, -1) if page else None
    forms: dict[str, list[Callable[[], Any]]] = {}
    errors, splits = {}, {}
    for kind in KINDS:
        calls = calls_of(torch, pool, kind, shape, q, table)
        errors[kind] = error_of(torch, calls[0])
        forms[kind] = [lambda call=call: attention_with_kv_cache(**call) for call in calls]
        splits[kind] = planned(*shape, kind, *device_facts(0)).num_splits
    samples = in_turns(torch, forms)
    row: dict[str, Any] = {
        "batch": batch, "keys": keys, "group": group, "page": page, "splits": splits, "errors": errors,
        "kv_values": 2 * batch * keys * HEADS_KV * DIM, "us": {k: statistics.median(s) for k, s in samples.items()},
        "eager_us": {kind: eager_us(torch, launches, 3) for kind, launches in forms.items()}, "samples_us": samples,
    }  # fmt: skip
    times = " ".join(f"{kind} {us:.1f} ({errors[kind]:.1e})" for kind, us in row["us"].items())
    print(f"B{batch} {keys} keys GQA {group} page {page}: {times}", flush=True)
    return row


def error_of(torch: Any, call: dict[str, Any]) -> float:
    """The largest error of a row of O over its largest value, of the first sequence and key head, against float64."""
    from sm120_attn import attention_with_kv_cache
    from sm120_attn.verify.cache_calls import reference

    found = attention_with_kv_cache(**call)
    heads = call["q"].shape[2] // HEADS_KV
    one = {name: t[:1] for name, t in call.items() if name in ("q", "cache_seqlens", "block_table")}
    one["q"] = one["q"][:, :, :heads]
    first = {name: t[:, :, :1] for name, t in call.items() if name.endswith(("_cache", "_scales"))}
    wanted, _ = reference(one | first, {"causal": True, "window": None, "softcap": 0.0})
    off = (found[:1, :, :heads].double() - wanted).abs().amax(-1)
    return float((off / wanted.abs().amax(-1)).max())


def summary_of(document: dict[str, Any]) -> dict[str, Any]:
    rows, found = document["rows"], {}
    found["checks_failed"] = len(document["checks"]["failed"])
    found["worst_error"] = {kind: max(row["errors"][kind] for row in rows) for kind in KINDS}
    for times in ("us", "eager_us"):
        for kind, base in (("nvfp4", "bf16"), ("nvfp4", "e4m3"), ("mxfp8", "bf16"), ("e4m3", "bf16")):
            ratios = [row[times][base] / row[times][kind] for row in rows]
            name = f"{kind}_tokens_over_{base}{'_eager' * (times == 'eager_us')}"
            found[f"{name}_geomean"], found[f"{name}_min"] = statistics.geometric_mean(ratios), min(ratios)
    for kind in KINDS:
        rates = [
            row["kv_values"] * VALUE_BYTES[kind] / row["us"][kind] / 1000
            for row in rows
            if row["kv_values"] * VALUE_BYTES[kind] > 2 * L2_BYTES
        ]
        if rates:
            found[f"{kind}_of_a_copy_geomean"] = statistics.geometric_mean(r / document["copy_gb_per_s"] for r in rates)
    return found
