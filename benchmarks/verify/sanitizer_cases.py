"""Who finds what: the sanitizer of `emulate` and NVIDIA's Compute Sanitizer, on small kernels with and without a fault.

    python -m benchmarks sanitizer_cases FOLDER [--out FILE]

FOLDER has a KERNEL.ptx and a KERNEL.json (its launch) for each, `verdicts.json` (by kernel: "faulty", and which "kind")
and `compute_sanitizer_h100.json` (by kernel and tool: "found"). Needs no GPU: what Compute Sanitizer found is recorded.
A kernel is *found* if it is faulty and has a finding, *missed* if it is faulty and has none, *false* if it is healthy
and has one.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import environment

NEEDS = ("numpy",)
QUICK = ("{folder}",)
LIMIT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="KERNEL")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    verdicts, others = (
        json.loads(path.read_bytes()) if (path := arguments.folder / name).is_file() else {}
        for name in ("verdicts.json", "compute_sanitizer_h100.json")
    )
    rows = []
    for name, verdict in sorted(verdicts.items()):
        if arguments.only and name not in arguments.only:
            continue
        texts = _findings(arguments.folder, name)
        row = {
            "kernel": name,
            "kind": verdict["kind"],
            "emulate": _verdict(verdict["faulty"], bool(texts)),
            "compute_sanitizer": _verdict(verdict["faulty"], any(one["found"] for one in others[name].values())),
            "finding": texts[0] if texts else "",
        }
        rows.append(row)
        print("  ".join((f"{name:42}", f"{row['emulate']:7}", f"{row['compute_sanitizer']:7}", row["finding"][:120])))
    return {
        "evidence": "emulated",
        "environment": environment("tritonhook", "numpy"),
        "summary": {
            f"{tool}_{verdict}": number
            for tool in ("emulate", "compute_sanitizer")
            for verdict, number in sorted(Counter(row[tool] for row in rows).items())
        },
        "samples": rows,
    }


def _verdict(is_faulty: bool, is_found: bool) -> str:
    if is_faulty:
        return "found" if is_found else "missed"
    return "false" if is_found else "passed"


def _findings(folder: Path, name: str) -> list[str]:
    from tritonhook.capture.launches.contents import RECORDED
    from tritonhook.capture.store import read_launch
    from tritonhook.ptx.module import Ptx
    from tritonhook.verify.cpu import ExecutionSettings, sanitized
    from tritonhook.verify.differential import case_of
    from tritonhook.verify.judgement import latitude_of

    ptx = Ptx((folder / f"{name}.ptx").read_text())
    case = case_of(ptx.only_entry(None), read_launch(folder / f"{name}.json"), folder, ptx, latitude_of(ptx))
    done = sanitized(case, ptx, ExecutionSettings(RECORDED, limit_s=LIMIT_S))
    return [f"{one.kind}: {one.text}" for one in done.findings]
