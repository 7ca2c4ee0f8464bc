"""What "cutlass" in the name does to the code of every attention of gluon_kernels, as it is launched by default.

    python -m benchmarks gluon_assembled [--ptxas 12.6.85] [--only REGEX] [--out FILE]

*Assembled*, nothing executed or timed: mma.sync and Hopper's for sm_90a, Blackwell's for sm_100a; the default config of
each dtype, head_dim and mask at 4096 queries and keys, under the ptxas that Triton takes for that GPU, and Hopper's
under that of --ptxas too. Rows are named as the targets of timing/targets/ab_targets.py. gluon_ab.py times those for
sm_90a.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.common import environment

LENGTH = 4096
DTYPES = {"": "bf16", "_fp8": "fp8e4nv"}
HEAD_DIMS = {"mma": (64, 128, 256), "hopper": (64, 128, 256), "blackwell": (64, 128)}
ARCHITECTURES = {"mma": 90, "hopper": 90, "blackwell": 100}
TRITONS_PTXAS = {90: "12.8.93", 100: "12.9.86"}


def subjects() -> Iterator[tuple[str, str, str, int, bool]]:
    """(target, kernel, dtype, head_dim, causal)"""
    for kernel, head_dims in HEAD_DIMS.items():
        for tag, dtype in DTYPES.items():
            for head_dim in head_dims:
                for causal in (False, True):
                    yield f"gluon_{kernel}{tag}_d{head_dim}{'_causal' * causal}", kernel, dtype, head_dim, causal


def compiled(kernel: str, dtype: str, head_dim: int, causal: bool, ptx_version: int) -> str:
    """The PTX of the default config under a name without the word."""
    from gluon_kernels.blackwell import config as blackwell
    from gluon_kernels.hopper import config as hopper
    from gluon_kernels.mma import config as mma
    from gluon_kernels.offline import compile_offline

    arch, mask = ARCHITECTURES[kernel], "top-left" if causal else None
    if kernel == "blackwell":
        ours = blackwell.default_config(arch, dtype, head_dim, causal=causal, seqlen_q=LENGTH, seqlen_k=LENGTH)
    else:
        ours = {"mma": mma, "hopper": hopper}[kernel].default_config(arch, dtype, head_dim, mask, LENGTH)
    built = compile_offline(replace(ours, name=f"attention_{kernel}_fwd"), arch, {"ptx_version": ptx_version})
    return built.asm["ptx"].rstrip("\0")


def row(target: str, kernel: str, dtype: str, head_dim: int, causal: bool, version: str) -> dict[str, Any]:
    from tritonhook.compare.names import compare_names
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain
    from tritonhook.rename import PREFIX, Rename

    arch = ARCHITECTURES[kernel]
    ptx = compiled(kernel, dtype, head_dim, causal, {"12.6": 85, "12.8": 87, "12.9": 88}[version[:4]])
    found = compare_names(Ptx(ptx), Rename(prefix=PREFIX), find_toolchain(version))
    diff = found.diff
    return {
        "kernel": target,
        "arch": f"sm_{arch}a",
        "ptxas": "Triton's" if version == TRITONS_PTXAS[arch] else version,
        "evidence": "assembled",
        "same_code": None if diff is None else diff.identical_code,
        "code": "ptxas crashed" if diff is None else diff.summary,
        "control_is_neutral": found.control_is_neutral,
        "registers": [
            None if build.cubin is None else build.cubin.resources[build.kernel].registers
            for build in (found.plain, found.renamed)
        ],
    }


QUICK = ("--ptxas", "", "--only", "mma_d64$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ptxas", default="12.6.85", help="further versions for Hopper's")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=2)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    work = []
    for subject in subjects():
        arch = ARCHITECTURES[subject[1]]
        further = arguments.ptxas.split(",") if subject[1] == "hopper" and arguments.ptxas else []
        work += [(*subject, version) for version in (TRITONS_PTXAS[arch], *further)]
    work = [item for item in work if re.search(arguments.only, item[0])]
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for one in pool.map(lambda item: row(*item), work):
            rows.append(one)
            print(one["kernel"], one["ptxas"], one["code"], one["registers"], one["control_is_neutral"], flush=True)
    return {
        "environment": environment("triton", "tritonhook"),
        "samples": rows,
        "summary": summary(rows) | {"evidence": "assembled"},
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "rows": len(rows),
        "same_code": sum(one["same_code"] is True for one in rows),
        "other_code": sum(one["same_code"] is False for one in rows),
    }
