"""Make a reproducer of a DIFFERENT kernel: minimise it with launches, and collect what the report says."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.lab.sweep import Job, sweep
from tritonhook.ptx.module import Ptx, newest_version, retarget, version_for
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.contents import before
from tritonhook.verify.differential import Case, Recipe, Verified, parting
from tritonhook.verify.judgement import judge, latitude_of
from tritonhook.verify.minimise import SECONDS, Minimised, Trial, minimise
from tritonhook.verify.model import RECORDED, Build, Order, Ran, Verdict
from tritonhook.verify.reproducer import Reproducer, Side, Tried, write_reproducer

_WITHOUT_EFFECT = ("-v", "--verbose", "-lineinfo", "--generate-line-info")  # on the machine code


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A reproducer that was written. files: kernel.ptx, reproduce.py, report.md."""

    minimised: Minimised
    files: tuple[Path, ...]

    @property
    def note(self) -> str:
        """What was made, in one line."""
        return f"minimised from {self.minimised.summary}: {self.files[-1]}"


def reproduce(
    case: Case,
    ptx: Ptx,
    result: Verified,
    recipes: Sequence[Recipe],
    run: Run,
    folder: Path,
    *,
    gpu: str,
    tools: Sequence[Tool] = (),
    seconds: float = SECONDS,
    on_step: Callable[[str, Trial], None] | None = None,
) -> Reproduced:
    """Minimise a kernel that came out DIFFERENT, and write a reproducer into `folder`.

    recipes: that made the builds. run: carries out an order, as Executor.run_until_lost does. tools: further ptxas, for
    the report. Raises UsageError if the difference does not come again.
    """
    sides = _sides(result, recipes)
    with tempfile.TemporaryDirectory(prefix="tritonhook-minimise-") as place:
        judge_ = LaunchedJudge(sides, run, Path(place), partial(_is_different, sides))
        smallest = minimise(_start(case, ptx, result, sides), judge_, seconds, on_step)
        written = write_reproducer(folder, _gathered(smallest.trial, judge_, gpu, tools))
    return Reproduced(smallest, written)


def _sides(verified: Verified, recipes: Sequence[Recipe]) -> tuple[Recipe, Recipe]:
    """The recipes of the reference and of the build that differs most."""
    worst = verified.judgement.worst
    if verified.verdict is not Verdict.DIFFERENT or worst is None or worst.build is None:
        raise UsageError(
            f"{verified.kernel}: {verified.verdict.value}; only a kernel that is DIFFERENT can be minimised"
        )
    by_label = {variant.label: variant for recipe in recipes for variant in (recipe, *recipe.others)}
    reference = verified.builds[0].label
    if reference not in by_label:  # the PTX itself: a build that stores the same stands for it
        alike = next((group for group in verified.groups if reference in group), ())
        reference = next((label for label in alike if label in by_label), "")
        if not reference:
            raise UsageError(f"{verified.kernel}: no build stores what the PTX says, so that no two can be compared")
    first, second = (
        replace(variant, options=tuple(option for option in variant.options if option not in _WITHOUT_EFFECT))
        for variant in (by_label[reference], by_label[worst.build])
    )
    return first, second


def _start(case: Case, ptx: Ptx, verified: Verified, sides: Sequence[Recipe]) -> Trial:
    """The kernel as both sides read it, with the contents on which it differs."""
    worst = verified.judgement.worst
    assert worst is not None
    versions = [version_for(ptx.version, ptx.target, newest_version(side.ptxas.version)) for side in sides]
    text = retarget(ptx, ptx.target, min(versions, key=version_key)).text
    numbers = range(len(case.launch.buffers))
    contents = tuple(before(case.launch, case.folder, number, worst.input, case.keep) for number in numbers)
    return Trial(text, case.kernel, case.launch, contents)


def _is_different(sides: Sequence[Recipe], ran: Sequence[Ran], launch: Launch, ptx: Ptx) -> bool:
    as_used = [side.label for side in sides if side.as_used]
    return judge(ran, launch, latitude_of(ptx), as_used).verdict is Verdict.DIFFERENT


def _gathered(trial: Trial, judge_: LaunchedJudge, gpu: str, tools: Sequence[Tool]) -> Reproducer:
    """The values, the machine code and what other versions do."""
    codes: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
    with suppress(TritonHookError):  # without nvdisasm the report has no machine code
        region = parting(reading_toolchain(), *judge_.builds(trial))
        codes = tuple(text for _, text in region.a_code), tuple(text for _, text in region.b_code)
    stored = judge_.stored(trial)
    first, second = (
        Side(f"ptxas {side.label}", side.options, values, code)
        for side, code, values in zip(judge_.sides, codes, stored, strict=True)
    )
    title = f"{second.label} and {first.label} store different values for the same PTX ({Ptx(trial.ptx).target})"
    return Reproducer(title, trial, (first, second), gpu, tuple(_tried(trial, judge_, tools)))


def _tried(trial: Trial, judge_: LaunchedJudge, tools: Sequence[Tool]) -> Iterator[Tried]:
    """Which side each further version agrees with."""
    first, second = judge_.sides
    for tool in sorted({tool.version: tool for tool in tools}.values(), key=lambda tool: version_key(tool.version)):
        if tool.version in (first.ptxas.version, second.ptxas.version):
            continue
        other = Recipe(tool, first.options)
        pairs = [LaunchedJudge((side, other), judge_.run, judge_.folder, judge_.differs) for side in (first, second)]
        if len(pairs[0].builds(trial)) < 2:
            finding = "cannot assemble it"
        else:
            apart = [pair([trial])[0] for pair in pairs]
            agrees = {(False, True): f"as ptxas {first.label}", (True, False): f"as ptxas {second.label}"}
            finding = agrees.get((apart[0], apart[1]), "as neither" if all(apart) else "not known")
        yield Tried(f"ptxas {other.label}", finding)


# --- builds that are launched --------------------------------------------------------------------
# Two assemblers make each trial's kernel, and both run on its buffers.

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
