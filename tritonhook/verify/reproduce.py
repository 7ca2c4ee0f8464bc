"""Make a reproducer of a kernel with verdict DIFFERENT: minimise it by launching trials, and write a folder with the
PTX, a report, and a program that needs only Python and the driver (reproduce.py.in, with the case inserted)."""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.contents import RECORDED, before
from tritonhook.capture.launches.record import DTYPE_BYTES, Descriptor, Launch, Packed, Pointer, Scalar
from tritonhook.capture.launches.tensor_map import BYTES, encoded
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptx.module import Ptx, newest_version, version_for
from tritonhook.ptxas.pool import Job, sweep
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.ptxas.toolchain import reading_toolchain
from tritonhook.verify.differential import Case, Recipe, Verified, parting
from tritonhook.verify.judgement import judge, latitude_of
from tritonhook.verify.minimise import Minimised, Trial, minimise
from tritonhook.verify.model import Build, Order, Ran, Runner, Verdict

_WITHOUT_EFFECT = ("-v", "--verbose", "-lineinfo", "--generate-line-info")  # ptxas options that change no machine code


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A written reproducer. files: paths of kernel.ptx, reproduce.py, report.md."""

    minimised: Minimised
    files: tuple[Path, ...]

    @property
    def note(self) -> str:
        """Summary of the reproducer, in one line."""
        return f"minimised from {self.minimised.summary}: {self.files[-1]}"


def reproduce(
    case: Case,
    ptx: Ptx,
    verified: Verified,
    recipes: Sequence[Recipe],
    runner: Runner,
    folder: Path,
    on_step: Callable[[str, Trial], None],
) -> Reproduced:
    """Minimise a kernel with verdict DIFFERENT, and write a reproducer into `folder`.

    recipes: the recipes of the builds. runner: has run the builds; its method `trials` makes the runner for builds of
    smaller kernels. on_step: as in minimise. Raises UsageError if the difference does not appear again.
    """
    sides = _sides(verified, recipes)
    with tempfile.TemporaryDirectory(prefix="tritonhook-minimise-") as place, runner.trials() as trials:
        judge_ = LaunchedJudge(sides, trials.run_until_lost, Path(place), partial(_is_different, sides))
        smallest = minimise(_start(case, ptx, verified, sides), judge_, on_step=on_step)
        written = write_reproducer(folder, _gathered(smallest.trial, judge_, runner.device or "a GPU"))
    return Reproduced(smallest, written)


def _sides(verified: Verified, recipes: Sequence[Recipe]) -> tuple[Recipe, Recipe]:
    """Choose the recipes of the reference and of the build that differs most."""
    worst = verified.judgement.worst
    if verified.verdict is not Verdict.DIFFERENT or worst is None or worst.build is None:
        raise UsageError(
            f"{verified.kernel}: {verified.verdict.value}; only a kernel that is DIFFERENT can be minimised"
        )
    by_label = {variant.label: variant for recipe in recipes for variant in (recipe, *recipe.others)}
    reference = verified.builds[0].label
    if reference not in by_label:  # the reference is the PTX: use a build that stores the same
        alike = next((group for group in verified.groups if reference in group), ())
        reference = next((label for label in alike if label in by_label), "")
        if not reference:
            raise UsageError(f"{verified.kernel}: no build stores the same as the PTX, so no two can be compared")
    first, second = (
        replace(variant, options=tuple(option for option in variant.options if option not in _WITHOUT_EFFECT))
        for variant in (by_label[reference], by_label[worst.build])
    )
    return first, second


def _start(case: Case, ptx: Ptx, verified: Verified, sides: Sequence[Recipe]) -> Trial:
    """Make the first trial: PTX of a version that both ptxas accept, and the buffer contents for which the builds
    differ."""
    worst = verified.judgement.worst
    assert worst is not None
    versions = [version_for(ptx.version, ptx.target, newest_version(side.ptxas.version)) for side in sides]
    text = ptx.with_directives(min(versions, key=version_key)).text
    numbers = range(len(case.launch.buffers))
    contents = tuple(before(case.launch, case.folder, number, worst.input, case.keep) for number in numbers)
    return Trial(text, case.kernel, case.launch, contents)


def _is_different(sides: Sequence[Recipe], ran: Sequence[Ran], launch: Launch, ptx: Ptx) -> bool:
    as_used = [side.label for side in sides if side.as_used]
    return judge(ran, launch, latitude_of(ptx), as_used).verdict is Verdict.DIFFERENT


def _gathered(trial: Trial, judge_: LaunchedJudge, gpu: str) -> Reproducer:
    """Collect the stored values, the machine code, and the results of other ptxas versions."""
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
    return Reproducer(title, trial, (first, second), gpu, tuple(_tried(trial, judge_)))


def _tried(trial: Trial, judge_: LaunchedJudge) -> Iterator[Tried]:
    """Yield for each further installed ptxas version with which side it agrees."""
    first, second = judge_.sides
    by_version = {tool.version: tool for tool in available_ptxas()}
    for tool in sorted(by_version.values(), key=lambda tool: version_key(tool.version)):
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

RUNS = 2  # runs of each build: if two runs of a build differ, the trial proves nothing


Run = Callable[[Order], Sequence[Ran]]
Differs = Callable[[Sequence[Ran], Launch, Ptx], bool]


def stored_other(ran: Sequence[Ran], launch: Launch, ptx: Ptx) -> bool:
    """Check whether the second build stored other bytes than the first in every run, and both finished."""
    first, second = ran
    return bool(second.differences) and first.is_clean and replace(second, differences=()).is_clean


@dataclass(frozen=True, slots=True)
class LaunchedJudge:
    """Checks whether the builds of a trial by two assemblers store different values.

    run: runs the builds of an Order, as Runner.run_until_lost does. folder: folder for cubins and buffer contents.
    differs: decides by the results of both builds whether they differ.
    """

    sides: tuple[Recipe, Recipe]
    run: Run
    folder: Path
    differs: Differs = stored_other

    def __call__(self, trials: Sequence[Trial]) -> list[bool]:
        """Return for each trial whether it differs. All are assembled first, several at a time. Those whose machine
        codes differ are then launched, one after another in one process."""
        cubins = self._assembled(trials)
        return [self._differ(trial, *(cubins.get((trial.ptx, side)) for side in (0, 1))) for trial in trials]

    def builds(self, trial: Trial) -> tuple[Build, ...]:
        """Assemble the builds of a trial; fewer than two if one cannot be assembled."""
        cubins = self._assembled([trial])
        return tuple(
            self._build(trial, side, cubins[trial.ptx, number])
            for number, side in enumerate(self.sides)
            if (trial.ptx, number) in cubins
        )

    def stored(self, trial: Trial) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Run a trial that differs, and read what each side's kernel stores in its buffers."""
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
        """Assemble trials. Returns cubins by (PTX, number of the side), without those that ptxas rejects."""
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
        """Make the Order to run builds on the trial's contents, which are written to files named by their hashes."""
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


# --- writing it -----------------------------------------------------------------------------------


_PLACE = 'CASE = json.loads(r"""{}""")'
_SHOWN = 8  # number of differing elements that the report lists


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two assemblers. label: e.g. "ptxas 12.8.93 -O3". options: ptxas options, without the target.

    stored: contents of the buffers after the launch. code: its machine code in the first region that differs.
    """

    label: str
    options: tuple[str, ...]
    stored: tuple[bytes, ...]
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a further assembler. label: as in Side. finding: e.g. "as ptxas 12.8.93 -O3", or "as neither"."""

    label: str
    finding: str


@dataclass(frozen=True, slots=True)
class Reproducer:
    """A minimised kernel whose builds by two assemblers differ. gpu: name of the GPU that ran it. tried: further
    assemblers."""

    title: str
    trial: Trial
    sides: tuple[Side, Side]
    gpu: str
    tried: tuple[Tried, ...] = ()


def write_reproducer(folder: Path, case: Reproducer) -> tuple[Path, ...]:
    """Write kernel.ptx, reproduce.py and report.md into a folder. Returns their paths. Raises UsageError if the trial
    has no launch."""
    if case.trial.launch is None:
        raise UsageError(f"{case.trial.entry}: no launch, so nothing can be reproduced; give one with --args")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"kernel.ptx": case.trial.ptx, "reproduce.py": program(case), "report.md": report(case)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return tuple(folder / name for name in texts)


# --- the program ---------------------------------------------------------------------------------


def program(reproducer: Reproducer) -> str:
    """Write the text of reproduce.py."""
    template = Path(__file__).with_name("reproduce.py.in").read_text()
    text = json.dumps(_case(reproducer), indent=1)
    if template.count(_PLACE) != 1:
        raise UsageError(f"reproduce.py.in must have {_PLACE!r} exactly once; please report it")
    return template.replace(_PLACE, f'CASE = json.loads(r"""\n{text}\n""")')


def _case(reproducer: Reproducer) -> dict[str, Any]:
    trial, launch = reproducer.trial, reproducer.trial.launch
    assert launch is not None
    if len(trial.contents) != len(launch.buffers):
        raise UsageError(
            f"{trial.entry}: the launch has {len(launch.buffers)} buffers, but there are contents of "
            f"{len(trial.contents)}"
        )
    buffers = [
        {"dtype": buffer.dtype, "width": DTYPE_BYTES[buffer.dtype], "size": buffer.size, "data": _packed(data)}
        for buffer, data in zip(launch.buffers, trial.contents, strict=True)
    ]
    return {
        "kernel": trial.entry,
        "target": Ptx(trial.ptx).target,
        "options": [list(side.options) for side in reproducer.sides],
        "grid": launch.grid,
        "block": launch.block,
        "cluster": launch.cluster,
        "shared": launch.shared,
        "cooperative": launch.cooperative,
        "arguments": _arguments(launch),
        "buffers": buffers,
    }


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _arguments(launch: Launch) -> list[dict[str, Any]]:
    arguments: list[dict[str, Any]] = []
    for parameter in launch.parameters:
        if isinstance(parameter, Scalar):
            arguments.append({"bytes": parameter.bytes.hex()})
        elif isinstance(parameter, Packed):
            arguments.append({"bytes": parameter.data, "pointers": parameter.pointers})
        elif isinstance(parameter, Descriptor) and parameter.tiling.by_host:
            data = encoded(parameter.tiling, 0).ljust(BYTES, b"\0")
            arguments.append({"bytes": data.hex(), "pointers": [(0, parameter.buffer, parameter.offset)]})
        elif isinstance(parameter, (Pointer, Descriptor)):
            tiling = {"tiling": asdict(parameter.tiling)} if isinstance(parameter, Descriptor) else {}
            arguments.append({"buffer": parameter.buffer, "offset": parameter.offset} | tiling)
        else:
            arguments.append({"scratch": parameter.size})
    return arguments


# --- the report ----------------------------------------------------------------------------------


def report(reproducer: Reproducer) -> str:
    """Write the text of report.md. It is for the maintainers of the assembler, who do not know this project."""
    ptx = Ptx(reproducer.trial.ptx)
    first, second = reproducer.sides
    lines = [
        f"# {reproducer.title}",
        "",
        f"The kernel `{reproducer.trial.entry}` below, for {ptx.target}, stores other values when it is assembled by "
        f"{second.label} than by {first.label}. The PTX has no undefined value and no race that would allow both.",
        "",
        *_section("Assemblers", _table(("assembler", "result"), _listed(reproducer))),
        *_section("To reproduce", _fenced("console", _commands(reproducer, ptx.target))),
        *_section("PTX", _fenced("text", reproducer.trial.ptx.rstrip().splitlines())),
        *_values(reproducer),
    ]
    for side in reproducer.sides:
        if side.code:
            lines += _section(f"Machine code of {side.label}", _fenced("text", side.code))
    return "\n".join(lines).rstrip() + "\n"


def _commands(reproducer: Reproducer, target: str) -> list[str]:
    commands = [
        f"$ ptxas -arch={target} {' '.join([*side.options, 'kernel.ptx'])} -o {name}.cubin    # {side.label}"
        for name, side in zip(("first", "second"), reproducer.sides, strict=True)
    ]
    return [
        *commands,
        "$ python reproduce.py first.cubin second.cubin",
        "$ python reproduce.py FIRST/ptxas SECOND/ptxas",
    ]


def _listed(reproducer: Reproducer) -> list[tuple[str, str]]:
    first, second = reproducer.sides
    rows = [(first.label, "first"), (second.label, "second")]
    return [*rows, *((tried.label, tried.finding) for tried in reproducer.tried)]


def _values(reproducer: Reproducer) -> list[str]:
    """List the first elements that differ."""
    assert reproducer.trial.launch is not None
    lines: list[str] = []
    for number, buffer in enumerate(reproducer.trial.launch.buffers):
        width = DTYPE_BYTES[buffer.dtype]
        first, second = (side.stored[number] for side in reproducer.sides)
        pairs = [(at, first[at : at + width], second[at : at + width]) for at in range(0, buffer.size, width)]
        rows = [(str(at // width), _bits(a), _bits(b)) for at, a, b in pairs if a != b]
        if rows:
            count = f"{len(rows):,} of {len(pairs):,} elements differ"
            table = _table(("element", *(side.label for side in reproducer.sides)), rows[:_SHOWN])
            lines += _section(f"Buffer {number} ({buffer.dtype}): {count}", table)
    return [*lines, f"Executed on {reproducer.gpu}.", ""]


def _bits(data: bytes) -> str:
    return f"0x{data[::-1].hex()}"


def _section(title: str, body: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *body, ""]


def _fenced(language: str, lines: Sequence[str]) -> list[str]:
    return [f"```{language}", *lines, "```"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
