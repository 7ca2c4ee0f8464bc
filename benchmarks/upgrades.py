"""What do new versions of ptxas and Triton do to the kernels of public libraries? Assembled; needs no GPU.

    make upgrades
    python -m benchmarks upgrades --captures FOLDER ... [--ptxas VERSION,...] [--fetch] [--scheduler ADDRESS]
    python -m benchmarks upgrades --work DIR [--arch ARCH,...] [--triton SITE ...] [--libraries NAME ...]

FOLDER: of captures, named as their library; the captures say which Triton made them. --work makes such
folders in DIR/TRITON/ARCH/LIBRARY, by dry runs (dry_run.py) that are not repeated; SITE: a folder with another Triton.

Each PTX is assembled by each ptxas from 12.4 on that is at hand, and by the one that its Triton brought, which is the
reference. Outcomes are cached by PTX, ptxas and options: a run that was stopped goes on, and a new ptxas costs one run
for each kernel. *Worse*: more spills, stack or shared memory, or more registers where fewer blocks fit on an SM.
*Better*: the contrary, and nothing worse. Captures of one library from several versions of Triton are compared, each as
its own ptxas assembles it. --verify also emulates each folder (`tritonhook verify --cpu`), which takes hours. --onto
keeps what a result has of other libraries, targets and versions of Triton.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from benchmarks.common import coverage, environment
from benchmarks.dry_run import LIBRARIES, REPORTED, folder_of, library
from benchmarks.upgrading.audit import BETTER, WORSE, assembled, compared, read, rows_of
from tritonhook._util.versions import version_key
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.ptxas.install import add_ptxas, released_versions
from tritonhook.ptxas.pool import Limits, ResultCache
from tritonhook.ptxas.tool import Tool, available_ptxas

OLDEST = "12.4"
ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
NEEDS = ("torch", "triton")
OFFLINE = ("--captures",)
QUICK = ("--work", "{folder}/work", "--libraries", "tritonhook", "--arch", "sm_90a", "--few", "1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--captures", nargs="+", default=[], type=Path, metavar="FOLDER", help="named as libraries")
    parser.add_argument("--work", type=Path, help="make captures there, and keep them for the next run")
    parser.add_argument("--arch", default=",".join(ARCHS), help="for --work (default: %(default)s)")
    parser.add_argument(
        "--triton", nargs="+", default=[], metavar="SITE", help="for --work: further versions of Triton"
    )
    names = [*LIBRARIES, REPORTED]
    parser.add_argument("--libraries", nargs="+", default=names, choices=names, metavar="NAME", help="for --work")
    parser.add_argument("--few", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ptxas", help="versions, with commas (default: all at hand from 12.4 on)")
    parser.add_argument("--fetch", action="store_true", help="first fetch the newest ptxas of each CUDA from 12.4 on")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="run on the workers of this Dask scheduler")
    parser.add_argument("--jobs", type=int, metavar="N", help="ptxas runs at the same time (default: processors + 10)")
    parser.add_argument("--cache", type=Path, help="keep outcomes there (default: the user's cache)")
    parser.add_argument("--verify", action="store_true", help="emulate the kernels too, under the newest ptxas")
    parser.add_argument(
        "--onto", type=Path, metavar="FILE", help="a result, whose other libraries and targets are kept"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    folders = [*arguments.captures, *(made(arguments) if arguments.work else ())]
    if not folders:
        sys.exit("upgrades: give --captures FOLDER, or --work DIR to make some")
    kernels = [kernel for folder in folders for kernel in read(folder)]
    if arguments.fetch:
        fetch({str(kernel.capture.assembler.version) for kernel in kernels})
    tools = ptxas_of(arguments.ptxas)
    options = Sweep(jobs=arguments.jobs, dask=arguments.scheduler, time_limit=Limits().seconds, no_cache=False)
    with running(options, ResultCache(arguments.cache)) as (go, expect):
        found = assembled(kernels, tools, go, expect)
        rows = rows_of(found, [tool.version for tool in tools], go, expect)
        counts, upgrades = compared(found, go)
    verified = verdicts(folders, tools[-1].version) if arguments.verify else {}
    samples = {"kernels": rows, "triton_counts": counts, "triton": upgrades, "verified": verified}
    if arguments.onto:
        samples = onto(json.loads(arguments.onto.read_text())["samples"], samples)
    return {
        "what": "kernels of libraries under versions of ptxas and Triton",
        "summary": summary(samples),
        "environment": environment("tritonhook"),
        "ptxas": [tool.version for tool in tools],
        "corpus": corpus(samples["kernels"]),
        "columns": ["verdict", "code_bytes", "ptxas_cpu_ms", "other figures"],
        "samples": samples,
    }


def onto(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """New samples, and those old ones that are of other libraries, targets or versions of Triton."""

    def group(row: dict[str, str]) -> tuple[str | None, ...]:
        return tuple(row.get(name) for name in ("library", "arch", "triton", "from", "to"))

    made = {group(row) for name in ("kernels", "triton_counts") for row in new[name]}
    tables = ("kernels", "triton_counts", "triton")
    kept = {name: [row for row in old[name] if group(row) not in made] for name in tables}
    return {name: kept[name] + new[name] for name in tables} | {"verified": old["verified"] | new["verified"]}


def ptxas_of(text: str | None) -> list[Tool]:
    """One ptxas for each version wanted, the oldest first."""
    tools = {tool.version: tool for tool in reversed(list(available_ptxas()))}
    versions = text.split(",") if text else [it for it in tools if version_key(it) >= version_key(OLDEST)]
    if absent := sorted(set(versions) - set(tools)):
        sys.exit(f"upgrades: ptxas {', '.join(absent)} is not here; `tritonhook ptxas add VERSION` fetches it")
    return [tools[it] for it in sorted(versions, key=version_key)]


def fetch(references: set[str]) -> None:
    """Fetch the newest ptxas of each CUDA, and those that the kernels' own compilers brought."""
    newest: dict[tuple[int, ...], str] = {}
    for released in sorted(released_versions(), key=version_key):
        if version_key(released) >= version_key(OLDEST):
            newest[version_key(released)[:2]] = released
    at_hand = {tool.version for tool in available_ptxas()}
    for absent in sorted({*newest.values(), *references} - at_hand, key=version_key):
        print(f"fetching ptxas {absent}", file=sys.stderr)
        add_ptxas(absent)


def made(arguments: argparse.Namespace) -> list[Path]:
    """Folders of captures, by dry runs: those that have a kernel."""
    sites = {version("triton"): None}
    for site in arguments.triton:
        sites |= {one.version: site for one in distributions(name="triton", path=[site])}
    folders = []
    for triton, site in sites.items():
        for arch in arguments.arch.split(","):
            work = (arguments.work / triton / arch).resolve()
            work.mkdir(parents=True, exist_ok=True)
            for name in arguments.libraries:
                row = library(name, work, arguments.few, arch, site)
                failed = f", {len(row['failed'])} of {row['programs']} programs failed" if row["failed"] else ""
                print(f"Triton {triton}, {arch}, {name}: {row['kernels']} kernels{failed}", file=sys.stderr)
                if row["kernels"]:
                    folders.append(folder_of(work, name))
    return folders


def verdicts(folders: Sequence[Path], newest: str) -> dict[str, dict[str, int]]:
    """What `verify --cpu` says of the kernels of each folder, under their own ptxas and the newest."""
    from benchmarks.lock import verb

    found = {}
    for folder in folders:
        counts = verb("verify", "--cpu", folder, "--against", newest)["counts"]
        found["/".join(folder.resolve().parts[-3:])] = {verdict: count for verdict, count in counts.items() if count}
    return found


def corpus(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many kernels of each library, target and Triton."""
    counts = Counter((row["library"], row["arch"], row["triton"]) for row in rows)
    return [
        {"library": name, "arch": arch, "triton": triton, "kernels": number}
        for (name, arch, triton), number in sorted(counts.items())
    ]


def summary(samples: dict[str, Any]) -> dict[str, Any]:
    rows = samples["kernels"]
    cells = Counter(cell[0] for row in rows for cell in row["by"].values())
    verified = sum((Counter(counts) for counts in samples["verified"].values()), Counter[str]())
    tried = coverage(sum(cells.values()), {"this ptxas does not assemble the PTX": cells["failed"]})
    return tried | {
        "kernels": len(rows),
        "distinct_kernels": len({(row["library"], row["kernel"]) for row in rows}),
        "libraries": len({row["library"] for row in rows}),
        "archs": len({row["arch"] for row in rows}),
        "tritons": len({row["triton"] for row in rows}),
        "assembled": sum(cells.values()) - cells["failed"],
        "worse": cells[WORSE],
        "better": cells[BETTER],
        "worse_by_triton": sum(row["verdict"] == WORSE for row in samples["triton"]),
        "verified": dict(verified.most_common()),
    }
