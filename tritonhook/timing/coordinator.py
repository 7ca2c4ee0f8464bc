"""A timed comparison from start to verdict: several fresh processes on one GPU, block by block in turn.

Each process (worker.py) has its own addresses for code and buffers; a single process can favour a side by them.
This file starts them, asks for blocks until the interval is narrow enough, and keeps every sample.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonhook._util.line_child import LineChild
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.timing.plan import Plan
from tritonhook.timing.result import Timed, block_of
from tritonhook.timing.sides import compared_sides
from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    DEFAULT_BAND,
    MIN_BLOCKS,
    MIN_PROCESSES,
    REFERENCE,
    Block,
    Comparison,
)

DEFAULT_SECONDS = 50.0
MAX_PROCESSES = 11
MORE_PROCESSES = 2  # started at a time, while the interval is wide
BLOCKS_PER_PROCESS = 14
WORKER = (sys.executable, "-m", "tritonhook.timing.worker")
ROUGH = (sys.executable, "-m", "tritonhook.timing.replay")
_ROUGH_S = 120.0  # for a process to start, and for a launch
PRECISION = 0.1  # of a large effect: it need not be known better
_ERRORS = {error.__name__: error for error in (DeviceError, UsageError)}


class Process:
    """A timing process, and the lines that go to and fro. It loads its libraries at once, then waits for a plan."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._child = LineChild(command)

    def begin(self, plan: Plan) -> None:
        self._child.send(plan.to_json())

    def prepared(self) -> dict[str, Any]:
        return self._answer("prepared")  # type: ignore[no-any-return]

    def blocks(self, count: int, process: int) -> list[Block]:
        self._child.send(json.dumps({"blocks": count, "process": process}))
        return [block_of(document) for document in self._answer("blocks")]

    def end(self) -> None:
        """Close its input, so that it ends by itself; kill it if it does not."""
        self._child.finish()

    def kill(self) -> None:
        """End it at once."""
        self._child.end()

    def _answer(self, kind: str) -> Any:
        answer = self._child.answer()
        if answer is None or "lost" in answer:
            raise DeviceError(f"a timing process is lost: {self._child.ended()}; its output is above")
        if "error" in answer:
            raise _ERRORS.get(answer["kind"], TritonHookError)(answer["error"])
        return answer[kind]


def run(
    plan: Plan,
    band: float = DEFAULT_BAND,
    processes: int = MIN_PROCESSES,
    seconds: float = DEFAULT_SECONDS,
    progress: Callable[[Comparison | None], None] | None = None,
    start: Callable[[], Process] = Process,
) -> Timed:
    """Time the sides, until the result is precise, `seconds` are over, or the user interrupts.

    The processes take blocks in turn. If the interval is still wide after many blocks, the processes themselves differ
    (by their addresses), and further ones are started.
    processes: how many are started at first. start: starts one. progress: is called with the comparison so far after
    each block, and with None before the first one.
    Raises DeviceError without a GPU, UsageError if the target cannot be loaded or run.
    """
    started = time.monotonic()
    collection = _Collection(plan, band, started + seconds, progress or (lambda comparison: None), start)
    timed, stopped = collection.collect(processes)
    return replace(timed, stopped=stopped, seconds=time.monotonic() - started)


class _Collection:
    """Collects the blocks of one comparison."""

    def __init__(
        self,
        plan: Plan,
        band: float,
        deadline: float,
        progress: Callable[[Comparison | None], None],
        start: Callable[[], Process],
    ) -> None:
        self.plan, self.band, self.deadline, self.progress, self.start = plan, band, deadline, progress, start
        self.reports: list[Mapping[str, Any]] = []
        self.blocks: list[Block] = []

    def collect(self, processes: int) -> tuple[Timed, str | None]:
        """Returns the result, and why it stopped. The rule looks at the interval's width, never at the verdict: to stop
        at a wanted answer would find differences between equal kernels."""
        enough = False  # the processes asked for have taken all their blocks
        try:
            while len(self.reports) < max(processes, MAX_PROCESSES if processes >= MIN_PROCESSES else 0):
                if (stopped := self._batch(MORE_PROCESSES if self.reports else processes)) is not None:
                    return self.timed, stopped
                enough = True
        except KeyboardInterrupt:
            if not self.reports:
                raise
            return self.timed, "interrupted"
        except DeviceError as error:
            if not enough:
                raise
            timed = self.timed
            return replace(timed, notes=(*timed.notes, str(error))), "a process failed"
        return self.timed, "processes"

    @property
    def timed(self) -> Timed:
        timed = _timed(self.plan, self.reports, self.band)
        return replace(timed, comparison=replace(timed.comparison, blocks=tuple(self.blocks)))

    def _batch(self, count: int) -> str | None:
        """Start processes, and take blocks from each in turn. Returns why to stop, or None."""
        first = len(self.reports)
        members: list[Process] = []
        if not self.blocks:
            self.progress(None)
        try:
            for index in range(first, first + count):
                members.append(self.start())
                members[-1].begin(replace(self.plan, seed=self.plan.seed + index, out=self.plan.out / f"{index}"))
            self.reports += [process.prepared() for process in members]
            timed = self.timed
            if timed.wrong or (timed.same_code and not self.plan.even_same):
                return "nothing to time"
            for _ in range(BLOCKS_PER_PROCESS):
                for index, process in enumerate(members, first):
                    self.blocks += process.blocks(1, index)
                comparison = replace(timed.comparison, blocks=tuple(self.blocks))
                self.progress(comparison)
                if is_precise(comparison):
                    return "precise"
                if time.monotonic() > self.deadline:
                    return "time"
        except KeyboardInterrupt:
            while members:
                members.pop().kill()
            raise
        finally:
            for process in members:
                process.end()
        return None


def _timed(plan: Plan, reports: Sequence[Mapping[str, Any]], band: float) -> Timed:
    """The result without blocks, from what the processes prepared. They must have compiled the same code."""
    first = reports[0]
    if any(report["kernels"] != first["kernels"] for report in reports[1:]):
        raise TritonHookError(
            f"{plan.target}: the processes did not compile the same code, so that their times cannot be "
            "combined; if the target tunes itself, fix its configuration, or use --processes 1"
        )
    return Timed(
        plan.target,
        Comparison((), band, control_of(first["kernels"])),
        compared_sides(plan, first),
        first["kernels"],
        first["outputs"],
        {name: text for report in reports for name, text in report["wrong"].items()},
        tuple(dict.fromkeys([note for report in reports for note in report["notes"]] + _tuning_notes(reports))),
        first["device"],
        first["versions"],
        first.get("sides"),
        first.get("flushes"),
        tuning=_tuning(plan, first),
        baselines=first.get("baselines", {}),
    )


def _tuning(plan: Plan, report: Mapping[str, Any]) -> dict[str, Any] | None:
    sides = report.get("tuning")
    return {"mode": "each" if plan.tune_each else "fixed", "sides": sides} if sides else None


def _tuning_notes(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    choices = [report.get("tuning") for report in reports]
    return ["the processes chose different configurations"] if any(c != choices[0] for c in choices) else []


def control_of(kernels: Mapping[str, Any]) -> str | None:
    """The side whose code the control has; None if neither."""
    return next((side for side in (REFERENCE, CANDIDATE) if kernels[side] == kernels[CONTROL]), None)


def is_precise(comparison: Comparison) -> bool:
    """Whether there are enough blocks, and the intervals are narrow against the band, or against a large effect."""
    if len(comparison.usable) < 2 * MIN_BLOCKS:
        return False
    effects = [effect for effect in (comparison.effect(), comparison.control) if effect is not None]
    half_band = comparison.band / 2
    return all(effect.half_width < max(half_band, PRECISION * abs(effect.ratio - 1)) for effect in effects)


def rough_times(captures: Path, command: Sequence[str] = ROUGH, limit_s: float = _ROUGH_S) -> list[dict[str, Any]]:
    """Time every recorded launch of a capture folder roughly, in a process of its own; most time in all first.

    A launch that crashes or hangs has no time, and another process goes on behind it. Raises DeviceError without a GPU.
    """
    found: list[dict[str, Any]] = []
    while True:
        child = LineChild((*command, str(captures), str(len(found))))
        try:
            lost = _take_roughly(child, found, limit_s)
        finally:
            child.end()
        if lost is None:
            return sorted(found, key=lambda entry: -(entry["us"] or 0) * entry["count"])
        found.append(lost)


def _take_roughly(child: LineChild, found: list[dict[str, Any]], limit_s: float) -> dict[str, Any] | None:
    """Append what a process times. Returns the launch at which it was lost; None if it came to its end."""
    at: dict[str, Any] | None = None
    while True:
        answer = child.answer(limit_s)
        if answer is None or "lost" in answer:
            why = f"no end within {limit_s:g} s" if answer is None else child.ended()
            if at is None:
                raise DeviceError(f"measuring the launches: {why}; its output is above")
            return at | {"us": None, "why": f"its launch: {why}"}
        if "error" in answer:
            raise DeviceError(f"{answer['error']}: a recorded launch needs torch and a GPU; --code compares code only")
        if "done" in answer:
            return None
        at = answer.get("at")
        if "launch" in answer:
            found.append(answer["launch"])


def search_path() -> tuple[str, ...]:
    """Folders where a worker looks for the target's module: the current one, then those of this process."""
    return tuple(dict.fromkeys([str(Path.cwd()), *(entry for entry in sys.path if entry)]))
