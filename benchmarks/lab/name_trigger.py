"""Which kernels change with their name: every family and shape, on every architecture, under every ptxas at hand.

    python -m benchmarks name_trigger [--out FILE] [--jobs N] [--dask ADDRESS]

Assembled only: it says nothing about speed. `tritonhook ptxas add` more versions first; 12.8.93 and 12.9.86 come with
Triton 3.6. Names: the trigger in three places, in other case, in part, and some other words, each beside a control of
equal length; all of tritonhook's names on a plain loop and a loop of mma.sync. Results are cached ($TRITONHOOK_CACHE):
an interrupted run continues where it stopped.

Summary: of `cells` (kernel, name, ptxas, architecture), `cells_compared` could be assembled, `cells_changed` differ
from their control, `crashes` of these by a crash of ptxas under the name only; `cells_unsteady` blame ptxas rather than
the name. `samples` has the cells of the first name in full, `records` a sign and digests for every cell.
docs/explanation/cutlass-name.md shows the result.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any

from benchmarks.common import coverage, environment

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
NAMES = ("cutlass_*", "*_cutlass", "_ZN7cutlass6kernelEv", "Cutlass_*", "CUTLASS_*", "cutlas_*", "cublas_*", "gemm_*")
ALL_NAMES_ON = ("fma/loop", "mma_f16/loop")  # kernels that get every name tritonhook knows
TRIGGER = NAMES[0]
MOST: int | None = None  # families
SHAPES = ("straight", "loop", "nested", "softmax")
BARE = "tcgen05_bare/loop"
LEVEL_VERSIONS = ("12.0.140", "12.8.93", "13.5.37")
CAPMERC = ".nv.capmerc.text.{kernel}"


SMALL = {"ARCHS": ("sm_90a",), "NAMES": NAMES[:1], "SHAPES": ("loop",), "ALL_NAMES_ON": (), "MOST": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--dask")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.cli._sweeps import Sweep, running, wanted_tools
    from tritonhook.lab.name_probe import newest_versions
    from tritonhook.ptxas.pool import ResultCache

    tools, cache = wanted_tools(("all",))[-1 if arguments.quick else 0 :], ResultCache()
    settings = Sweep(time_limit=120.0, jobs=arguments.jobs, dask=arguments.dask, no_cache=False)
    with running(settings, cache) as (go, expect):
        expect(len(tools))
        lab = Lab(tools, newest_versions(tools, go), go, expect, cache)
        cells = lab.table()
        levels = lab.levels()
    return {
        "environment": environment("tritonhook", "nvidia-cuda-nvdisasm"),
        "names": list(NAMES),
        "kernels_of_all_names": list(ALL_NAMES_ON),
        "summary": {
            "ptxas_versions": [tool.version for tool in tools],
            "archs": list(ARCHS),
            "families": [family.name for family in families()],
            **counts(cells),
        },
        "by_name": by_name(cells),
        "by_level": by_level(levels),
        "control_same_code_at_O2_and_O3": same_code(levels, "-O2", "-O3"),
        "samples": samples(cells),
        "records": records(cells),
    }


def families() -> Sequence[Any]:
    from tritonhook.lab.kernels.families import FAMILIES

    return FAMILIES[:MOST]


@dataclass(frozen=True)
class Lab:
    """The tools, and how to run jobs."""

    tools: list[Any]
    newest: dict[str, str]
    go: Any
    expect: Any
    cache: Any

    def table(self) -> list[Any]:
        """Every kernel under NAMES, some under all names."""
        from tritonhook.cli.lab.probe import family_kernel
        from tritonhook.lab.name_templates import DEFAULT_NAMES

        kernels = [family_kernel(family, shape) for family in families() for shape in SHAPES] + [bare_kernel()]
        cells = self.cells(kernels, NAMES)
        every = [kernel for kernel in kernels if kernel.label in ALL_NAMES_ON]
        return cells + self.cells(every, [name for name in DEFAULT_NAMES if name not in NAMES])

    def levels(self) -> list[Any]:
        """The loops of all families at each -O level, under the trigger."""
        from tritonhook.cli.lab.probe import family_kernel

        loops = [family_kernel(family, "loop") for family in families()]
        return self.cells(
            loops, [TRIGGER], [t for t in self.tools if t.version in LEVEL_VERSIONS], ("0", "1", "2", "3")
        )

    def cells(self, kernels: Any, names: Any, tools: Any = None, levels: tuple[str, ...] = ()) -> list[Any]:
        from tritonhook.lab.name_probe import probe, setups
        from tritonhook.ptxas.tool import find_nvdisasm

        chosen = list(setups(kernels, tools or self.tools, ARCHS, levels, self.newest))
        return list(probe(chosen, names, self.go, find_nvdisasm(), self.expect, self.cache))


def bare_kernel() -> Any:
    """The published kernel that some ptxas crash on; no family has an MMA without a warp's predicate."""
    from tritonhook.lab.name_probe import ProbedKernel
    from tritonhook.lab.published_table import condition

    module = condition("bare").ptx("kernel")
    kernel = ProbedKernel.of(BARE, module, "kernel", ("-v",))
    return replace(kernel, ptx=lambda arch: kernel.ptx(arch) if arch in ("sm_100a", "sm_103a") else None)


def by_level(cells: list[Any]) -> dict[str, list[int]]:
    """Per -O level: cells changed, cells compared."""
    from tritonhook.lab.name_probe import NameVerdict

    rows: dict[str, list[int]] = {}
    for cell in cells:
        row = rows.setdefault(cell.setup.options[-1], [0, 0])
        row[0] += cell.verdict is NameVerdict.CHANGED
        row[1] += cell.verdict is not NameVerdict.NO_ANSWER
    return dict(sorted(rows.items()))


def same_code(cells: list[Any], a: str, b: str) -> list[int]:
    """How many kernels get the same code from both levels under the control name, and how many there are in all."""
    codes: dict[Any, dict[str, str]] = {}
    for cell in cells:
        if cell.controlled.image is not None:
            place = (cell.setup.kernel, cell.setup.arch, cell.setup.ptxas)
            codes.setdefault(place, {})[cell.setup.options[-1]] = cell.controlled.image.kernel(cell.control).code_sha256
    return [sum(code[a] == code[b] for code in codes.values()), len(codes)]


def counts(cells: list[Any]) -> dict[str, int]:
    from tritonhook.lab.name_probe import NameVerdict

    found = Counter(cell.verdict for cell in cells)
    with_capmerc = [cell for cell in cells if cell.verdict is NameVerdict.CHANGED and CAPMERC in cell.section_changes]
    not_compared = {"not assembled under both names": found[NameVerdict.NO_ANSWER]}
    return coverage(len(cells), not_compared) | {
        "cells": len(cells),
        "cells_compared": len(cells) - found[NameVerdict.NO_ANSWER],
        "cells_changed": found[NameVerdict.CHANGED],
        "cells_unsteady": found[NameVerdict.UNSTEADY],
        "crashes": sum(cell.is_crash for cell in cells),
        "code_changed": sum("code" in c.differences for c in cells if c.verdict is NameVerdict.CHANGED),
        "capmerc_changed": len(with_capmerc),
        "capmerc_changed_alone": sum("code" not in c.differences for c in with_capmerc),
        "other_scheduler_taken": sum(c.other_scheduler[0] is True for c in cells if c.verdict is NameVerdict.CHANGED),
    }


def by_name(cells: list[Any]) -> dict[str, list[int]]:
    """Per name: cells changed, cells compared."""
    from tritonhook.lab.name_probe import NameVerdict

    changed = Counter(cell.template for cell in cells if cell.verdict is NameVerdict.CHANGED)
    compared = Counter(cell.template for cell in cells if cell.verdict is not NameVerdict.NO_ANSWER)
    return {name: [changed[name], compared[name]] for name in dict.fromkeys(cell.template for cell in cells)}


def records(cells: list[Any]) -> dict[str, dict[str, list[str]]]:
    """Every cell, per kernel and architecture, for each ptxas: a sign for each name in the order of `by_name`, a blank
    where it was not asked; for each name a letter, a for the first of the digests that follow; and these, each once: a
    digest of the code under the name, or "name/control" where they differ; "" without code."""
    from tritonhook.report.results.probe import SweptCell

    order = {name: number for number, name in enumerate(by_name(cells))}
    rows: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        place = rows.setdefault(f"{cell.setup.kernel} {cell.setup.arch}", {})
        row, number = place.setdefault(cell.setup.ptxas, ["", ""]), order[cell.template]
        sides = ((cell.named, cell.name), (cell.controlled, cell.control))
        digests = [image.kernel(name).code_sha256[:8] if (image := side.image) else "" for side, name in sides]
        digest = digests[0] if digests[0] == digests[1] else "/".join(digests)
        if digest not in row[2:]:
            row.append(digest)
        letter = ascii_lowercase[row.index(digest, 2) - 2]
        for column, sign in enumerate((SweptCell.of(cell).sign, letter)):
            row[column] = row[column].ljust(number)[:number] + sign + row[column][number + 1 :]
    return rows


def samples(cells: list[Any]) -> dict[str, dict[str, list[Any]]]:
    """Under the trigger's prefix, per kernel and architecture, for each ptxas: the sign, what differs, whether the
    other scheduler was taken, and [control, name] of code bytes, registers and bytes of .nv.capmerc."""
    from tritonhook._util.versions import version_key
    from tritonhook.report.results.probe import SweptCell

    rows: dict[str, dict[str, list[Any]]] = {}
    chosen = [cell for cell in cells if cell.template == TRIGGER]
    for cell in sorted(chosen, key=lambda c: (c.setup.kernel, ARCHS.index(c.setup.arch), version_key(c.setup.ptxas))):
        row: list[Any] = [SweptCell.of(cell).sign]
        if cell.differences:
            row += [list(cell.differences), cell.other_scheduler[0], pairs(cell)]
        rows.setdefault(f"{cell.setup.kernel} {cell.setup.arch}", {})[cell.setup.ptxas] = row
    return rows


def pairs(cell: Any) -> dict[str, list[Any]] | None:
    if cell.named.image is None or cell.controlled.image is None:
        return None
    both = (cell.controlled.image.kernel(cell.control), cell.named.image.kernel(cell.name))
    capmerc = [dict(image.sections).get(CAPMERC) for image in (cell.controlled.image, cell.named.image)]
    return {
        "code_bytes": [k.code_bytes for k in both],
        "registers": [k.registers for k in both],
        "file_bytes": [cell.controlled.image.file_bytes, cell.named.image.file_bytes],
        "capmerc_bytes": capmerc,
    }
