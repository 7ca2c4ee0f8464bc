"""Which kernels change with their name: every family and shape, on every architecture, under every ptxas at hand.

    python benchmarks/name_trigger.py [--out FILE] [--jobs N] [--dask ADDRESS]

Assembled only: it says nothing about speed. `tritonhook ptxas add` more versions first; 12.8.93 and 12.9.86 come with
Triton 3.6. Names: the trigger in three places, in other case, in part, and some other words, each beside a control of
equal length; all of tritonhook's names on a plain loop and a loop of mma.sync. Results are kept ($TRITONHOOK_CACHE), so
that an interrupted run goes on where it stopped.

Summary: of `cells` (kernel, name, ptxas, architecture), `cells_compared` could be assembled, `cells_changed` differ
from their control, `crashes` of these by a crash of ptxas under the name only; `cells_unsteady` blame ptxas rather than
the name. Prints the README's table and the larger one of docs/ptxas-lab.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from _common import RESULTS, environment, write_json

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
NAMES = ("cutlass_*", "*_cutlass", "_ZN7cutlass6kernelEv", "Cutlass_*", "CUTLASS_*", "cutlas_*", "cublas_*", "gemm_*")
ALL_NAMES_ON = ("fma/loop", "mma_f16/loop")  # kernels that get every name tritonhook knows
TRIGGER = NAMES[0]
CAPMERC = ".nv.capmerc.text.{kernel}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "name_trigger.json")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--dask")
    arguments = parser.parse_args()
    cells, families, versions = measure(arguments)
    document = {
        "format": 1,
        "environment": environment("tritonhook", "nvidia-cuda-nvdisasm"),
        "names": list(NAMES),
        "summary": {
            "ptxas_versions": versions,
            "archs": list(ARCHS),
            "families": families,
            **counts(cells),
        },
        "by_name": by_name(cells),
        "samples": samples(cells),
    }
    write_json(arguments.out, document)
    print(readme_table(document), matrix(document), document["summary"], f"wrote {arguments.out}", sep="\n\n")


def measure(arguments: argparse.Namespace) -> tuple[list[Any], list[str], list[str]]:
    from tritonhook.cli.probe import family_subject, running, wanted_tools
    from tritonhook.families import FAMILIES, SHAPES
    from tritonhook.names import DEFAULT_NAMES
    from tritonhook.probe import benches, newest_versions, probe
    from tritonhook.toolchain import find_nvdisasm

    tools = wanted_tools(("all",))
    settings = argparse.Namespace(no_cache=False, time_limit=120.0, jobs=arguments.jobs, dask=arguments.dask)
    subjects = [family_subject(family, shape) for family in FAMILIES for shape in SHAPES]
    every = [subject for subject in subjects if subject.label in ALL_NAMES_ON]
    cells = []
    with running(settings) as (go, expect):
        newest = newest_versions(tools, go)
        work = [
            (list(benches(subjects, tools, ARCHS, newest=newest)), NAMES),
            (list(benches(every, tools, ARCHS, newest=newest)), tuple(n for n in DEFAULT_NAMES if n not in NAMES)),
        ]
        for places, names in work:
            cells += probe(places, names, go, find_nvdisasm(), expect)
    return cells, [family.name for family in FAMILIES], [tool.version for tool in tools]


def counts(cells: list[Any]) -> dict[str, int]:
    from tritonhook.probe import Verdict
    from tritonhook.report.probe import is_crash

    found = Counter(cell.verdict for cell in cells)
    with_capmerc = [cell for cell in cells if cell.verdict is Verdict.CHANGED and CAPMERC in cell.section_changes]
    return {
        "cells": len(cells),
        "cells_compared": len(cells) - found[Verdict.NO_ANSWER],
        "cells_changed": found[Verdict.CHANGED],
        "cells_unsteady": found[Verdict.UNSTEADY],
        "crashes": sum(map(is_crash, cells)),
        "code_changed": sum("code" in c.differences for c in cells if c.verdict is Verdict.CHANGED),
        "capmerc_changed": len(with_capmerc),
        "capmerc_changed_alone": sum("code" not in c.differences for c in with_capmerc),
        "other_scheduler_taken": sum(c.other_scheduler[0] is True for c in cells if c.verdict is Verdict.CHANGED),
    }


def by_name(cells: list[Any]) -> dict[str, list[int]]:
    """Per name: cells changed, cells compared."""
    from tritonhook.probe import Verdict

    changed = Counter(cell.template for cell in cells if cell.verdict is Verdict.CHANGED)
    compared = Counter(cell.template for cell in cells if cell.verdict is not Verdict.NO_ANSWER)
    return {name: [changed[name], compared[name]] for name in dict.fromkeys(cell.template for cell in cells)}


def samples(cells: list[Any]) -> dict[str, dict[str, list[Any]]]:
    """Under the trigger's prefix, per kernel and architecture, for each ptxas: the sign, what differs, whether the
    other scheduler was taken, and [control, name] of code bytes, registers and bytes of .nv.capmerc."""
    from tritonhook.report.probe import sign, version_key

    rows: dict[str, dict[str, list[Any]]] = {}
    chosen = [cell for cell in cells if cell.template == TRIGGER]
    for cell in sorted(chosen, key=lambda c: (c.place.kernel, ARCHS.index(c.place.arch), version_key(c.place.ptxas))):
        row: list[Any] = [sign([cell])]
        if cell.differences:
            row += [list(cell.differences), cell.other_scheduler[0], pairs(cell)]
        rows.setdefault(f"{cell.place.kernel} {cell.place.arch}", {})[cell.place.ptxas] = row
    return rows


def pairs(cell: Any) -> dict[str, list[Any]] | None:
    if cell.named.facts is None or cell.controlled.facts is None:
        return None
    both = (cell.controlled.facts.kernel(cell.control), cell.named.facts.kernel(cell.name))
    capmerc = [dict(facts.sections).get(CAPMERC) for facts in (cell.controlled.facts, cell.named.facts)]
    return {
        "code_bytes": [k.code_bytes for k in both],
        "registers": [k.registers for k in both],
        "file_bytes": [cell.controlled.facts.file_bytes, cell.named.facts.file_bytes],
        "capmerc_bytes": capmerc,
    }


# --- tables, from the document alone -------------------------------------------------------------


def readme_table(document: dict[str, Any]) -> str:
    """Families by architecture, the shapes that change."""
    lines = ["| family | " + " | ".join(ARCHS) + " |", "|---" * (len(ARCHS) + 1) + "|"]
    for family in document["summary"]["families"]:
        cells = [readme_cell(document["samples"], family, arch) for arch in ARCHS]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def readme_cell(rows: dict[str, dict[str, list[Any]]], family: str, arch: str) -> str:
    """Shapes with how many of the ptxas versions that assemble them give other code: "loop, nested 9/9"."""
    found: dict[str, list[str]] = {}
    for shape in ("straight", "loop", "nested", "softmax"):
        signs = [row[0] for row in rows.get(f"{family}/{shape} {arch}", {}).values() if row[0] != "-"]
        if not signs:
            continue
        changed, crashed = sum(s in "DX" for s in signs), sum(s == "X" for s in signs)
        share = f"{changed}/{len(signs)}" + (f" ({crashed} crash)" if crashed else "")
        if changed:
            found.setdefault(share, []).append(shape)
    if found:
        return "; ".join(f"{', '.join(shapes)} {share}" for share, shapes in found.items())
    has = any(row[0] != "-" for key, r in rows.items() if key.split("/")[0] == family and key.endswith(f" {arch}")
              for row in r.values())  # fmt: skip
    return "none" if has else ""


def matrix(document: dict[str, Any]) -> str:
    """Kernels and architectures by ptxas version; rows that are alike stand together."""
    versions = document["summary"]["ptxas_versions"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, row in document["samples"].items():
        signs = tuple(row[version][0] if version in row else "" for version in versions)
        if set(signs) <= {"-", ""}:
            continue
        groups.setdefault((key.split(" ")[1], *signs), []).append(key.split(" ")[0])
    lines = ["| target | kernels | " + " | ".join(versions) + " |", "|---" * (len(versions) + 2) + "|"]
    for (arch, *signs), kernels in sorted(groups.items(), key=lambda item: ARCHS.index(item[0][0])):
        lines.append(f"| {arch} | {shortened(kernels)} | " + " | ".join(signs) + " |")
    return "\n".join(lines)


def shortened(kernels: list[str]) -> str:
    """`fma/loop, fma/nested, tma/loop` as `fma (loop, nested), tma (loop)`."""
    shapes: dict[str, list[str]] = {}
    for kernel in kernels:
        family, shape = kernel.split("/")
        shapes.setdefault(family, []).append(shape)
    order = ("straight", "loop", "nested", "softmax")
    groups: dict[tuple[str, ...], list[str]] = {}
    for family, found in shapes.items():
        groups.setdefault(tuple(sorted(found, key=order.index)), []).append(family)
    return "; ".join(f"{', '.join(families)}: {', '.join(found)}" for found, families in groups.items())


if __name__ == "__main__":
    main()
