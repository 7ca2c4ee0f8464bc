"""What `.pragma "mma_throughput"` does to the time of kernels on this GPU, under ptxas 13.5.37: one row per kernel.

    tritonhook ptxas add 13.5.37
    python benchmarks/timing/mma_throughput_h200.py                          # every row
    python benchmarks/timing/mma_throughput_h200.py --only jsd --each 120    # this row alone; the file's others stay

Each row is a `tritonhook ab` of its own, of the kernel as it is and with the rewrite `mma-throughput`: both are
assembled by the same ptxas from PTX that differs in the pragma alone. The cutlass name gives the same code, byte for
byte, and needs no row of its own (`lab/mma_throughput.py`). Needs torch and liger-kernel. Rows go into
results/mma_throughput_h200.json with their raw samples, in place of the rows of the same kernel; other options as of
name_effect.py.
"""

from __future__ import annotations

import sys

import name_effect
from name_effect import RESULTS

PTXAS = "13.5.37"
RESULT = RESULTS / "mma_throughput_h200.json"
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


def main() -> None:
    targets = ",".join(f"{target}@{PTXAS}" for target in TARGETS)
    own = ["--rewrite", "mma-throughput", "--targets", targets, "--out", str(RESULT)]
    kept = ["--append", str(RESULT)] if RESULT.exists() else []
    name_effect.main([*own, *kept, *sys.argv[1:]])


if __name__ == "__main__":
    main()
