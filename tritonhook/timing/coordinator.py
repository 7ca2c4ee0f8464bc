"""Run a timed comparison: start several processes on one GPU, and take blocks of samples from each in turn.

Each process (worker.py) has other addresses of code and buffers, because the addresses in a single process can make one
side faster. Blocks are taken until the interval of the result is narrow enough; every sample is kept.
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
MORE_PROCESSES = 2  # number of processes that are started together while the interval is still wide
BLOCKS_PER_PROCESS = 14
WORKER = (sys.executable, "-m", "tritonhook.timing.worker")
PRECISION = 0.1  # for a large effect, an interval of this fraction of the effect is precise enough


class Process:
    """A timing process. It loads its libraries, then waits for a plan. There is no time limit for the user's code."""

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
        """Close the process's input, so that it exits; kill it if it does not."""
        self._child.finish()

    def kill(self) -> None:
        """Kill the process."""
        self._child.end()

    def _answer(self, kind: type[M]) -> M:
        try:
            return self._child.answer(kind, rest_s=None)
        except Lost as lost:
            raise DeviceError(f"a timing process failed: {lost}; its output is above") from None


def run(
    plan: Plan,
    band: float = DEFAULT_BAND,
    processes: int = MIN_PROCESSES,
    seconds: float = DEFAULT_SECONDS,
    progress: Callable[[Comparison | None], None] | None = None,
    start: Callable[[], Process] = Process,
) -> Timed:
    """Time the sides until the result is precise, `seconds` have passed, or the user interrupts.

    The processes take blocks in turn. If the interval is still wide after many blocks, the processes themselves differ
    (by their addresses), and further processes are started.
    processes: number of processes at the start. start: starts a process. progress: called with the comparison so far
    after each turn of blocks, and with None before the first.
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
        """Run processes until a stopping rule holds; return the result and the reason. The rule depends on the width of
        the interval, never on the verdict: stopping at a verdict would find differences between equal kernels."""
        enough = False  # whether the first processes have taken all their blocks
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
        """Start processes, and take blocks from each in turn. Returns the reason to stop, or None."""
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
    """Combine the measurements of all processes so far. Raises TritonHookError if their code differs."""
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
    """Return the side that has the same code as the control; None if neither reference nor candidate has it."""
    if kernels[CONTROL] == kernels[REFERENCE]:
        return "reference"
    return "candidate" if kernels[CONTROL] == kernels[CANDIDATE] else None


def is_precise(comparison: Comparison) -> bool:
    """Return True if there are enough blocks and each interval is narrow. An interval is narrow compared with the band,
    or compared with a large effect."""
    if len(comparison.usable) < 2 * MIN_BLOCKS:
        return False
    effects = [effect for effect in (comparison.effect(), comparison.control) if effect is not None]
    half_band = comparison.band / 2
    return all(effect.half_width < max(half_band, PRECISION * abs(effect.ratio - 1)) for effect in effects)


def search_path() -> tuple[str, ...]:
    """List the folders in which a worker looks for the target's module: the current folder, then this sys.path."""
    return tuple(dict.fromkeys([str(Path.cwd()), *(entry for entry in sys.path if entry)]))
