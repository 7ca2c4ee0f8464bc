"""Judge trials of the minimiser by launches: two assemblers make each trial's kernel, and both run on its buffers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.image import Cubin
from tritonhook.lab.sweep import Job, sweep
from tritonhook.ptx.module import Ptx
from tritonhook.verify.builds import Recipe
from tritonhook.verify.minimise import Trial
from tritonhook.verify.model import RECORDED, Build, Order, Ran

RUNS = 2  # of each build: a kernel whose runs differ is no proof


Run = Callable[[Order], Sequence[Ran]]
Differs = Callable[[Sequence[Ran], Launch, Ptx], bool]


def stored_other(ran: Sequence[Ran], launch: Launch, ptx: Ptx) -> bool:
    """Whether the second build stored other bytes than the first, in every run, and nothing failed."""
    first, second = ran
    return bool(second.differences) and first.is_clean and replace(second, differences=()).is_clean


@dataclass(frozen=True, slots=True)
class LaunchedJudge:
    """Says of trials whether two assemblers make kernels of them that store different values.

    run: carries out an order, as Executor.run_until_lost does. folder: for cubins and contents. differs: what counts,
    by both builds' results.
    """

    sides: tuple[Recipe, Recipe]
    run: Run
    folder: Path
    differs: Differs = stored_other

    def __call__(self, trials: Sequence[Trial]) -> list[bool]:
        """All trials are assembled at once, several at a time. Those whose codes differ are launched, one after the
        other in one process."""
        cubins = self._assembled(trials)
        return [self._differ(trial, *(cubins.get((trial.ptx, side)) for side in (0, 1))) for trial in trials]

    def builds(self, trial: Trial) -> tuple[Build, ...]:
        """The builds of a trial; fewer than two where one cannot be assembled."""
        cubins = self._assembled([trial])
        return tuple(
            self._build(trial, side, cubins[trial.ptx, number])
            for number, side in enumerate(self.sides)
            if (trial.ptx, number) in cubins
        )

    def stored(self, trial: Trial) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """What each side's kernel stores in the buffers of a trial that differs."""
        place = self.folder / "stored"
        place.mkdir(exist_ok=True)
        order = self._order(trial, self.builds(trial))
        self.run(replace(order, save=place))
        numbers = range(len(order.launch.buffers))
        first, second = (
            tuple((place / f"{RECORDED}-{side}-{number}.bin").read_bytes() for number in numbers) for side in (0, 1)
        )
        return first, second

    def _assembled(self, trials: Sequence[Trial]) -> dict[tuple[str, int], bytes]:
        """The cubins, by PTX and side; without those that could not be made."""
        texts = dict.fromkeys(trial.ptx for trial in trials)
        jobs = [
            (text, number, Job(text, side.ptxas, side.options, keep_cubin=True))
            for text in texts
            for number, side in enumerate(self.sides)
        ]
        made = {job.key: outcome.cubin for job, outcome in sweep(job for _, _, job in jobs)}
        outcomes = ((text, number, made.get(job.key)) for text, number, job in jobs)
        return {(text, number): data for text, number, data in outcomes if data is not None}

    def _differ(self, trial: Trial, first: bytes | None, second: bytes | None) -> bool:
        if first is None or second is None or trial.launch is None:
            return False
        codes = [Cubin.from_bytes(data).text(trial.entry) for data in (first, second)]
        if codes[0] == codes[1]:
            return False
        builds = [self._build(trial, side, data) for side, data in zip(self.sides, (first, second), strict=True)]
        order = self._order(trial, builds)
        ran = self.run(order)
        return len(ran) == len(builds) and self.differs(ran, order.launch, Ptx(trial.ptx))

    def _order(self, trial: Trial, builds: Sequence[Build]) -> Order:
        """These builds on the trial's contents, which lie in files named by their hashes."""
        assert trial.launch is not None
        pairs = zip(trial.launch.buffers, trial.contents, strict=True)
        buffers = tuple(replace(buffer, values=self._file(data, "bin")) for buffer, data in pairs)
        return Order(replace(trial.launch, buffers=buffers), tuple(builds), (RECORDED,), RUNS, self.folder)

    def _build(self, trial: Trial, side: Recipe, data: bytes) -> Build:
        path = self.folder / self._file(data, "cubin")
        return Build(side.label, path, trial.entry, side.ptxas.version, side.options, side.as_used)

    def _file(self, data: bytes, ending: str) -> str:
        name = f"{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        if not (self.folder / name).exists():
            (self.folder / name).write_bytes(data)
        return name
