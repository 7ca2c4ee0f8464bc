"""sm120_attn.quantize on an H100, compiled for sm_90a, against torch doing the same: eager, and by torch.compile.

    python -m benchmarks sm120_quantize_h100 [--rounds 11] [--only S4096] [--l2 0.5,2]

The same: amax per head, two divisions, product, clamp, cast. A sample is a CUDA graph of launches over copies of the
input, in turn, which are together larger than the L2 cache (COLD_BYTES): every launch finds its input in memory. The
host's time is outside; `host_us` has it. All competitors in one process, in turns.

For each shape: the median of the samples in microseconds, and its share of the floor. The floor is the time to read the
input once and write the output once at PEAK, the H100's memory bandwidth by its data sheet.

--l2 also times ours as cut for an L2 cache that is so many times as large (sm120_attn.kernels.quantize.config.cut).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import environment
from sm120_attn.verify import bench

COLD_BYTES = 3 * 50 * 2**20
PEAK = 3.35e12  # bytes per second, SXM
LAUNCHES = 8  # of a graph, at least
# (tensors, batch, rows, heads, head_dim, dtype): of 3 tensors all have as many rows and heads
SHAPES = (
    (1, 1, 512, 16, 128, "bf16"),
    (1, 1, 2048, 16, 128, "bf16"),
    (1, 4, 4096, 16, 64, "bf16"),
    (1, 4, 4096, 16, 128, "bf16"),
    (1, 1, 16384, 16, 128, "bf16"),
    (1, 1, 4096, 16, 128, "fp32"),
    (3, 1, 512, 16, 64, "bf16"),
    (3, 1, 2048, 16, 128, "bf16"),
    (3, 4, 4096, 16, 128, "bf16"),
)


NEEDS = ("gpu", "torch", "cutlass")
QUICK = ("--rounds", "1", "--no-compile")
SMALL = {"SHAPES": SHAPES[:1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--l2", default="", help="factors, as 0.5,2")
    parser.add_argument("--only", default="", help="shapes with this text in their line")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    factors = [float(text) for text in arguments.l2.split(",") if text]
    records = []
    for shape in SHAPES:
        if arguments.only not in label(*shape):
            continue
        records.append(record(shape, arguments.rounds, factors, not arguments.no_compile))
        print(line(records[-1]), flush=True)
    return {
        "what": "sm120_attn.quantize compiled for sm_90a, timed on an H100 in turns with torch",
        "summary": summary_of(records),
        "host_us": host_costs(),
        "peak_bytes_per_s": PEAK,
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl"),
        "seconds": time.perf_counter() - started,
        "shapes": records,
    }


def by_torch(*xs: Any) -> list[Any]:
    """What a user would write."""
    import torch

    made = []
    for x in xs:
        values = x.float()
        amax = values.abs().amax((1, 3), keepdim=True)
        descale = torch.where(amax == 0, 1.0, amax / 448)
        made += [(values / descale).clamp(-448, 448).to(torch.float8_e4m3fn), descale[:, 0, :, 0]]
    return made


def ours(*xs: Any) -> list[Any]:
    from sm120_attn import quantize, quantize_qkv

    if len(xs) == 1:
        return list(quantize(xs[0]))
    ys, descales = quantize_qkv(*xs)
    return [found for pair in zip(ys, descales, strict=True) for found in pair]


def as_if_l2_were(factor: float) -> Callable[..., list[Any]]:
    """Ours, with what it is told of the device's L2 cache changed."""

    def call(*xs: Any) -> list[Any]:
        from sm120_attn.quantization import launch

        real = launch.l2_bytes
        launch.prepared_calls.clear()
        launch.l2_bytes = lambda index: int(real(index) * factor)
        try:
            return ours(*xs)
        finally:
            launch.l2_bytes = real
            launch.prepared_calls.clear()

    return call


def record(shape: tuple[Any, ...], rounds: int, factors: list[float], compile_too: bool) -> dict[str, Any]:
    import torch

    tensors, batch, rows, heads, head_dim, dtype = shape
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    torch.manual_seed(0)
    size = (batch, rows, heads, head_dim)
    elements = tensors * batch * rows * heads * head_dim
    input_bytes = elements * kind.itemsize
    copies = max(LAUNCHES, -(-COLD_BYTES // input_bytes))
    inputs = [[torch.randn(size, device="cuda").to(kind) for _ in range(tensors)] for _ in range(copies)]
    makers: dict[str, Callable[..., list[Any]]] = {"ours": ours, "torch": by_torch}
    if compile_too:
        torch._dynamo.reset()  # or it would stop compiling after some shapes
        makers["torch.compile"] = torch.compile(by_torch, dynamic=False)
    makers |= {f"L2 x {factor:g}": as_if_l2_were(factor) for factor in factors}
    wanted = by_torch(*inputs[0])
    graphs = {}
    for name, call in makers.items():
        for got, right in zip(call(*inputs[0]), wanted, strict=True):
            off = (got.float() - right.float()).abs() / right.float().abs().clamp(min=2.0**-6)
            if not off.max().item() <= 0.13:  # a value between two of FP8's may go to either
                raise SystemExit(f"{shape}: {name} is off by {off.max().item():.3g}")
        graphs[name] = graph_of(call, inputs)
    samples = bench.in_turns({name: graph.replay for name, graph in graphs.items()}, rounds)
    us = {name: [ms * 1e3 / copies for ms in found] for name, found in samples.items()}
    return {
        "tensors": tensors, "batch": batch, "rows": rows, "heads": heads, "head_dim": head_dim, "dtype": dtype,
        "copies": copies, "floor_us": (input_bytes + elements) / PEAK * 1e6,
        "median_us": {name: statistics.median(found) for name, found in us.items()},
        "samples_us": us,
    }  # fmt: skip


def graph_of(call: Callable[..., list[Any]], inputs: list[list[Any]]) -> Any:
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call(*inputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for xs in inputs:
            call(*xs)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def host_costs() -> dict[str, float]:
    import torch

    x = torch.randn(1, 32, 2, 64, device="cuda").bfloat16()
    return {
        "quantize": bench.host_us(lambda: ours(x)),
        "quantize_qkv": bench.host_us(lambda: ours(x, x, x)),
        "torch": bench.host_us(lambda: by_torch(x), calls=300),
    }


def label(tensors: int, batch: int, rows: int, heads: int, head_dim: int, dtype: str) -> str:
    return f"{tensors} x B{batch} S{rows} H{heads} D{head_dim} {dtype}"


def line(one: dict[str, Any]) -> str:
    what = label(*(one[name] for name in ("tensors", "batch", "rows", "heads", "head_dim", "dtype")))
    cells = " ".join(f"{name} {us:.1f}" for name, us in one["median_us"].items())
    return f"{what:32} floor {one['floor_us']:.1f} us: {cells}"


def summary_of(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios above 1: ours is faster."""
    found = {}
    for name in ("torch", "torch.compile"):
        ratios = [r["median_us"][name] / r["median_us"]["ours"] for r in records if name in r["median_us"]]
        if ratios:
            found[f"vs_{name}_geomean"] = statistics.geometric_mean(ratios)
            found[f"vs_{name}_min"] = min(ratios)
    found["share_of_floor"] = [round(r["floor_us"] / r["median_us"]["ours"], 3) for r in records]
    return found
