"""Tune kernels on a GPU: check what each candidate stores, race those that store the same, confirm the one that wins.

One process races all kernels of a run, and others, which took no part in that, confirm. All are started once, and load
their libraries before they touch the GPU. Nothing is assembled here: candidates.py did that before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.capture.selection import Kernel, Launched
from tritonhook.device.child import Lost
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    DEFAULT_BAND,
    REFERENCE,
    Comparison,
    SampleBlock,
    TimingVerdict,
    percent,
)
from tritonhook.tuning.candidates import Candidate, Choice, Dropped
from tritonhook.tuning.certify import CONFIRM_BLOCKS, CONFIRM_PROCESSES, is_futile
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess
from tritonhook.tuning.messages import LeverCode, Ready
from tritonhook.tuning.race import MOST_BLOCKS, Race
from tritonhook.tuning.result import TriedKernel, TuneRun, judged

_RACER = 0  # the number of the process that races; those above confirm
_RACE_S = 20.0  # a race that takes longer is ended, and its leader taken


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How kernels are tuned.

    band: the gain that is worth having. rtol: how far outputs may differ, as a share of the largest value; None: not at
    all. limit_s: a launch that takes longer hangs. start: starts a process with the GPU.
    """

    band: float = DEFAULT_BAND
    rtol: float | None = None
    limit_s: float = LIMIT_S
    seed: int = 0
    start: Callable[[float], GpuProcess] = GpuProcess


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """How far a run is: kernels done, and what it does now. finished: the kernel that was just finished."""

    done: int
    text: str
    finished: TriedKernel | None = None


Progress = Callable[[TuneProgress], None]


def tune(
    wanted: Sequence[tuple[Kernel, Choice]],
    settings: TuneSettings | None = None,
    progress: Progress = lambda step: None,
) -> TuneRun:
    """Tune kernels in order, and judge them together. Ctrl-C ends it, and what is certified by then stays certified.

    Raises DeviceError without a GPU.
    """
    settings = settings or TuneSettings()
    tried: list[TriedKernel] = []
    device, start_s, stopped = "", 0.0, ""
    gpu = _Gpu(settings)
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        try:
            if any(choice.others for _, choice in wanted):
                progress(TuneProgress(0, "starting processes with the GPU"))
                started = time.monotonic()
                device = gpu.begin()
                start_s = time.monotonic() - started
            for number, (kernel, choice) in enumerate(wanted):

                def say(text: str, number: int = number, name: str = kernel.name) -> None:
                    progress(TuneProgress(number, f"{name}: {text}"))

                one = _OneKernel(kernel, choice, settings, gpu, Path(folder) / str(number), say)
                tried.append(one.tune())
                progress(TuneProgress(len(tried), "", tried[-1]))
        except KeyboardInterrupt:
            stopped = "interrupted"
        finally:
            gpu.end()
    still = sum(bool(choice.others) for _, choice in wanted[len(tried) :])
    return TuneRun(judged(tried, still), device, stopped, start_s)


class _Gpu:
    """The processes of a run: one races, the others confirm. A lost one is started again where it is next needed."""

    def __init__(self, settings: TuneSettings) -> None:
        self._settings = settings
        self._processes: dict[int, GpuProcess] = {}

    def begin(self) -> str:
        """Start all processes, and wait for them: one that starts disturbs the samples of others. Returns the GPU's
        name. Raises DeviceError."""
        for number in range(1 + CONFIRM_PROCESSES):
            self._processes[number] = self._started()
        try:
            names = [process.device for process in self._processes.values()]
        except Lost as lost:
            raise DeviceError(f"a process with the GPU did not start: {lost}; its output is above") from None
        return names[_RACER]

    @contextmanager
    def process(self, number: int) -> Iterator[GpuProcess]:
        """Use a process: 0 races, each other number confirms."""
        process = self._processes.get(number)
        if process is None:
            process = self._processes[number] = self._started()
        try:
            try:
                yield process
            except (_Left, TritonHookError):
                process.free()
                raise
            process.free()
        except (_Left, TritonHookError):
            raise
        except BaseException:  # it is lost, or not at rest
            self._processes.pop(number).end()
            raise

    def end(self) -> None:
        for process in self._processes.values():
            process.end()

    def _started(self) -> GpuProcess:
        return self._settings.start(self._settings.limit_s)


class _Left(Exception):
    """A kernel is left as it is. The text says why. is_judged: as in Tried."""

    def __init__(self, text: str, is_judged: bool = True) -> None:
        super().__init__(text)
        self.is_judged = is_judged


class _OneKernel:
    """One kernel on its way to a verdict."""

    def __init__(
        self,
        kernel: Kernel,
        choice: Choice,
        settings: TuneSettings,
        gpu: _Gpu,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.kernel, self.choice, self.settings, self.gpu, self.folder = kernel, choice, settings, gpu, folder
        self.say = say
        self.found = TriedKernel(kernel, choice, "")

    def tune(self) -> TriedKernel:
        started = time.monotonic()
        reason, is_judged = "", True
        try:
            self._run()
        except _Left as left:
            reason, is_judged = str(left), left.is_judged
        except TritonHookError as error:
            reason, is_judged = str(error), False
        seconds = time.monotonic() - started if self.choice.others else 0.0
        return replace(self.found, reason=reason, is_judged=is_judged, seconds=seconds)

    def _run(self) -> None:
        """Raises _Left where there is no win, TritonHookError where the GPU cannot do it."""
        if not self.choice.others:
            raise _Left("no lever gives it other code")
        self._write()
        winner = self._race()
        self.found = replace(self.found, winner=winner)
        self.say(f"confirming {winner.text}")
        comparison = self._confirm(winner, self.kernel.launches[0])
        self.found = replace(self.found, comparison=comparison)
        if len({block.process for block in comparison.blocks}) < CONFIRM_PROCESSES:
            raise _Left(f"{winner.text} led the race, but in fresh processes {_gain(comparison)}")
        if comparison.verdict is TimingVerdict.FASTER:
            for other in self.kernel.others:
                self.say(f"confirming {winner.text} at another launch")
                self._check_other(winner, other)

    # --- the race

    def _race(self) -> Candidate:
        """The candidate to confirm. One that crashes or hangs is dropped, and the others race on."""
        waiting = list(self.choice.others)
        while True:
            try:
                with self.gpu.process(_RACER) as racer:
                    return self._raced(racer, waiting)
            except Lost as lost:
                guilty = next((one for one in waiting if one.text == lost.at), None)
                if guilty is None:
                    what = "the compiler's own code, launched as recorded" if lost.at else "timing"
                    raise _Left(f"{what}: {lost}", is_judged=False) from None
                waiting.remove(guilty)
                self._drop(guilty, str(lost))

    def _raced(self, racer: GpuProcess, waiting: Sequence[Candidate]) -> Candidate:
        self.say(f"checking the outputs of {len(waiting)} codes")
        ready = self._ready(racer, [self._code(one) for one in waiting], self.kernel.launches[0], 0, racing=True)
        for one in waiting:
            if one.text in ready.failed:
                self._drop(one, ready.failed[one.text])
        left = {one.text: one for one in waiting if one.text not in ready.failed}
        if not left:
            raise _Left("none of its other codes runs and stores the same")
        self.say(f"racing {len(left)} codes")
        raced = Race.of(tuple(left), self.settings.band)
        ends, unfit = time.monotonic() + _RACE_S, None
        for _ in range(2 * MOST_BLOCKS):  # a block in whose time the GPU was disturbed does not count
            if raced.is_over or (raced.blocks and time.monotonic() > ends):
                break
            (block,) = racer.blocks(1, 0, (REFERENCE, *raced.left))
            unfit = block.conditions.unfit
            raced = raced.after(block)
        self.found = replace(self.found, race=raced)
        if not raced.blocks and not raced.dropped:
            raise _Left(f"no sample could be used: {unfit}", is_judged=False)
        if raced.leader is None:
            raise _Left(f"none of {len(left)} other codes is faster by {self.settings.band:.1%}")
        return left[raced.leader]

    # --- the confirmation

    def _confirm(self, winner: Candidate, launched: Launched) -> Comparison:
        """Samples of processes that took no part in the race. Their number is fixed, unless it is no gain anyway."""
        codes = [self._code(winner, CANDIDATE), self._code(self.choice.plain, CONTROL)]
        blocks: list[SampleBlock] = []
        for number in range(1, 1 + CONFIRM_PROCESSES):
            try:
                with self.gpu.process(number) as process:
                    ready = self._ready(process, codes, launched, number, racing=False)
                    if ready.failed:
                        raise _Left(f"{winner.text}, in a fresh process: {next(iter(ready.failed.values()))}")
                    blocks += process.blocks(CONFIRM_BLOCKS, number, (REFERENCE, CANDIDATE, CONTROL))
            except Lost as lost:
                self._drop(winner, str(lost))
                raise _Left(f"{winner.text}, in a fresh process: {lost}") from None
            comparison = Comparison(tuple(blocks), self.settings.band)
            if is_futile(comparison):
                break
        return comparison

    def _check_other(self, winner: Candidate, other: Launched) -> None:
        """Raises _Left where the winner is slower at another launch of the kernel."""
        comparison = self._confirm(winner, other)
        effect, text = comparison.effect(), f"{_gain(comparison)} at {other.summary}"
        if effect is None or effect.ratio > 1 + self.settings.band:
            raise _Left(f"{winner.text} is faster at one launch, but {text}")
        self.found = replace(self.found, notes=(*self.found.notes, text))

    # --- both

    def _ready(
        self, process: GpuProcess, codes: Sequence[LeverCode], launched: Launched, number: int, racing: bool
    ) -> Ready:
        """Load codes, the reference first. Raises _Left if that one cannot be timed."""
        seed = self.settings.seed * (1 + CONFIRM_PROCESSES) + number
        own = self._code(self.choice.plain, REFERENCE)
        ready = process.prepare((own, *codes), launched.path, self.settings.rtol, seed, racing)
        if (why := ready.failed.get(REFERENCE)) is not None:
            raise _Left(f"the compiler's own code cannot be launched as recorded: {why}", is_judged=False)
        if ready.unsteady:
            raise _Left(
                "its outputs differ from run to run, so that those of other code cannot be checked; --rtol 0.01 "
                "allows differences of 1%",
                is_judged=False,
            )
        self.found = replace(self.found, notes=tuple(dict.fromkeys((*self.found.notes, *ready.notes))))
        return ready

    def _write(self) -> None:
        """Write the cubins as files, for the processes."""
        self.folder.mkdir()
        for number, one in enumerate((self.choice.plain, *self.choice.others)):
            (self.folder / f"{number}.cubin").write_bytes(one.cubin)

    def _code(self, one: Candidate, name: str | None = None) -> LeverCode:
        number = (self.choice.plain, *self.choice.others).index(one)
        return LeverCode(name or one.text, self.folder / f"{number}.cubin", one.kernel)

    def _drop(self, one: Candidate, why: str) -> None:
        assert one.lever is not None
        self.found = replace(self.found, failed=(*self.found.failed, Dropped(one.lever, why)))


def _gain(comparison: Comparison) -> str:
    effect = comparison.effect()
    return "no sample could be used" if effect is None else f"its time is {percent(effect.ratio)}"
