"""gluon_kernels beside torch's flash attention, cuDNN, FlexAttention and FlashAttention-4, in one run on one GPU.

    python -m benchmarks gluon_speed [--subjects mma_bf16,...] [--tutorial FILE] [--out FILE]     # on the GPU

Every launch is timed in random order in the same rounds, first captured into a CUDA graph, then as programs call it
("eager"). Compiling is over before, and a launch whose output disagrees with PyTorch's is absent. Raw samples are kept.
Also: how exact fp8 is on kinds of data that are hard for it. Other attentions in fp8
are timed beside ours (fp8_peers.py): cuDNN's where nvidia-cudnn-frontend is installed, and with --tutorial that of
Triton's tutorial.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import environment, module_at, write_json
from benchmarks.gluon.fp8_peers import (
    CUDNN,
    TUTORIAL,
    cudnn_launch,
    peers,
    tutorial_launch,
    with_all_rows,
)
from gluon_kernels.api import launcher
from gluon_kernels.mma.config import default_config
from gluon_kernels.verify.bench import Row, Shape, bench, geomean, table
from gluon_kernels.verify.fp8_accuracy import LENGTHS, accuracy_cases, judge_accuracy

RESULT = "gluon_h200"
# The first four have FlexAttention, which compiles for each shape.
SHAPES = [Shape(4, 16, 4096, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(1, 16, 16384, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(16, 16, 1024, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(2, 32, 4096, 128, c, num_heads_kv=8) for c in (False, True)]  # grouped queries
SHAPES += [Shape(8, 16, 2048, 128, c) for c in (False, True)]
SHAPES += [Shape(4, 8, 4096, 256, c) for c in (False, True)]
SHAPES += [Shape(2, 16, 2000, 128, c) for c in (False, True)]  # the last tile is partial
SHAPES += [Shape(4, 16, 512, 128, seqlen_k=8192), Shape(1, 16, 1024, 128)]
SHAPES += [Shape(1, 24, 3000, 128, c) for c in (False, True)]  # short enough for the host to matter
SHAPES += [Shape(8, 12, 1500, 64, c) for c in (False, True)]
# The shapes that the tutorial's kernel is tuned for.
TUTORIAL_SHAPES = SHAPES[:4]

SUMMARY = {
    "hopper_bf16_vs_cudnn_geomean": ("hopper_bf16", "cudnn"),
    "hopper_bf16_vs_fa4_geomean": ("hopper_bf16", "fa4"),
    "hopper_bf16_vs_sdpa_flash_geomean": ("hopper_bf16", "sdpa_flash"),
    "hopper_fp8_vs_bf16_geomean": ("hopper_fp8e4nv", "hopper_bf16"),
    "hopper_fp8_vs_cudnn_fp8_geomean": ("hopper_fp8e4nv", CUDNN),
    "hopper_fp8_vs_tutorial_fp8_geomean": ("hopper_fp8e4nv", TUTORIAL),
    "mma_bf16_vs_sdpa_flash_geomean": ("mma_bf16", "sdpa_flash"),
}


def document(rows: list[Row], rounds: int, fp8: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, Any]:
    import torch

    return {
        "format": 2,
        "environment": environment(
            "torch", "triton", "flash-attn-4", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvidia-cutlass-dsl"
        )
        | {"gpu": torch.cuda.get_device_name()},
        "rounds": rounds,
        "samples": [as_sample(row) for row in rows],
        "fp8_accuracy": fp8,
        "fp8_peers": others,
        "summary": means(rows) | worst(fp8) | {"shapes": len(rows)},
    }


def means(rows: list[Row]) -> dict[str, float | None]:
    """Geometric means over all shapes, of graphs and of eager calls."""
    graph = {name: geomean(row.ratio(*pair) for row in rows) for name, pair in SUMMARY.items()}
    eager = {f"{name}_eager": geomean(row.ratio(*pair, eager=True) for row in rows) for name, pair in SUMMARY.items()}
    by_fa4 = [ratio for row in rows if (ratio := row.ratio("hopper_bf16", "fa4")) is not None]
    return graph | eager | {"hopper_bf16_vs_fa4_min": min(by_fa4, default=None)}


def worst(fp8: list[dict[str, Any]]) -> dict[str, float]:
    """The worst of all kinds of data, lengths and masks, of the Hopper kernel."""
    found = [one for one in fp8 if one["kernel"] == "hopper"]
    return (
        {
            "fp8_worst_rms_ratio": max(one["rms_ratio"] for one in found),
            "fp8_worst_row_ratio": max(one["row_ratio"] for one in found),
            "fp8_ones_error": max(one["ones_error"] for one in found if one["ones_error"] is not None),
        }
        if found
        else {}
    )


def fp8_accuracy() -> list[dict[str, Any]]:
    """Every kind of data at every length; the mma.sync kernel at the shortest only, as its sums are fp32."""
    found = []
    for kernel, head_dim in (("hopper", 64), ("hopper", 128), ("hopper", 256), ("mma", 128)):
        lengths = LENGTHS if kernel == "hopper" else LENGTHS[:1]
        found += accuracy_of(kernel, launcher(kernel).attention, "fp8e4nv", head_dim, lengths)
    return found


def peers_accuracy(tutorial: Path | None) -> list[dict[str, Any]]:
    """The same of the other attentions in fp8, with head_dim 128."""
    found = accuracy_of(CUDNN, with_all_rows(cudnn_launch), "fp8e4nv", 128)
    if tutorial is not None:
        launch = partial(tutorial_launch, module_at(tutorial, "fused_attention_tutorial"))
        found += accuracy_of(TUTORIAL, with_all_rows(launch), "fp8e5", 128)
    return found


def accuracy_of(
    kernel: str, attention: Any, dtype: str, head_dim: int, lengths: tuple[int, ...] = LENGTHS
) -> list[dict[str, Any]]:
    found = []
    for seed, case in enumerate(accuracy_cases(dtype, head_dim, lengths)):
        one = judge_accuracy(case, attention, seed, "cuda", kernel == "hopper")
        ratios = {"rms_ratio": one.rms_ratio, "row_ratio": one.row_ratio, "reason": one.reason}
        found.append({"kernel": kernel} | asdict(case) | asdict(one) | ratios)
        del found[-1]["case"]
    return found


def as_sample(row: Row) -> dict[str, Any]:
    return {
        "shape": row.shape.label,
        "flops": row.shape.flops,
        "tflops": {label: row.tflops(label) for label in row.times},
        "tflops_eager": {label: row.tflops(label, eager=True) for label in row.eager},
        "names": {label: entry(label, row.shape) for label in row.times if entry(label, row.shape)},
        "absent": row.absent,
        "graph": {label: timed.graph for label, timed in row.times.items()},
        "samples_ms": {label: list(timed.samples_ms) for label, timed in row.times.items()},
        "samples_eager_ms": {label: list(timed.samples_ms) for label, timed in row.eager.items()},
    }


def entry(label: str, shape: Shape) -> str | None:
    """The entry that the mma.sync kernel ran under: its default is the name that was measured to be faster."""
    kernel, _, dtype = label.partition("_")
    if kernel != "mma":
        return None
    causal = "top-left" if shape.causal else None
    return default_config(90, dtype, shape.head_dim, causal, shape.seqlen_q).entry


NEEDS = ("gpu", "torch", "triton")
QUICK = ("--rounds", "3")
SMALL = {"SHAPES": SHAPES[:1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--subjects", default="mma_bf16,hopper_bf16,hopper_fp8e4nv")
    parser.add_argument("--baselines", default="sdpa_flash,cudnn,flex,fa4")
    parser.add_argument("--tutorial", type=Path, help="Triton's 06-fused-attention.py")
    parser.add_argument("--rounds", type=int, default=25)


def run(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    fp8, others = fp8_accuracy(), peers_accuracy(arguments.tutorial)
    print(worst(fp8), flush=True)

    def report(row: Row) -> None:
        rows.append(row)
        cells = ", ".join(f"{label} {row.tflops(label):.0f}/{row.tflops(label, eager=True):.0f}" for label in row.times)
        print(f"{row.shape.label}: {cells}", flush=True)
        write_json(
            arguments.out, document(rows, arguments.rounds, fp8, others), digits=6
        )  # what there is, should the time be over

    subjects, baselines = arguments.subjects.split(","), arguments.baselines.split(",")
    fp8_peers = peers(arguments.tutorial, TUTORIAL_SHAPES)
    bench(SHAPES, subjects, baselines, arguments.rounds, report=report, eager=True, peers=fp8_peers)
    print(table(rows, ("sdpa_flash", "cudnn", "fa4", CUDNN, TUTORIAL)))
