"""A timed comparison from start to verdict: several fresh processes on one GPU, block by block in turn.

Each process (ab_worker) has drawn its own addresses for code and buffers; one process alone can favour a side.
This file starts them, asks for blocks until the interval is narrow enough, and keeps every sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonhook._display import Notebook
from tritonhook.device.conditions import Conditions
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.timing.plan import Plan
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

FORMAT = 1
DEFAULT_SECONDS = 50.0
MAX_PROCESSES = 11
MORE_PROCESSES = 2  # at a time, where the first ones leave the interval wide
BLOCKS_PER_PROCESS = 14
WORKER = (sys.executable, "-m", "tritonhook.timing.worker")
PRECISION = 0.1  # of a large effect: more is not needed to know it
_LATER_FIELDS: Mapping[str, Any] = {"code": {}, "tuning": None, "baselines": {}}  # that older files lack
_ERRORS = {error.__name__: error for error in (DeviceError, UsageError)}


@dataclass(frozen=True, slots=True)
class Timed(Notebook):
    """A finished comparison.

    kernels: each side's kernels by their own name; for each configuration its code's digest, registers and stack
    bytes. wrong: how a side's outputs differ from the reference's; such a comparison is not timed. stopped:
    "precise", "time", "processes" (there were MAX_PROCESSES), "interrupted", "a process failed" (a further one; a note
    says how), "nothing to time". sides: how each was launched. seconds: from start to end.
    """

    target: str
    comparison: Comparison
    kernels: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    outputs: int
    wrong: Mapping[str, str]
    notes: tuple[str, ...] = ()
    device: str | None = None
    versions: Mapping[str, str] | None = None
    sides: Mapping[str, Mapping[str, Any]] | None = None
    flushes: bool | None = None
    stopped: str | None = None
    seconds: float = 0.0
    code: Mapping[str, str] = field(default_factory=dict)
    tuning: Mapping[str, Any] | None = None
    baselines: Mapping[str, str] = field(default_factory=dict)

    @property
    def same_code(self) -> bool:
        """Reference and candidate are the same instructions; then there is nothing to time."""
        return self.kernels[REFERENCE] == self.kernels[CANDIDATE]

    @property
    def changed_kernels(self) -> tuple[str, ...]:
        """Names of the kernels whose code the candidate changes."""
        before, after = self.kernels[REFERENCE], self.kernels[CANDIDATE]
        return tuple(name for name in before if before[name] != after.get(name))


class Process:
    """One ab_worker and the lines that go to and fro. It loads its libraries at once and then waits for a plan."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        # A session of its own: Ctrl-C is for the process that the user sees, which then ends this one.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def begin(self, plan: Plan) -> None:
        self._send(plan.to_json())

    def prepared(self) -> dict[str, Any]:
        return self._answer("prepared")  # type: ignore[no-any-return]

    def blocks(self, count: int, process: int) -> list[Block]:
        self._send(json.dumps({"blocks": count, "process": process}))
        return [block_of(document) for document in self._answer("blocks")]

    def end(self) -> None:
        """Close its input, so that it leaves by itself; kill it if it does not."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
            self._child.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._child.kill()
            self._child.wait()

    def kill(self) -> None:
        """End it now, whatever it is doing."""
        self._child.kill()
        self._child.wait()

    def _send(self, line: str) -> None:
        assert self._child.stdin is not None
        with suppress(OSError):  # it has ended: what it said last, or its status, is read next
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()

    def _answer(self, kind: str) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise DeviceError(f"a timing process ended with status {self._child.wait()}; what it said is above")
        answer = json.loads(line)
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
    """Compare, and keep what there is when `seconds` are over or the user interrupts.

    The processes take blocks in turn. If many blocks leave the interval wide, it is the processes that differ
    (addresses), and further ones are started. start: begins one fresh process. progress: gets the comparison so far
    after each block, None while there is none. Raises DeviceError without a GPU,
    UsageError if the target cannot be loaded or run.
    """
    started = time.monotonic()
    collection = _Collection(plan, band, started + seconds, progress or (lambda comparison: None), start)
    timed, stopped = collection.collect(processes)
    return replace(timed, stopped=stopped, seconds=time.monotonic() - started)


class _Collection:
    """The blocks of one comparison as they come in."""

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
        """Stops by a rule on the interval's width, not on what it says: stopping at a pleasing answer would find
        differences in equal kernels."""
        enough = False  # the processes that were asked for have given their share
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
        """Some fresh processes, in turn until each has given its share. Returns why to stop, or None."""
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
    """What the processes prepared, before any block. They must agree on the code."""
    first = reports[0]
    if any(report["kernels"] != first["kernels"] for report in reports[1:]):
        raise TritonHookError(
            f"{plan.target}: the processes did not compile the same code, so that they cannot be put together; "
            "does it tune itself? Fix its configuration, or use --processes 1"
        )
    return Timed(
        plan.target,
        Comparison((), band, control_of(first["kernels"])),
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
    """The side that has the control's very code; None if neither has."""
    return next((side for side in (REFERENCE, CANDIDATE) if kernels[side] == kernels[CONTROL]), None)


def is_precise(comparison: Comparison) -> bool:
    """Whether more blocks would not help: enough of them, and intervals narrow against the band or the effect."""
    if len(comparison.usable) < 2 * MIN_BLOCKS:
        return False
    effects = [effect for effect in (comparison.effect(), comparison.control) if effect is not None]
    half_band = comparison.band / 2
    return all(effect.half_width < max(half_band, PRECISION * abs(effect.ratio - 1)) for effect in effects)


# --- files -----------------------------------------------------------------------------------------


def block_of(document: Mapping[str, Any]) -> Block:
    # What other versions have recorded beside these fields does not bear upon the verdict.
    given = document["conditions"]
    conditions = {name: given[name] for name in Conditions.__dataclass_fields__ if name in given}
    conditions["slowed"] = tuple(conditions["slowed"])
    clocks = {side: mhz for side, mhz in document.get("clock_mhz", {}).items() if mhz is None or mhz > 0}
    times = {side: tuple(values) for side, values in document["times_us"].items()}
    return Block(document["process"], times, Conditions(**conditions), clocks)


def to_document(timed: Timed) -> dict[str, Any]:
    """Everything, raw samples first among it; `from_document` gives the same value back."""
    from dataclasses import asdict

    fields = asdict(timed)
    comparison = fields.pop("comparison")
    return {"format": FORMAT, "kind": "ab", **fields, **comparison}


def from_document(document: Mapping[str, Any]) -> Timed:
    """Raises UsageError if it is none that `to_document` made."""
    try:
        if (kind := document["kind"]) != "ab":
            raise UsageError(f"not a timed comparison but of kind {kind!r}; `tritonhook report` makes a page of it")
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, and this version reads {FORMAT}")
        given = {**_LATER_FIELDS, **document}
        fields = {name: given[name] for name in Timed.__dataclass_fields__ if name != "comparison"}
        fields["notes"] = tuple(fields["notes"])
        fields["seconds"] = float(fields["seconds"])
        blocks = tuple(block_of(block) for block in document["blocks"])
        timed = Timed(comparison=Comparison(blocks, float(document["band"]), document["control_of"]), **fields)
        _check(timed)
        return timed
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"not a timed comparison that `tritonhook ab --json` saved ({error})") from None


def _check(timed: Timed) -> None:
    """Raises ValueError where a side is missing."""
    if timed.comparison.control_of not in (None, REFERENCE, CANDIDATE):
        raise ValueError(f"control_of is {timed.comparison.control_of!r}")
    if not isinstance(timed.code, Mapping) or not isinstance(timed.baselines, Mapping):
        raise ValueError("code or baselines are no objects")
    if timed.tuning is not None and not isinstance(timed.tuning["sides"], Mapping):
        raise ValueError("tuning has no sides")
    if not isinstance(timed.wrong, Mapping) or not {REFERENCE, CANDIDATE} <= set(timed.kernels):
        raise ValueError("the kernels of a side, or what was wrong, are missing")
    if len({frozenset(block.times_us) for block in timed.comparison.blocks}) > 1:
        raise ValueError("its blocks have different sides")
    if timed.comparison.blocks and not {REFERENCE, CANDIDATE} <= set(timed.comparison.sides):
        raise ValueError("its blocks lack the reference or the candidate")


def load(path: Path) -> Timed:
    """A comparison saved with --json. Raises UsageError."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: no JSON: {error}; give what `tritonhook ab --save` wrote") from None
    try:
        return from_document(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def rough_times(captures: Path) -> list[dict[str, Any]]:
    """Every recorded launch of a capture folder with its microseconds, most time in all first, measured in a process
    of its own. Raises DeviceError without a GPU."""
    command = [sys.executable, "-m", "tritonhook.timing.replay", str(captures)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, start_new_session=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise DeviceError(
            f"measuring the launches ended with status {done.returncode}; what it said is above"
        ) from None
    if "error" in answer:
        raise DeviceError(f"{answer['error']}: a recorded launch needs torch and a GPU; --code compares code only")
    found: list[dict[str, Any]] = answer["launches"]
    return found


def search_path() -> tuple[str, ...]:
    """Where a worker shall look for the target's module: here first, then this process's own places."""
    return tuple(dict.fromkeys([str(Path.cwd()), *(entry for entry in sys.path if entry)]))
