"""A timed comparison from start to verdict: several fresh processes on one GPU, block by block in turn.

Each process (worker.py) has its own addresses for code and buffers; a single process can favour a side by them.
This file starts them, asks for blocks until the interval is narrow enough, and keeps every sample.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tritonhook.device.child import Child, Lost, M
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.timing.images import compared_sides
from tritonhook.timing.plan import Choices, Plan, Prepare, Prepared, Take, Taken, Timed
from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    DEFAULT_BAND,
    MIN_BLOCKS,
    MIN_PROCESSES,
    REFERENCE,
    Comparison,
    SampleBlock,
)

DEFAULT_SECONDS = 50.0
MAX_PROCESSES = 11
MORE_PROCESSES = 2  # started at a time, while the interval is wide
BLOCKS_PER_PROCESS = 14
WORKER = (sys.executable, "-m", "tritonhook.timing.worker")
PRECISION = 0.1  # share of a large effect, which needs no more precision


class Process:
    """A timing process. It loads its libraries at once, then waits for a plan. The user's code may take any time."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._child = Child(command)

    def begin(self, plan: Plan) -> None:
        self._child.send(Prepare(plan))

    def prepared(self) -> Prepared:
        return self._answer(Prepared)

    def blocks(self, count: int, process: int) -> tuple[SampleBlock, ...]:
        self._child.send(Take(count, process))
        return self._answer(Taken).blocks

    def end(self) -> None:
        """Close its input, so that it ends by itself; kill it if it does not."""
        self._child.finish()

    def kill(self) -> None:
        """End it at once."""
        self._child.end()

    def _answer(self, kind: type[M]) -> M:
        try:
            return self._child.answer(kind, rest_s=None)
        except Lost as lost:
            raise DeviceError(f"a timing process is lost: {lost}; its output is above") from None


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
    return timed.but(stopped=stopped, seconds=time.monotonic() - started)


@dataclass(slots=True)
class _Collection:
    """Collects the blocks of one comparison."""

    plan: Plan
    band: float
    deadline: float
    progress: Callable[[Comparison | None], None]
    start: Callable[[], Process]
    reports: list[Prepared] = field(default_factory=list)
    blocks: list[SampleBlock] = field(default_factory=list)

    def collect(self, processes: int) -> tuple[Timed, str | None]:
        """Run processes until the rule stops them; return the result and the reason. The rule looks at the interval's
        width, never at the verdict: stopping at a desired verdict would find differences between equal kernels."""
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
            return timed.but(notes=(*timed.notes, str(error))), "a process failed"
        return self.timed, "processes"

    @property
    def timed(self) -> Timed:
        return _timed(self.plan, self.reports, self.blocks, self.band)

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
                comparison = Comparison(tuple(self.blocks), timed.band, timed.control_of)
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


def _timed(plan: Plan, reports: Sequence[Prepared], blocks: Sequence[SampleBlock], band: float) -> Timed:
    """Combine what the processes measured so far. All of them must have compiled the same code."""
    first = reports[0]
    if any(report.kernels != first.kernels for report in reports[1:]):
        raise TritonHookError(
            f"{plan.target}: the processes did not compile the same code, so their times cannot be "
            "combined; if the target tunes itself, fix its configuration, or use --processes 1"
        )
    notes = [note for report in reports for note in report.notes]
    if any(report.tuning != first.tuning for report in reports):
        notes.append("the processes chose different configurations")
    return Timed(
        target=plan.target,
        compared=compared_sides(plan, first),
        kernels=first.kernels,
        outputs=first.outputs,
        wrong={name: text for report in reports for name, text in report.wrong.items()},
        notes=tuple(dict.fromkeys(notes)),
        device=first.device,
        versions=first.versions,
        sides=first.sides,
        flushes=first.flushes,
        stopped=None,
        seconds=0.0,
        blocks=tuple(blocks),
        band=band,
        control_of=control_of(first.kernels),
        code={},
        tuning=Choices("each" if plan.tune_each else "fixed", first.tuning) if first.tuning else None,
        baselines=first.baselines,
    )


def control_of(kernels: Mapping[str, Any]) -> Literal["reference", "candidate"] | None:
    """Find the side whose code equals the control's code; None if neither does."""
    if kernels[CONTROL] == kernels[REFERENCE]:
        return "reference"
    return "candidate" if kernels[CONTROL] == kernels[CANDIDATE] else None


def is_precise(comparison: Comparison) -> bool:
    """Check whether there are enough blocks, and the intervals are narrow against the band, or against a large
    effect."""
    if len(comparison.usable) < 2 * MIN_BLOCKS:
        return False
    effects = [effect for effect in (comparison.effect(), comparison.control) if effect is not None]
    half_band = comparison.band / 2
    return all(effect.half_width < max(half_band, PRECISION * abs(effect.ratio - 1)) for effect in effects)


def search_path() -> tuple[str, ...]:
    """List the folders where a worker looks for the target's module: the current one, then those of this process."""
    return tuple(dict.fromkeys([str(Path.cwd()), *(entry for entry in sys.path if entry)]))
