"""Dry runs of libraries of Triton kernels: what compiles without a GPU, how fast, and whether it is the GPU's PTX.

    pip install torch liger-kernel fla-core flag_gems conch-triton-kernels mamba-ssm cut-cross-entropy flash-attn
        sageattention bitsandbytes torchao gemlite
    TRITON_TUTORIALS=FOLDER python -m benchmarks dry_run [--work DIR] [--only GROUP ...] [--out FILE]

Needs no GPU; torch's CPU build is enough. The programs are those of dry_programs.py, in small shapes, the first
configuration of each autotuned kernel. `real`: the programs of tune_h200 with its shapes, in all configurations, in
tensors without memory; the hashes of their PTX are looked for among these. A row of tune_h200 has the same
configuration where a dry launch has the same kernel, grid, block and arguments; how many stages it had is not known.
`refused`: the library itself ends these programs, for this Triton on this GPU. `compile_seconds`: of Triton and ptxas,
as captured. `processes_waiting`: of the whole machine, when the row was done; above the number of cores, times are too
long. Seconds of the summary are of all rows; `not_emulated` and `program_seconds` leave the emulated one out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, RESULTS, coverage, environment
from tritonhook.capture.store import CaptureFolder
from tritonhook.ptx.normal_form import normal_sha256

ARCH = "sm_90a"
VALUES = "flag_gems-values"  # its programs assert what their kernels store: each launch is executed on the CPU
# The library raises RuntimeError for Triton 3.4 to 3.7.0 on Hopper, on a GPU too: its issue 640.
REFUSED = frozenset(f"{name}.chunk_{name}" for name in ("simple_gla", "gated_delta_rule", "comba"))
LIBRARIES: dict[str, tuple[str, ...]] = {
    "Triton's tutorials": ("tutorials",),
    "tritonhook": ("targets", "gluon"),
    "torch.compile": ("block",),
    "liger-kernel": ("liger",),
    "fla-core": ("fla-1", "fla-2", "fla-3", "fla-4"),
    "flag_gems": ("flag_gems",),
    "flag_gems, emulated": (VALUES,),
    "conch-triton-kernels": ("conch",),
    "mamba-ssm": ("mamba",),
    "cut-cross-entropy": ("cut_cross_entropy",),
    "flash-attn": ("flash_attn",),
    "sageattention": ("sageattention",),
    "bitsandbytes": ("bitsandbytes",),
    "torchao": ("torchao",),
    "gemlite": ("gemlite",),
}
REAL = {"liger": ("liger",), "fla": ("fla-1", "fla-2", "fla-3", "fla-4"), "tutorials": ("tutorials",)}
LIMIT_S = 2400  # of one group
REPORTED, REAL_SHAPES = "reported regressions", ", real shapes"
PROGRAMS = LIBRARIES | {REPORTED: ("reported",)} | {f"{name}{REAL_SHAPES}": groups for name, groups in REAL.items()}


def dry_run(
    group: str, out: Path, real: bool, few: int | None, arch: str = ARCH, site: str | None = None
) -> dict[str, Any]:
    """Run a group dry, in a process of its own. site: where another Triton is. Returns its programs and what the run
    took."""
    own = (
        ["--autotune", "all", "--memory", "none", "--gpu", "H200", "--ptxas-limit", "60"] if real else ["--arch", arch]
    )
    own += ["--emulate"] if group == VALUES else []
    words = ["run", *own, "--out", str(out), "-m", "benchmarks", "dry_programs", group]
    words += [*(["--real"] if real else []), *(["--few", str(few)] if few else [])]
    paths = [site, str(REPOSITORY), os.environ.get("PYTHONPATH")]
    variables = {"TRITON_CACHE_DIR": f"{out}.cache-{group}", "PYTHONPATH": ":".join(filter(None, paths))}
    variables["FLAGGEMS_CACHE_DIR"] = f"{out}.gems-{group}"  # it keeps what it takes for times
    started = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "tritonhook", *words]
    with Path(f"{out}-{group}.log").open("wb") as log:
        done = subprocess.run(
            command, env=os.environ | variables, stdout=subprocess.PIPE, stderr=log, timeout=LIMIT_S, cwd=REPOSITORY
        )
    programs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"program"')]
    if not programs:
        tail = Path(f"{out}-{group}.log").read_text().strip().splitlines()[-1:]
        programs = [{"program": group, "seconds": 0.0, "why": "".join(tail)[:200]}]
    return {"group": group, "seconds": time.perf_counter() - started, "programs": programs}


def library(name: str, work: Path, few: int | None, arch: str = ARCH, site: str | None = None) -> dict[str, Any]:
    """One row: what the programs of a library gave; kept in `work` for the next run. site: where another Triton is."""
    out = folder_of(work, name)
    if (kept := Path(f"{out}.json")).exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    runs = [dry_run(group, out, name.endswith(REAL_SHAPES), few, arch, site) for group in PROGRAMS[name]]
    programs = [{"group": one["group"], **program} for one in runs for program in one["programs"]]
    folder = CaptureFolder.open(out) if out.is_dir() else None
    records = folder.records if folder else []
    ended = [{name: one[name] for name in ("group", "program", "why")} for one in programs if one["why"]]
    row = {
        "library": name,
        "programs": len(programs),
        "failed": [one for one in ended if one["program"] not in REFUSED],
        "refused": [one for one in ended if one["program"] in REFUSED],
        "launches": sum(one.count or 0 for record in records for one in (folder.launches(record) if folder else ())),
        "kernels": len(records),
        "seconds": sum(one["seconds"] for one in runs),
        "program_seconds": sum(one["seconds"] for one in programs),
        "compile_seconds": sum(sum(folder.compile_us(one).values()) for one in records) / 1e6 if folder else 0.0,
        "processes_waiting": os.getloadavg()[0],
        "mb": sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6 if folder else 0.0,
        "notes": list(folder.notes) if folder else [],
    }
    kept.write_text(json.dumps(row))
    return row


def folder_of(work: Path, name: str) -> Path:
    return work / name.replace(" ", "_").replace("'", "").replace(",", "")


def against_gpu(work: Path) -> list[dict[str, Any]]:
    """Each kernel that tune_h200 raced on a GPU: whether a dry run's PTX is the same."""
    rows = json.loads((RESULTS / "tune_h200.json").read_text())["kernels"]
    found = []
    for source in REAL:
        out = folder_of(work, f"{source}{REAL_SHAPES}")
        if not out.is_dir():
            continue
        folder, hashes, launches = CaptureFolder.open(out), set(), set()
        for record in folder.records:
            capture = folder.capture(record)
            hashes.add((capture.kernel, normal_sha256(capture.ptx.text, capture.kernel)))
            launches |= {(capture.kernel, one.launch.summary) for one in folder.launches(record)}
        for row in {(one["kernel"], one["ptx"]): one for one in rows if one["source"] == source}.values():
            is_equal = (row["kernel"], row["ptx"]) in hashes
            is_same = is_equal or (row["kernel"], row["launch"]) in launches
            found.append({"source": source, "kernel": row["kernel"], "same_configuration": is_same, "equal": is_equal})
    return found


NEEDS = ("torch", "triton")
QUICK = ("--only", "tritonhook", "--few", "2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--work", type=Path, help="keep captures and rows there, for the next run")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="LIBRARY",
        choices=list(PROGRAMS),
        default=[name for name in PROGRAMS if name != REPORTED],
    )
    parser.add_argument(
        "--stopped", nargs="+", metavar="LIBRARY", choices=list(PROGRAMS), default=[], help="whose kept run was stopped"
    )
    parser.add_argument("--few", type=int, metavar="N", help="the first N programs of each group only")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        rows = []
        for name in arguments.only:
            rows.append(library(name, work, arguments.few) | {"stopped": name in arguments.stopped})
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "notes"}), file=sys.stderr)
        gpu = against_gpu(work)
    return {
        "what": "programs of libraries of Triton kernels in dry runs, and their PTX against that of a GPU",
        "summary": summary(rows, gpu),
        "environment": environment("triton", "torch", "liger-kernel", "fla-core", "flag_gems", "tritonhook"),
        "samples": {"libraries": rows, "against_gpu": gpu},
    }


def summary(rows: list[dict[str, Any]], gpu: list[dict[str, Any]]) -> dict[str, Any]:
    small = [row for row in rows if row["library"] in LIBRARIES]
    compiled = [row for row in small if LIBRARIES[row["library"]] != (VALUES,)]
    kernels = sum(row["kernels"] for row in small)
    same = [row for row in gpu if row["same_configuration"]]
    refused = sum(len(row["refused"]) for row in small)

    def by_compile(name: str, rows: list[dict[str, Any]]) -> float | None:
        spent = sum(row["compile_seconds"] for row in rows)
        return sum(row[name] for row in rows) / spent if spent else None

    return coverage(sum(row["programs"] for row in small), {"refused by their library": refused}) | {
        "libraries": len(compiled),
        "programs": sum(row["programs"] for row in small),
        "failed_programs": sum(len(row["failed"]) for row in small),
        "refused_programs": refused,
        "kernels": kernels,
        "launches": sum(row["launches"] for row in small),
        "kernels_of_gpu": len(gpu),
        "kernels_of_gpu_same_configuration": len(same),
        "ptx_equal_to_gpu_ratio": sum(row["equal"] for row in same) / len(same) if same else None,
        "seconds_per_kernel": sum(row["seconds"] for row in small) / kernels if kernels else None,
        "seconds_by_compile_seconds": by_compile("seconds", small),
        "seconds_by_compile_seconds_not_emulated": by_compile("seconds", compiled),
        "program_seconds_by_compile_seconds": by_compile("program_seconds", compiled),
    }
