"""Time a chain of three small batched GEMMs in bf16, Y = ((A B) C) D, in one launch and in three.

    python -m benchmarks gemm_chain [--out FILE] [--rounds N]      # on an H100 or H200

Columns: `fused`, one launch of examples/cute_gemm_chain.py; `unfused`, the same kernel in three launches; `bmm`, three
torch.bmm; `compiled`, torch.compile of the same three. A is [batch, M, K], B [batch, K, N], C and D [batch, N, N].

`graph_us`: per call, in a CUDA graph of calls over rotating inputs of at least 256 MB in all, so that they come from
device memory; host time is not in it. `eager_us`: the same calls made one by one, host time included. Each round times
every column forth and back. Intermediates are allocated as torch does, so that those of torch.bmm stay in the L2 cache
where they fit. `errors`: norm of the difference from float64 over the norm of the result, for four kinds of data.

`roof_us` is the larger of two times: of the bytes of A, B, C, D and Y at the measured rate of memory, and of the
operations at the measured rate of a large bf16 product. `roof_ratio` is roof_us over the time of `fused`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import environment, interleave, write_json

SHAPES = ((64, 64, 64), (128, 64, 64), (64, 128, 128), (128, 128, 128), (256, 64, 64), (256, 128, 128))  # M, N, K
BATCHES = (64, 256, 1024, 2048)
COLUMNS = ("fused", "unfused", "bmm", "compiled")
ROTATING_BYTES = 256e6  # several times the L2 cache
SAMPLE_US = 2000  # a sample runs at least about this long


def inputs(torch: Any, kind: str, batch: int, m: int, n: int, k: int) -> tuple[Any, ...]:
    """A, B, C and D."""

    def draw(rows: int, columns: int) -> Any:
        values = torch.randn(batch, rows, columns, device="cuda")
        if kind == "positive":
            values = torch.rand_like(values)
        elif kind == "outliers":
            values = torch.where(torch.rand_like(values) < 0.01, 100 * values, values)
        elif kind == "rows of many sizes":
            values = values * torch.exp2(torch.randint(-12, 13, (batch, rows, 1), device="cuda").float())
        return values.to(torch.bfloat16)

    return draw(m, k), draw(k, n), draw(n, n), draw(n, n)


KINDS = ("normal", "positive", "outliers", "rows of many sizes")


def errors(torch: Any, columns: dict[str, Callable[..., Any]], batch: int, m: int, n: int, k: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in KINDS:
        tensors = inputs(torch, kind, batch, m, n, k)
        exact = tensors[0].double()
        for factor in tensors[1:]:
            exact = exact @ factor.double()
        norm = exact.norm().item()
        found[kind] = {name: (run(*tensors).double().sub_(exact).norm() / norm).item() for name, run in columns.items()}
    return found


def captured(torch: Any, run: Callable[..., Any], sets: Sequence[Any]) -> Any:
    """A CUDA graph that calls `run` once for each set."""
    run(*sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [run(*tensors) for tensors in sets]
    graph.outputs = outputs  # keeps each output at an address of its own
    return graph


def graph_us(torch: Any, graph: Any, calls: int, repeats: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (calls * repeats)


def eager_us(torch: Any, run: Callable[..., Any], sets: Sequence[Any], calls: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(calls):
        run(*sets[i % len(sets)])
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / calls


def time_columns(
    torch: Any, columns: dict[str, Callable[..., Any]], sets: Sequence[Any], rounds: int
) -> dict[str, dict[str, list[float]]]:
    graphs = {name: captured(torch, run, sets) for name, run in columns.items()}
    for graph in graphs.values():
        graph.replay()
    longest = max(graph_us(torch, graph, 1, 1) for graph in graphs.values())
    repeats = max(1, math.ceil(SAMPLE_US / longest))
    calls = max(20, min(200, math.ceil(SAMPLE_US * len(sets) / longest)))
    in_graph = interleave(
        rounds, *(lambda g=graph: graph_us(torch, g, len(sets), repeats) for graph in graphs.values())
    )
    del graphs
    eager = interleave(
        max(rounds // 2, 3), *(lambda r=run: eager_us(torch, r, sets, calls) for run in columns.values())
    )
    return {"graph_us": dict(zip(columns, in_graph, strict=True)), "eager_us": dict(zip(columns, eager, strict=True))}


def ceilings(torch: Any) -> dict[str, float]:
    """Rates of a kernel that reads and writes 2 GiB, and of a large bf16 product. (A memory copy of the driver reaches
    two thirds of that rate.)"""
    source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def median_us(run: Callable[..., Any], tensors: tuple[Any, ...], calls: int) -> float:
        graph = captured(torch, run, [tensors] * calls)
        return statistics.median(graph_us(torch, graph, calls, 1) for _ in range(7))

    passed = median_us(lambda x: torch.neg(x, out=target), (source,), 20)
    product_us = median_us(torch.mm, (a, b), 8)
    moved = source.nbytes + target.nbytes
    return {"memory_tb_per_s": moved / passed / 1e6, "bf16_tflop_per_s": 2 * 8192**3 / product_us / 1e6}


def cell(torch: Any, m: int, n: int, k: int, batch: int, rounds: int, roof: dict[str, float]) -> dict[str, Any]:
    import cute_gemm_chain

    def three_bmm(a: Any, b: Any, c: Any, d: Any) -> Any:
        return torch.bmm(torch.bmm(torch.bmm(a, b), c), d)

    torch._dynamo.reset()
    columns: dict[str, Callable[..., Any]] = {
        "fused": cute_gemm_chain.chain,
        "unfused": cute_gemm_chain.unfused,
        "bmm": three_bmm,
        "compiled": torch.compile(three_bmm),
    }
    moved = 2 * batch * (m * k + k * n + 2 * n * n + m * n)
    operations = 2 * batch * m * n * (k + 2 * n)
    sets = [inputs(torch, "normal", batch, m, n, k) for _ in range(max(2, math.ceil(ROTATING_BYTES / moved)))]
    row: dict[str, Any] = {"m": m, "n": n, "k": k, "batch": batch, "bytes": moved, "flop": operations}
    row["roof_us"] = max(moved / roof["memory_tb_per_s"], operations / roof["bf16_tflop_per_s"]) / 1e6
    row["errors"] = errors(torch, columns, batch, m, n, k)
    return row | {"input_sets": len(sets)} | time_columns(torch, columns, sets, rounds)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    def medians(row: dict[str, Any], how: str = "graph_us") -> dict[str, float]:
        return {name: statistics.median(samples) for name, samples in row[how].items()}

    def ratios(reference: str, how: str = "graph_us") -> list[float]:
        return [medians(row, how)[reference] / medians(row, how)["fused"] for row in rows]

    roofs = [row["roof_us"] / medians(row)["fused"] for row in rows]
    large = [roof for roof, row in zip(roofs, rows, strict=True) if row["batch"] == max(BATCHES)]
    worst = max(
        of_kind["fused"] / of_kind["bmm"] for row in rows for of_kind in row["errors"].values() if of_kind["bmm"]
    )
    geomean = statistics.geometric_mean
    return {
        "fused_vs_bmm_geomean": geomean(ratios("bmm")),
        "fused_vs_bmm_min": min(ratios("bmm")),
        "fused_vs_unfused_geomean": geomean(ratios("unfused")),
        "fused_vs_compiled_geomean": geomean(ratios("compiled")),
        "eager_fused_vs_bmm_geomean": geomean(ratios("bmm", "eager_us")),
        "eager_fused_vs_bmm_min": min(ratios("bmm", "eager_us")),
        "roof_ratio": geomean(roofs),
        "roof_ratio_batch_2048": geomean(large),
        "worst_error_vs_bmm": worst,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{'M':>4}{'N':>4}{'K':>4}{'batch':>6}" + "".join(f"{name:>10}" for name in COLUMNS) + "  vs bmm  roof  eager"
    ]
    for row in rows:
        us = {name: statistics.median(samples) for name, samples in row["graph_us"].items()}
        eager = {name: statistics.median(samples) for name, samples in row["eager_us"].items()}
        lines.append(
            f"{row['m']:>4}{row['n']:>4}{row['k']:>4}{row['batch']:>6}"
            + "".join(f"{us[name]:>10.2f}" for name in COLUMNS)
            + f"{us['bmm'] / us['fused']:>8.2f}{row['roof_us'] / us['fused']:>6.2f}"
            + f"{eager['fused']:>8.2f}/{eager['bmm']:.2f}"
        )
    return "\n".join(lines)


NEEDS = ("gpu", "torch", "cutlass")
OFFLINE = ("--again",)
QUICK = ("--rounds", "1")
SMALL = {"SHAPES": SHAPES[:1], "BATCHES": BATCHES[:1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--again", type=Path, metavar="FILE", help="make the summary of FILE again; times nothing")


def run(arguments: argparse.Namespace) -> None:
    if arguments.again:
        document = json.loads(arguments.again.read_text())
        write_json(arguments.out, document | {"summary": summary(document["rows"])})
        return
    import torch

    torch.manual_seed(0)
    roof = ceilings(torch)
    document = {
        "format": 1,
        "what": "us per call of Y = ((A B) C) D, batched, bf16: one launch, three launches, three torch.bmm",
        "environment": environment("torch", "nvidia-cutlass-dsl", "apache-tvm-ffi")
        | {"gpu": torch.cuda.get_device_name(), **roof},
        "rows": [],
    }
    rows: list[dict[str, Any]] = document["rows"]  # type: ignore[assignment]
    for (m, n, k), batch in product(SHAPES, reversed(BATCHES)):
        rows.append(cell(torch, m, n, k, batch, arguments.rounds, roof))
        print(table(rows).splitlines()[-1], flush=True)
        write_json(arguments.out, document | {"summary": summary(rows)})  # after each row: a time limit loses nothing
    print(table(rows), json.dumps(summary(rows), indent=1), sep="\n")
