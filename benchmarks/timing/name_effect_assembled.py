"""What "cutlass" in the name does to the code of the bundled fp8 attention for sm_100a, as in the published claim.

*Assembled* only: nothing is executed or timed.

    python -m benchmarks name_effect_assembled [--ptxas 12.8.93,12.9.86] [--out FILE]

One row per configuration and ptxas: the diff of the two codes, and each side's registers. Reference and candidate have
names of equal length; a control name shows whether ptxas repeats its own code.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.common import environment

CONFIGURATIONS = [
    {"dtype": dtype, "head_dim": depth, "causal": causal}
    for dtype in ("fp8e5", "fp8e4nv")
    for depth in (64, 128)
    for causal in (False, True)
]


def assemble(fields: dict[str, Any], ptxas: str) -> dict[str, Any]:
    from gluon_kernels.offline import compile_offline
    from tritonhook.compare.names import compare_names
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain
    from tritonhook.rename import PREFIX, Rename

    ptx = Ptx(compile_offline(options={"ptx_version": 87}, **fields).asm["ptx"].rstrip("\0"))
    found = compare_names(ptx, Rename(prefix=PREFIX), find_toolchain(ptxas))
    builds = {"plain": found.plain, "control": found.control, "cutlass": found.renamed}
    diff = found.diff
    return {
        **fields,
        "ptxas": ptxas,
        "evidence": "assembled",
        "code": "ptxas crashed" if diff is None else diff.summary,
        "same_code": None if diff is None else diff.identical_code,
        "control_is_neutral": found.control_is_neutral,
        "registers": {
            name: None if build.cubin is None else build.cubin.resources[build.kernel].registers
            for name, build in builds.items()
        },
    }


QUICK = ("--ptxas", "12.8.93")
SMALL = {"CONFIGURATIONS": CONFIGURATIONS[:1]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ptxas", default="12.8.93,12.9.86")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for ptxas in arguments.ptxas.split(","):
        for fields in CONFIGURATIONS:
            rows.append(assemble(fields, ptxas))
            print(rows[-1], flush=True)
    changed = sum(row["same_code"] is False for row in rows)
    return {
        "environment": environment("triton", "tritonhook"),
        "samples": rows,
        "summary": {"kernels": len(rows), "changed": changed, "evidence": "assembled, sm_100a"},
    }
