"""Make a reproducer of a DIFFERENT kernel: minimise it with launches, and collect what the report says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.record import Launch
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.retarget import newest_version, retarget, version_for
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.builds import Recipe
from tritonhook.verify.contents import before
from tritonhook.verify.differential import Case, Verified
from tritonhook.verify.judgement import judge
from tritonhook.verify.latitude import latitude_of
from tritonhook.verify.launched import LaunchedJudge, Run
from tritonhook.verify.minimise import SECONDS, Minimised, Trial, minimise
from tritonhook.verify.model import Ran, Verdict
from tritonhook.verify.region import parting
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
    first, second = (
        replace(variant, options=tuple(option for option in variant.options if option not in _WITHOUT_EFFECT))
        for variant in (by_label[verified.builds[0].label], by_label[worst.build])
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
