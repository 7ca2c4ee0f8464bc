"""gluon_kernels on an H100 beside torch's flash attention, cuDNN, FlexAttention and FlashAttention-4, in one run.

    python benchmarks/gluon/gluon_h100.py [--subjects mma_bf16,...] [--out FILE]     # on the GPU

Every launch is captured into a CUDA graph and timed in random order in the same rounds; compiling is over before,
and a launch whose output disagrees with PyTorch's is absent. Raw samples are kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json

from gluon_kernels.mma.config import default_config
from gluon_kernels.verify.bench import Row, Shape, bench, geomean, table

RESULT = RESULTS / "gluon_h100.json"
# The first four have FlexAttention, which compiles for each shape.
SHAPES = [Shape(4, 16, 4096, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(1, 16, 16384, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(16, 16, 1024, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(2, 32, 4096, 128, c, num_heads_kv=8) for c in (False, True)]  # grouped queries
SHAPES += [Shape(8, 16, 2048, 128, c) for c in (False, True)]
SHAPES += [Shape(4, 8, 4096, 256, c) for c in (False, True)]
SHAPES += [Shape(2, 16, 2000, 128, c) for c in (False, True)]  # the last tile is partial
SHAPES += [Shape(4, 16, 512, 128, seqlen_k=8192), Shape(1, 16, 1024, 128)]

SUMMARY = {
    "hopper_bf16_vs_cudnn_geomean": ("hopper_bf16", "cudnn"),
    "hopper_bf16_vs_fa4_geomean": ("hopper_bf16", "fa4"),
    "hopper_bf16_vs_sdpa_flash_geomean": ("hopper_bf16", "sdpa_flash"),
    "mma_bf16_vs_sdpa_flash_geomean": ("mma_bf16", "sdpa_flash"),
}


def document(rows: list[Row]) -> dict[str, Any]:
    import torch

    return {
        "format": 1,
        "environment": environment("torch", "triton", "flash-attn-4", "nvidia-cudnn-cu13", "nvidia-cutlass-dsl")
        | {"gpu": torch.cuda.get_device_name()},
        "samples": [as_sample(row) for row in rows],
        "summary": {name: geomean(row.ratio(*pair) for row in rows) for name, pair in SUMMARY.items()}
        | {"shapes": len(rows)},
    }


def as_sample(row: Row) -> dict[str, Any]:
    return {
        "shape": row.shape.label,
        "flops": row.shape.flops,
        "tflops": {label: row.tflops(label) for label in row.times},
        "names": {label: entry(label, row.shape) for label in row.times if entry(label, row.shape)},
        "absent": row.absent,
        "graph": {label: timed.graph for label, timed in row.times.items()},
        "samples_ms": {label: list(timed.samples_ms) for label, timed in row.times.items()},
    }


def entry(label: str, shape: Shape) -> str | None:
    """The entry that the mma.sync kernel ran under: its default is the name that was measured to be faster."""
    kernel, _, dtype = label.partition("_")
    if kernel != "mma":
        return None
    causal = "top-left" if shape.causal else None
    return default_config(90, dtype, shape.head_dim, causal, shape.seqlen_q).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", default="mma_bf16,hopper_bf16,hopper_fp8e4nv")
    parser.add_argument("--baselines", default="sdpa_flash,cudnn,flex,fa4")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(row)
        cells = ", ".join(f"{label} {row.tflops(label):.0f}" for label in row.times)
        print(f"{row.shape.label}: {cells}", flush=True)
        write_json(options.out, document(rows), digits=6)  # what there is, should the time be over

    subjects, baselines = options.subjects.split(","), options.baselines.split(",")
    bench(SHAPES, subjects, baselines, options.rounds, report=report)
    print(table(rows))


if __name__ == "__main__":
    main()
