"""The folder of a visit of tune_h200.py: rows as they come, the plan, and what was recorded."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.tuning.tune_rows import key_of
from tritonhook.capture.selection import Kernel, Skipped, kernels_in, with_shares
from tritonhook.capture.store import CaptureFolder
from tritonhook.errors import TritonHookError


class Rows:
    """Where a step writes its rows, one a line."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._common = {"run": options.run, "part": options.part, "step": options.step}
        name = f"{options.step}-{options.run}-{options.part}"
        self._file = (options.work / "rows" / f"{name}.jsonl").open("a")

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(json.dumps(self._common | row) + "\n")
        self._file.flush()


def folder_of(source: str) -> str:
    return source.replace(" ", "-")


def source_of(folder: Path) -> str:
    return folder.name.replace("-", " ")


def timed_kernels(work: Path, source: str) -> list[Kernel | Skipped]:
    """The kernels of a source with the times that were measured."""
    path = work / folder_of(source)
    times = json.loads((work / f"{path.name}.times.json").read_text())
    folder = CaptureFolder.open(path)
    return with_shares(folder, [one for one in kernels_in(folder) if isinstance(one, Kernel)], times)


def planned_kernels(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], CaptureFolder, Kernel]]:
    """The kernels of this part in their order, each with what the plan says and its captures."""
    planned = json.loads((options.work / "plan.json").read_text())
    folders: dict[str, CaptureFolder] = {}
    kernels: dict[tuple[str, str], Kernel] = {}
    for source in dict.fromkeys(one["source"] for one in planned):
        folders[source] = CaptureFolder.open(options.work / folder_of(source))
        for kernel in timed_kernels(options.work, source):
            if isinstance(kernel, Kernel):
                kernels[source, kernel.record] = kernel
    for one in planned[options.part :: options.parts][: options.kernels]:
        yield one, folders[one["source"]], kernels[one["source"], one["record"]]


def recorded_wins(options: argparse.Namespace) -> list[tuple[dict[str, Any], CaptureFolder, Kernel]]:
    """The wins of W/wins.json whose kernels were recorded, each launched as when it won. A program that tunes itself
    may choose another configuration each time: those that lost count as well."""
    wins = json.loads((options.work / "wins.json").read_text())
    recorded: dict[tuple[str, str, str], tuple[CaptureFolder, Kernel]] = {}
    for source in dict.fromkeys(win["source"] for win in wins):
        try:
            folder = replace(CaptureFolder.open(options.work / folder_of(source)), tunings=())
        except TritonHookError as error:
            print(f"{source}: {error}", flush=True)
            continue
        kernels = (one for one in kernels_in(folder) if isinstance(one, Kernel))
        recorded |= {(source, one.name, one.ptx): (folder, one) for one in kernels}
    found = []
    for win in wins:
        if (known := recorded.get(key_of(win))) is None:
            print(f"not recorded: {win['source']}: {win['kernel']}", flush=True)
            continue
        folder, kernel = known
        launches = sorted(kernel.launches, key=lambda one: one.summary != win["launch"])
        found.append((win, folder, replace(kernel, launches=tuple(launches))))
    return found
