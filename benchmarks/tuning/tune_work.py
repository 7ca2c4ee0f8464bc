"""The folder of a visit of tune_h200.py: rows as they come, the plan, and what was recorded."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tuning.tune_rows import lever_of
from tritonhook.capture.selection import Kernel, Launched, Skipped, kernels_in, with_shares
from tritonhook.capture.store import CaptureFolder
from tritonhook.errors import TritonHookError
from tritonhook.tuning.candidates import Candidate, Choice, kept_choice


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


class Won(NamedTuple):
    """A win whose kernels were recorded. base: the configuration that it beat; winner: the one that it is of, with the
    same arguments. Each is launched as when it won. keys: for which its autotuner chose among them."""

    row: dict[str, Any]
    folder: CaptureFolder
    base: Kernel
    winner: Kernel
    keys: tuple[tuple[str, ...], ...]

    @property
    def lever(self) -> str:
        return lever_of(self.row["winner"])

    def kept(self) -> tuple[Choice, Candidate] | None:
        """The winner's configuration and its code under the lever, as step_assemble kept them; None: it did not."""
        choice = kept_choice(self.folder, self.winner)
        code = next((one for one in choice.others if one.text == self.lever), None) if choice else None
        if choice is None or code is None:
            print(f"{self.winner.name}: {self.row['winner']} was not assembled", flush=True)
            return None
        return choice, code


def recorded_wins(options: argparse.Namespace) -> list[Won]:
    """The wins of W/wins.json whose kernels were recorded. A program that tunes itself may choose another configuration
    each time: those that lost count as well."""
    wins = json.loads((options.work / "wins.json").read_text())
    recorded: dict[str, tuple[CaptureFolder, list[Kernel]]] = {}
    for source in dict.fromkeys(win["source"] for win in wins):
        try:
            folder = CaptureFolder.open(options.work / folder_of(source))
        except TritonHookError as error:
            print(f"{source}: {error}", flush=True)
            continue
        recorded[source] = folder, [one for one in kernels_in(folder) if isinstance(one, Kernel)]
    found = [_won(win, *recorded[win["source"]]) for win in wins if win["source"] in recorded]
    for one in found:
        if isinstance(one, str):
            print(f"not recorded: {one}", flush=True)
    return [one for one in found if isinstance(one, Won)]


def _won(win: dict[str, Any], folder: CaptureFolder, kernels: Sequence[Kernel]) -> Won | str:
    told = f"{win['source']}: {win['kernel']}"
    families = [(one, *one.siblings) for one in kernels]
    pairs = ((family, one) for family in families for one in family)
    family, own = next(((f, one) for f, one in pairs if (one.name, one.ptx) == (win["kernel"], win["ptx"])), ((), None))
    if own is None:
        return told
    launched = sorted(own.launches, key=lambda one: one.summary != win["launch"])
    if launched[0].summary != win["launch"]:
        return f"{told}, launched as {win['launch']}"
    sides = [_of_config(family, own, launched, config) for config in (win["base"], win["winner"].rpartition(": ")[0])]
    base, winner = sides
    if base is None or winner is None:
        return f"{told}, one of its configurations"
    return Won(win, folder, base, winner, family[0].keys)


def _of_config(
    family: Sequence[Kernel], own: Kernel, launched: Sequence[Launched], config: str | None
) -> Kernel | None:
    """A kernel's configuration, launched with the arguments of its first launch; None where that was not recorded."""
    if config in (None, "", str(own.config)):
        return replace(own, launches=tuple(launched))
    alike = [one for one in family if str(one.config) == config]
    launches = ((one, it) for one in alike for it in one.launches if it.problem == launched[0].problem)
    found = next(launches, None)
    return replace(found[0], launches=(found[1],)) if found else None
