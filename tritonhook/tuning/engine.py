"""Tune kernels on a GPU: compare what the candidates store, race those that store the same values, confirm the winner.

One child process races all kernels of a run. Other child processes, which took no part in the race, confirm the
winners. All processes are started once, at the beginning. Nothing is assembled here: candidates.py does that before.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.capture.launches.contents import SPECIAL
from tritonhook.capture.launches.steering import steering_buffers
from tritonhook.capture.selection import Kernel, Launched
from tritonhook.capture.store import read_launch
from tritonhook.device.child import Lost
from tritonhook.errors import CaptureError, DeviceError, TritonHookError
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
from tritonhook.tuning.gpu import LIMIT_S, GpuProcess, LeverCode, LoadCodes, RaceReady
from tritonhook.tuning.race import (
    CONFIRM_BLOCKS,
    CONFIRM_PROCESSES,
    MOST_BLOCKS,
    Race,
    TriedKernel,
    TuneRun,
    against_fastest,
    is_futile,
    judged,
)

_RACER = 0  # number of the process that races; processes with higher numbers confirm
_RACE_S = 20.0  # a longer race is ended, and its leader is confirmed
_RIVALS = 2  # a winner must also beat this many other configurations, with their codes without a lever
_MOST_SPECIAL = 1 << 28  # bytes: larger buffers are not filled with special numbers, which would take too long


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """Settings of a tuning.

    band: smallest gain that counts, as a share of the time, e.g. 0.02. rtol: allowed difference of outputs, as a share
    of the largest value; None: all bits must be equal. limit_s: seconds after which a launch counts as hung. start:
    function that starts a child process with the GPU. forced: confirm the leader of each race, whatever its gain, with
    all processes; for tests of the confirmation. same_bits: codes of different configurations must store the same bits.
    """

    band: float = DEFAULT_BAND
    rtol: float | None = None
    limit_s: float = LIMIT_S
    seed: int = 0
    start: Callable[[float], GpuProcess] = GpuProcess
    forced: bool = False
    same_bits: bool = False


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """Progress of a run. done: number of finished kernels. text: the current step. finished: the kernel that has just
    finished."""

    done: int
    text: str
    finished: TriedKernel | None = None


Progress = Callable[[TuneProgress], None]


def tune(
    wanted: Sequence[tuple[Kernel, Choice]],
    settings: TuneSettings | None = None,
    progress: Progress = lambda step: None,
) -> TuneRun:
    """Tune kernels in order, and judge them together. Ctrl-C ends the run; the result then has the kernels finished so
    far, and gains certified so far stay certified.

    Raises DeviceError without a GPU.
    """
    settings = settings or TuneSettings()
    tried: list[TriedKernel] = []
    device, start_s, stopped = "", 0.0, ""
    gpu = _Gpu(settings)
    with tempfile.TemporaryDirectory(prefix="tritonhook-tune-") as folder:
        try:
            if any(choice.levered for _, choice in wanted):
                progress(TuneProgress(0, "starting the processes that use the GPU"))
                started = time.monotonic()
                device = gpu.begin()
                start_s = time.monotonic() - started
            for number, (kernel, choice) in enumerate(wanted):

                def say(text: str, number: int = number, name: str = kernel.name) -> None:
                    progress(TuneProgress(number, f"{name}: {text}"))

                tuning = _OneKernel(kernel, choice, settings, gpu, Path(folder) / str(number), say)
                tried.append(tuning.tune())
                progress(TuneProgress(len(tried), "", tried[-1]))
        except KeyboardInterrupt:
            stopped = "interrupted"
        finally:
            gpu.end()
    still = sum(bool(choice.levered) for _, choice in wanted[len(tried) :])
    return TuneRun(judged(tried, still), device, stopped, start_s)


class _Gpu:
    """The child processes of a run: one races, the others confirm. A process that was lost is started again when it is
    next used."""

    def __init__(self, settings: TuneSettings) -> None:
        self._settings = settings
        self._processes: dict[int, GpuProcess] = {}

    def begin(self) -> str:
        """Start all processes, and wait until they are ready: a starting process would disturb samples of others.
        Returns the GPU's name. Raises DeviceError."""
        for number in range(1 + CONFIRM_PROCESSES):
            self._processes[number] = self._started()
        try:
            names = [process.device for process in self._processes.values()]
        except Lost as lost:
            raise DeviceError(f"a process that uses the GPU did not start: {lost}; its output is above") from None
        return names[_RACER]

    @contextmanager
    def process(self, number: int) -> Iterator[GpuProcess]:
        """Yield a process. Number 0 races, higher numbers confirm. Afterwards its buffers are freed; if it was lost, it
        is ended."""
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
        except BaseException:  # the process was lost, or is still busy
            self._processes.pop(number).end()
            raise

    def end(self) -> None:
        for process in self._processes.values():
            process.end()

    def _started(self) -> GpuProcess:
        return self._settings.start(self._settings.limit_s)


class _Left(Exception):
    """Raised to leave a kernel unchanged; the text is the reason. is_judged: as in TriedKernel."""

    def __init__(self, text: str, is_judged: bool = True) -> None:
        super().__init__(text)
        self.is_judged = is_judged


class _OneKernel:
    """The tuning of one kernel. special: whether outputs are also compared with special numbers in the buffers."""

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
        self.found = TriedKernel(kernel, choice, "", notes=kernel.notes)
        self.special = settings.rtol is None
        self.codes = [code for config in choice.configurations for code in (config.plain, *config.others)]

    def tune(self) -> TriedKernel:
        started = time.monotonic()
        reason, is_judged = "", True
        try:
            self._run()
        except _Left as left:
            reason, is_judged = str(left), left.is_judged
        except TritonHookError as error:
            reason, is_judged = str(error), False
        seconds = time.monotonic() - started if self.choice.levered else 0.0
        return replace(self.found, reason=reason, is_judged=is_judged, seconds=seconds)

    def _run(self) -> None:
        """Race and confirm. Raises _Left if no candidate wins, TritonHookError if the GPU refuses a request."""
        if not self.choice.levered:
            raise _Left("no lever gives it other code")
        self._write()
        winner, rivals = self._race()
        self.found = replace(self.found, winner=winner)
        self.say(f"confirming {winner.name}")
        launched = self.kernel.launches[0]
        comparison = self._confirm(winner, launched, rivals)
        base = rivals[0] if comparison.control_of == REFERENCE else self._named(comparison.control_of or "")
        self.found = replace(self.found, comparison=comparison, base=base.config)
        if len({block.process for block in comparison.blocks}) < CONFIRM_PROCESSES:
            raise _Left(f"{winner.name} led the race, but in fresh processes {_gain(comparison)}")
        if comparison.verdict is TimingVerdict.FASTER:
            for other in self.kernel.others:
                if all(self._launch_of(candidate, other) is not None for candidate in (winner, *rivals)):
                    self.say(f"confirming {winner.name} at another launch")
                    self._check_other(winner, other, rivals)

    # --- the race

    def _race(self) -> tuple[Candidate, list[Candidate]]:
        """Race the candidates. Returns the candidate to confirm, and its rivals: codes without a lever, the best first.
        If a candidate crashes or hangs, it is dropped and the race begins again."""
        waiting = self.codes[1:]
        while True:
            try:
                with self.gpu.process(_RACER) as racer:
                    return self._raced(racer, waiting)
            except Lost as lost:
                if lost.at == SPECIAL and self.special:
                    self.special = False
                    self._note(
                        "the compiler's own code crashes or hangs with special numbers in the buffers; outputs were "
                        "compared with the recorded contents only"
                    )
                    continue
                guilty = next((code for code in waiting if code.name == lost.at), None)
                if guilty is None:
                    what = "the compiler's own code, launched as recorded" if lost.at else "timing"
                    raise _Left(f"{what}: {lost}", is_judged=False) from None
                waiting = [code for code in waiting if code is not guilty and self._plain_of(code) is not guilty]
                self._drop(guilty, str(lost))

    def _raced(self, racer: GpuProcess, waiting: Sequence[Candidate]) -> tuple[Candidate, list[Candidate]]:
        self.say(f"checking the outputs of {len(waiting)} codes")
        launched = self.kernel.launches[0]
        codes = [self._code(self.choice.plain, launched, REFERENCE), *(self._code(code, launched) for code in waiting)]
        ready = self._ready(racer, codes, launched, 0, racing=True)
        for code in waiting:
            if code.name in ready.failed:
                self._drop(code, ready.failed[code.name])
        left = {code.name: code for code in waiting if code.name not in ready.failed}
        plain = [name for name, code in left.items() if code.lever is None]
        levered = tuple(name for name in left if name not in plain)
        if not levered:
            raise _Left("none of its other codes runs and stores the same values")
        self.say(f"racing {len(left)} codes")
        raced = Race.of(levered, self.settings.band, plain)
        ends, unfit = time.monotonic() + _RACE_S, None
        for _ in range(2 * MOST_BLOCKS):  # twice: blocks during which the GPU was disturbed do not count
            if raced.is_over or (raced.blocks and time.monotonic() > ends):
                break
            (block,) = racer.blocks(1, 0, (REFERENCE, *raced.left))
            unfit = block.conditions.unfit
            raced = raced.after(block)
        self.found = replace(self.found, race=raced)
        if not raced.blocks and not raced.dropped:
            raise _Left(f"no sample could be used: {unfit}", is_judged=False)
        leader = raced.leader or (raced.first or levered[0] if self.settings.forced else None)
        if leader is None:
            than = f" than the best of {1 + len(plain)} configurations" if plain else ""
            raise _Left(f"none of {len(levered)} other codes is faster{than} by {self.settings.band:.1%}")
        return left[leader], self._rivals(left[leader], [left[name] for name in raced.rivals], raced.worth)

    def _rivals(self, winner: Candidate, plain: Sequence[Candidate], worth: float) -> list[Candidate]:
        """List the codes without a lever that the winner has to beat: the fastest, the autotuner's choice, the next
        fastest, and the code of the winner's own configuration. plain: codes without a lever, the fastest first. worth:
        as in Race."""
        own = self.choice.plain
        best = plain[0] if plain and worth < math.log(1 - self.settings.band) else own
        names = dict.fromkeys((best, own, *plain[:_RIVALS], self._plain_of(winner)))
        return list(names)

    # --- the confirmation

    def _confirm(self, winner: Candidate, launched: Launched, rivals: Sequence[Candidate]) -> Comparison:
        """Time the winner and its rivals in processes that took no part in the race, and compare it with the fastest
        rival. The number of processes is fixed, but fewer run if the first ones show no gain. Raises _Left."""
        first, *others = rivals
        codes = [self._code(first, launched, REFERENCE), self._code(first, launched, CONTROL, like=REFERENCE)]
        codes += [self._code(code, launched) for code in others]
        plain = self._plain_of(winner)
        like = REFERENCE if plain is first else plain.name
        behind = next(number for number, code in enumerate(codes) if code.name == like)
        codes.insert(behind + 1, self._code(winner, launched, CANDIDATE, like))
        names = [code.name for code in others]
        blocks: list[SampleBlock] = []
        for number in range(1, 1 + CONFIRM_PROCESSES):
            try:
                with self.gpu.process(number) as process:
                    ready = self._ready(process, codes, launched, number, racing=False)
                    if ready.failed:
                        raise _Left(f"{winner.name}, in a fresh process: {next(iter(ready.failed.values()))}")
                    blocks += process.blocks(CONFIRM_BLOCKS, number, (REFERENCE, CANDIDATE, CONTROL, *names))
            except Lost as lost:
                self._drop(winner, str(lost))
                raise _Left(f"{winner.name}, in a fresh process: {lost}") from None
            comparison = against_fastest(Comparison(tuple(blocks), self.settings.band), names)
            if not self.settings.forced and is_futile(comparison):
                break
        return comparison

    def _check_other(self, winner: Candidate, other: Launched, rivals: Sequence[Candidate]) -> None:
        """Check that the winner is not slower at another launch of the kernel. Raises _Left."""
        comparison = self._confirm(winner, other, rivals)
        effect, text = comparison.effect(), f"{_gain(comparison)} at {other.summary}"
        if effect is None or effect.ratio > 1 + self.settings.band:
            raise _Left(f"{winner.name} is faster at one launch, but {text}")
        self._note(text)

    # --- both

    def _ready(
        self, process: GpuProcess, codes: Sequence[LeverCode], launched: Launched, number: int, racing: bool
    ) -> RaceReady:
        """Load codes in a process, the reference first. Raises _Left if the reference cannot be timed."""
        seed = self.settings.seed * (1 + CONFIRM_PROCESSES) + number
        keep = self._steering(launched) if racing and self.special else None
        ready = process.prepare(LoadCodes(tuple(codes), launched.path, self.settings.rtol, seed, racing, keep))
        if (why := ready.failed.get(REFERENCE)) is not None:
            raise _Left(f"the compiler's own code cannot be launched as recorded: {why}", is_judged=False)
        if ready.unsteady:
            raise _Left(
                "its outputs differ from run to run, so outputs of other code cannot be compared with them; "
                "--rtol 0.01 allows differences of 1%",
                is_judged=False,
            )
        for note in ready.notes:
            self._note(note)
        return ready

    def _steering(self, launched: Launched) -> tuple[int, ...] | None:
        """Find the buffers that must keep their recorded contents, e.g. indices, while all others hold special numbers.
        Returns None if the buffers are too large to fill, or the launch cannot be read."""
        try:
            launch = read_launch(launched.path)
        except CaptureError:
            return None
        if launch.bytes > _MOST_SPECIAL:
            return None
        subjects = [configuration.subject for configuration in self.choice.configurations]
        return tuple({number for it in subjects for number in steering_buffers(it.kernel, launch, it.ptx)})

    def _write(self) -> None:
        """Write the cubins to files, from which the processes load them."""
        self.folder.mkdir()
        for number, candidate in enumerate(self.codes):
            (self.folder / f"{number}.cubin").write_bytes(candidate.cubin)

    def _code(self, code: Candidate, launched: Launched, name: str | None = None, like: str | None = None) -> LeverCode:
        """Make the LeverCode message for a code. name: None for the candidate's own name. like: name of the code to
        compare outputs with; None: the code of the same configuration without a lever."""
        path = self.folder / f"{self.codes.index(code)}.cubin"
        launch = self._launch_of(code, launched)
        assert launch is not None, code.name
        plain = self._plain_of(code)
        if code is not plain and like is None:
            like = REFERENCE if plain is self.choice.plain else plain.name
        elif self.settings.same_bits and name is None:
            like = REFERENCE
        return LeverCode(name or code.name, path, code.kernel, None if launch is launched else launch.path, like)

    def _launch_of(self, candidate: Candidate, launched: Launched) -> Launched | None:
        """Find the launch of the candidate's configuration with the arguments of `launched`; None if it was not
        recorded."""
        choice = self.choice.of(candidate)
        if choice is self.choice:
            return launched
        return next((it for it in choice.launches if it.problem == launched.problem), None)

    def _plain_of(self, candidate: Candidate) -> Candidate:
        return self.choice.of(candidate).plain

    def _named(self, name: str) -> Candidate:
        return next(code for code in self.codes if code.name == name)

    def _note(self, text: str) -> None:
        self.found = replace(self.found, notes=tuple(dict.fromkeys((*self.found.notes, text))))

    def _drop(self, code: Candidate, why: str) -> None:
        if code.lever is None:
            self._note(f"configuration {code.name}: {why}")
        else:
            self.found = replace(self.found, failed=(*self.found.failed, Dropped(code.lever, why, config=code.config)))


def _gain(comparison: Comparison) -> str:
    effect = comparison.effect()
    return "no sample could be used" if effect is None else f"its time is {percent(effect.ratio)}"
