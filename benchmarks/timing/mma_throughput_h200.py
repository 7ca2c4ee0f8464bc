"""What `.pragma "mma_throughput"` does to the time of kernels on this GPU, under ptxas 13.5.37: one row per kernel.

    tritonhook ptxas add 13.5.37
    python -m benchmarks mma_throughput_h200                          # every row
    python -m benchmarks mma_throughput_h200 --only jsd --each 120    # this row alone; the file's others stay

Each row is a `tritonhook ab` of its own, of the kernel as it is and with the rewrite `mma-throughput`: both are
assembled by the same ptxas from PTX that differs in the pragma alone. The cutlass name gives the same code, byte for
byte, and needs no row of its own (`lab/mma_throughput.py`). Needs torch and liger-kernel. Rows go into
results/mma_throughput_h200.json with their raw samples, in place of the rows of the same kernel; other options as of
name_effect.
"""

from __future__ import annotations

import argparse

from benchmarks.common import RESULTS
from benchmarks.timing import name_effect

PTXAS = "13.5.37"
TARGETS = (
    "ab_liger_targets:jsd",
    "ab_liger_targets:kl_div",
    "layer_norm",
    "softmax",
    "attention_mma",
    "attention_mma_d64",
    "gluon_mma_d128",
    "gluon_mma_d128_causal",
    "gluon_mma_d64",
)


NEEDS = ("gpu", "torch", "liger_kernel", "ptxas 13.5.37")
QUICK = ("--only", "softmax", "--processes", "1", "--each", "5")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name_effect.add_arguments(parser)
    targets, kept = ",".join(f"{target}@{PTXAS}" for target in TARGETS), RESULTS / "mma_throughput_h200.json"
    parser.set_defaults(rewrite="mma-throughput", targets=targets, append=kept if kept.exists() else None)


def run(arguments: argparse.Namespace) -> None:
    name_effect.run(arguments)
