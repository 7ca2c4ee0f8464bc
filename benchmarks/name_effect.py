"""What "cutlass" in the name does to kernels on this GPU: code, resources, time. One row per kernel and ptxas.

    python benchmarks/name_effect.py [--ptxas VERSION,...] [--only REGEX] [--seconds 540] [--out FILE]

Each row is a `tritonhook ab` of its own: plain, `cutlass_` and a control of the same length, three or more fresh
processes, raw samples kept. `--ptxas` adds rows under other assemblers for the kernels that use wgmma. Stops cleanly
when --seconds are over; what there is has been written.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import RESULTS, environment, write_json

TARGETS = (
    "polynomial",
    "row_sum",
    "softmax",
    "layer_norm",
    "add",
    "matmul",
    "matmul_fp32",
    "matmul_fp8",
    "attention",
    "attention_d64",
    "attention_mma",
    "attention_mma_d64",
    "matmul_mma",
)
WGMMA = ("matmul", "matmul_fp8", "attention", "attention_d64")


def measure(target: str, ptxas: str | None) -> dict[str, Any]:
    from tritonhook.ab_run import run, search_path, to_document
    from tritonhook.ab_worker import Plan
    from tritonhook.errors import TritonHookError
    from tritonhook.rename import Rename
    from tritonhook.report.timing import headline
    from tritonhook.toolchain import find_ptxas

    row: dict[str, Any] = {"kernel": target, "ptxas": ptxas or "Triton's"}
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            f"ab_targets:{target}",
            Path(folder),
            Rename(prefix="cutlass_"),
            ptxas=None if ptxas is None else str(find_ptxas(ptxas).path),
            path=(str(Path(__file__).parent), *search_path()),
        )
        try:
            timed = run(plan, seconds=45)
        except TritonHookError as error:
            return row | {"verdict": "error", "headline": str(error)}
    found = timed.comparison.effect() if timed.comparison.blocks else None
    return row | {
        "verdict": "same code" if found is None else timed.comparison.verdict.value,
        "headline": headline(timed),
        "ratio": found and found.ratio,
        "interval": found and [found.low, found.high],
        "reference_us": found and timed.comparison.usable[0].median_us("reference"),
        "comparison": to_document(timed),
    }


def registers(kernels: dict[str, Any], side: str) -> str:
    """Registers of each configuration of each kernel of a side."""
    return "/".join(str(c["registers"]) for entries in kernels.get(side, {}).values() for c in entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", default="", help="further versions for the wgmma kernels, e.g. 12.6.85")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", type=Path, default=RESULTS / "name_effect.json")
    arguments = parser.parse_args()
    import torch

    work: list[tuple[str, str | None]] = [(target, None) for target in TARGETS]
    work += [(target, version) for version in arguments.ptxas.split(",") if version for target in WGMMA]
    work = [item for item in work if re.search(arguments.only, item[0])]
    deadline = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = []
    for target, ptxas in work:
        if time.monotonic() > deadline:
            print("time is over")
            break
        rows.append(measure(target, ptxas))
        print(json.dumps({name: rows[-1].get(name) for name in ("kernel", "ptxas", "headline")}), flush=True)
        document = {
            "format": 1,
            "environment": environment("torch", "triton", "tritonhook") | {"gpu": torch.cuda.get_device_name()},
            "samples": rows,
            "summary": {
                "kernels": len(rows),
                **{
                    verdict.replace(" ", "_"): sum(row["verdict"] == verdict for row in rows)
                    for verdict in ("faster", "slower", "same", "same code", "inconclusive", "error")
                },
            },
        }
        write_json(arguments.out, document)
    print("|kernel|ptxas|verdict|time|registers|")
    for row in rows:
        change = "" if not row.get("ratio") else f"{(row['ratio'] - 1) * 100:+.1f}%"
        kernels = row.get("comparison", {}).get("kernels", {})
        used = f"{registers(kernels, 'reference')} -> {registers(kernels, 'candidate')}"
        print(f"|{row['kernel']}|{row['ptxas']}|{row['verdict']}|{change}|{used}|")


if __name__ == "__main__":
    main()
