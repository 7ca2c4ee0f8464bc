"""Verify one kernel: choose ptxas versions and optimisation levels, assemble a build with each, run the builds on the
same buffers, and judge. If builds differ, find the first region in which their machine code differs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.contents import INPUTS, NORMAL, RECORDED
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.launches.steering import steering_buffers
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptx.module import Ptx, newest_version, version_for
from tritonhook.ptxas.command_line import level_of, without_level
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Assembled, Crash, Toolchain, assemble, reading_toolchain
from tritonhook.verify.judgement import Judgement, Latitude, judge
from tritonhook.verify.model import Build, Failure, FailureKind, Order, Ran, Runner, Verdict

_SHOWN = 12  # instructions that a Region lists of each build
_NEAR = 3  # a region may contain this many equal instructions in a row


@dataclass(frozen=True, slots=True)
class Region:
    """The first region in which the machine code of two builds differs. a, b: labels of the builds.

    a_code, b_code: instructions of each build, as (offset in bytes, text). further: number of later regions. places:
    number of differing instructions in all regions.
    """

    a: str
    b: str
    a_code: tuple[tuple[int, str], ...]
    b_code: tuple[tuple[int, str], ...]
    further: int
    places: int


def parting(toolchain: Toolchain, a: Build, b: Build) -> Region:
    """Disassemble two builds, and find the first region that differs. Raises ToolError or CubinError."""
    from tritonhook.compare.alignment import align, align_texts

    codes = [_sass(toolchain, build) for build in (a, b)]
    rows = align(*codes).rows
    if all(row.in_place for row in rows):  # only registers differ
        rows = align_texts(*([_text(i) for i in code.instructions] for code in codes))
    regions: list[list[int]] = []
    for index, row in enumerate(rows):
        if not row.in_place:
            if regions and index - regions[-1][-1] <= _NEAR:
                regions[-1].append(index)
            else:
                regions.append([index])
    if not regions:
        return Region(a.label, b.label, (), (), 0, 0)
    shown = rows[max(0, regions[0][0] - 1) : regions[0][-1] + 2]
    a_code = _listed(codes[0], [row.a for row in shown])
    b_code = _listed(codes[1], [row.b for row in shown])
    return Region(a.label, b.label, a_code, b_code, len(regions) - 1, sum(map(len, regions)))


def _listed(code: Sass, places: Sequence[int | None]) -> tuple[tuple[int, str], ...]:
    instructions = [code.instructions[place] for place in places if place is not None]
    return tuple((instruction.offset, _text(instruction)) for instruction in instructions[:_SHOWN])


def _sass(toolchain: Toolchain, build: Build) -> Sass:
    cubin = Cubin.from_bytes(build.path.read_bytes(), str(build.path))
    return toolchain.disassemble(cubin, [build.entry])[build.entry]


def _text(instruction: Instruction) -> str:
    return " ".join(part for part in (instruction.predicate, instruction.opcode, instruction.operands) if part)


NO_CONTRACTION = "--fmad=false"
_ASSEMBLING_S = 120.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to assemble a kernel. as_used: with the capture's options unchanged, which allow contraction (fma for mul
    and add); all other recipes forbid it. others: alternatives, tried in order if this recipe makes no cubin."""

    ptxas: Tool
    options: tuple[str, ...]
    as_used: bool = False
    others: tuple[Recipe, ...] = ()

    @property
    def label(self) -> str:
        """Name of the recipe, e.g. "13.5.37 -O3"."""
        return f"{self.ptxas.version} {level_of(self.options)}{', as used' if self.as_used else ''}"


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """A recipe that made no cubin, with the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class Built:
    """Builds of a kernel. builds: the reference first; no two have the same code. same_code: (label of a build, label
    of another recipe that gave the same code). failed: recipes that made no cubin."""

    builds: tuple[Build, ...]
    same_code: tuple[tuple[str, str], ...]
    failed: tuple[NotBuilt, ...]


def recipes(
    own: Tool, options: Sequence[str], latitude: Latitude, tools: Sequence[Tool], each: bool = False
) -> tuple[Recipe, ...]:
    """List the recipes to compare. First the reference: the ptxas in use, with its options. Then the same ptxas at -O0,
    or -O1 if that fails; then the oldest and the newest of `tools` that accept the kernel. All forbid contraction; if
    the PTX allows it, a last recipe has the options unchanged. each: use all of `tools`, not only the oldest and the
    newest."""
    fixed = tuple(option for option in options if not option.startswith(("--fmad", "-fmad")))
    strict = (*fixed, NO_CONTRACTION) if latitude.contraction else tuple(options)
    wanted = [Recipe(own, strict)]
    flat = without_level(strict)
    low = [Recipe(own, (*flat, name)) for name in ("-O0", "-O1") if name != level_of(options)]
    if low:
        wanted.append(replace(low[0], others=tuple(low[1:])))
    key = version_key(own.version)
    by_version = sorted({tool.version: tool for tool in tools}.values(), key=lambda tool: version_key(tool.version))
    older = [tool for tool in by_version if version_key(tool.version) < key]
    newer = [tool for tool in reversed(by_version) if version_key(tool.version) > key]
    for several in [[tool] for tool in (*older, *reversed(newer))] if each else (older, newer):
        chain = [Recipe(tool, strict) for tool in several]
        if chain:
            wanted.append(replace(chain[0], others=tuple(chain[1:])))
    if strict != tuple(options):
        wanted.append(Recipe(own, tuple(options), as_used=True))
    return tuple(wanted)


def build_all(ptx: Ptx, entry: str, wanted: Sequence[Recipe], folder: Path, pool: Executor) -> Built:
    """Assemble a kernel by each recipe, several at a time, into `folder`. Raises UsageError if the reference cannot be
    assembled."""
    folder.mkdir(parents=True, exist_ok=True)
    made = list(pool.map(lambda recipe: _make(ptx, recipe), wanted))
    builds: list[Build] = []
    same: list[tuple[str, str]] = []
    failed: list[NotBuilt] = []
    codes: dict[bytes, str] = {}
    for number, (tried, result) in enumerate(made):
        failed += tried
        if result is None:
            if not builds:
                raise UsageError(f"{entry}: the reference cannot be assembled: {tried[0].reason}")
            continue
        recipe, assembled = result
        code = _code(assembled.cubin, entry)
        if code in codes:
            same.append((codes[code], recipe.label))
            continue
        codes[code] = recipe.label
        path = folder / f"{number}.cubin"
        path.write_bytes(assembled.cubin.data)
        builds.append(Build(recipe.label, path, entry, recipe.ptxas.version, recipe.options, recipe.as_used))
    return Built(tuple(builds), tuple(same), tuple(failed))


def _code(cubin: Cubin, entry: str) -> bytes:
    """Read the bytes of a kernel's instructions and constants."""
    return b"".join(part.data for part in cubin.sections_of(entry) if part.role.startswith((".text", ".nv.const")))


def _make(ptx: Ptx, recipe: Recipe) -> tuple[list[NotBuilt], tuple[Recipe, Assembled] | None]:
    """Assemble by a recipe, or by its first alternative that makes a cubin. Returns the recipes that failed, and
    the recipe that succeeded with its cubin, or None."""
    failed: list[NotBuilt] = []
    for variant in (recipe, *recipe.others):
        version = version_for(ptx.version, ptx.target, newest_version(variant.ptxas.version))
        try:
            result = assemble(variant.ptxas, ptx.with_directives(version), variant.options, _ASSEMBLING_S)
        except TritonHookError as error:
            failed.append(NotBuilt(variant.label, str(error).splitlines()[0]))
            continue
        if not isinstance(result, Crash):
            return failed, (variant, result)
        failed.append(NotBuilt(variant.label, result.summary))
    return failed, None


# --- running and judging them ---------------------------------------------------------------------


RUNS = 3
_AGAIN = 8  # further runs of two builds that differ, to find out whether the runs of one build differ too


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel with one launch. keep: numbers of the buffers whose contents steer the kernel, e.g. as indices.

    folder: folder with the recorded contents of the launch's buffers.
    """

    kernel: str
    launch: Launch
    latitude: Latitude
    keep: tuple[int, ...]
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification of one kernel.

    builds: the builds that ran, the reference first. groups: labels of builds that stored the same bits on the input of
    the worst finding. region: the first difference between the machine code of two builds that stored other bits; of
    all such pairs the most similar one. notes: what was not run, and what the verdict does not cover. seconds: time of
    the verification without assembling."""

    kernel: str
    launch: str
    judgement: Judgement
    builds: tuple[Build, ...] = ()
    same_code: tuple[tuple[str, str], ...] = ()
    failed: tuple[NotBuilt, ...] = ()
    ran: tuple[Ran, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    region: Region | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict


def case_of(
    kernel: str, launch: Launch, folder: Path | None, ptx: Ptx | None, latitude: Latitude | None = None
) -> Case:
    """Make a case; find the buffers that steer the kernel, whose contents no input may change. ptx: None for cubins;
    then all buffers of the launch count as steering. latitude: needed only for `verify`, which judges builds by it."""
    latitude = latitude or Latitude()
    return Case(kernel, launch, latitude, steering_buffers(kernel, launch, ptx), folder)


def inputs_for(case: Case, wanted: Sequence[str] = INPUTS) -> tuple[str, ...]:
    """Leave out inputs that are equal for this launch: without recorded contents RECORDED equals NORMAL; if all buffers
    keep their contents, all inputs are equal."""
    recorded = case.folder is not None and any(
        buffer.values and (case.folder / buffer.values).exists() for buffer in case.launch.buffers
    )
    free = [b for n, b in enumerate(case.launch.buffers) if n not in case.keep and b.size]
    if not free:
        return (RECORDED,) if RECORDED in wanted else tuple(wanted[:1])
    integers = any(not buffer.dtype.startswith(("float", "bfloat", "complex")) for buffer in free)
    is_normal = not recorded and not integers and NORMAL in wanted
    return tuple(name for name in wanted if not (name == RECORDED and is_normal))


def verify(case: Case, built: Built, executor: Runner, inputs: Sequence[str] = INPUTS, runs: int = RUNS) -> Verified:
    """Run all builds on all inputs, and judge. inputs: names, as in INPUTS. runs: number of runs of each build.
    Raises DeviceError without a GPU."""
    started = time.monotonic()
    order = _order(case, built.builds, inputs_for(case, inputs), runs)
    judgement, ran = _judged(case, order, executor)
    worst = judgement.worst
    groups = _groups(ran, worst.input) if worst is not None and worst.verdict is Verdict.DIFFERENT else ()
    return Verified(
        case.kernel,
        case.launch.summary,
        judgement,
        built.builds,
        built.same_code,
        built.failed,
        ran,
        groups,
        _region(built.builds, groups),
        tuple(_notes(judgement, ran)),
        time.monotonic() - started,
    )


def skipped(kernel: str, launch: str, reason: str) -> Verified:
    """Make the result of a kernel that could not be verified."""
    return Verified(kernel, launch, Judgement(Verdict.SKIPPED), notes=(reason,))


def _order(case: Case, builds: tuple[Build, ...], inputs: tuple[str, ...], runs: int) -> Order:
    """Make the Order for all builds on all inputs. A single build is listed twice: it is then compared with itself."""
    if len(builds) == 1:
        builds = (*builds, replace(builds[0], label=f"{builds[0].label}, again"))
    return Order(case.launch, builds, inputs, runs, case.folder, case.keep)


def _judged(case: Case, order: Order, executor: Runner) -> tuple[Judgement, tuple[Ran, ...]]:
    """Run and judge a case. If two builds differ, run both several times more: a rare race may have changed a
    result."""
    ran = executor.run(order)
    as_used = [build.label for build in order.builds if build.as_used]
    judgement = judge(ran, case.launch, case.latitude, as_used)
    worst = judgement.worst
    if worst is None or worst.verdict is not Verdict.DIFFERENT:
        return judgement, ran
    pair = tuple(b for b in order.builds if b.label in (order.builds[0].label, worst.build))
    again = executor.run(replace(order, builds=pair, inputs=(worst.input,), runs=_AGAIN))
    unsteady = {each.build: each.unsteady for each in again if each.unsteady}
    merged = tuple(
        replace(each, unsteady=unsteady[each.build]) if each.input == worst.input and each.build in unsteady else each
        for each in ran
    )
    return judge(merged, case.launch, case.latitude, as_used), merged


def _notes(judgement: Judgement, ran: Sequence[Ran]) -> Iterator[str]:
    """Note which builds and inputs were left out, and if the comparison proves nothing."""
    refused = {r.build: r.failure.text for r in ran if r.failure and r.failure.kind is FailureKind.REFUSED}
    for build, text in refused.items():
        yield f"{build} was not run: {text}"
    for name in judgement.unfit:
        yield f"no build finished on the input {name!r}, which is left out"
    if ran and not any(build.stored for build in ran):
        yield "no build changed any buffer, so that equal buffers prove nothing"


def _groups(ran: Sequence[Ran], name: str) -> tuple[tuple[str, ...], ...]:
    """Group builds that stored the same bits on an input, the largest group first. name: name of the input."""
    groups: dict[tuple[tuple[int, str], ...] | Failure, list[str]] = {}
    for build in ran:
        if build.input == name:
            stored = tuple((difference.buffer, difference.digest) for difference in build.differences)
            groups.setdefault(build.failure or stored, []).append(build.build)
    return tuple(tuple(labels) for labels in sorted(groups.values(), key=len, reverse=True))


def _region(builds: Sequence[Build], groups: Sequence[Sequence[str]]) -> Region | None:
    """Find the first difference between the machine code of two builds: one that stored the same as the reference, and
    one that did not. Both have the same optimisation level if possible."""
    if len(groups) < 2:
        return None
    own = next((group for group in groups if builds[0].label in group), ())
    codes = [build for build in builds if build.path.suffix != ".ptx"]
    mine = [build for build in codes if build.label in own]
    others = [build for build in codes if build.label not in own]
    if not (mine and others):
        return None
    a, b = min(((a, b) for a in mine for b in others), key=lambda pair: _unlike(*pair))
    try:
        return parting(reading_toolchain(), a, b)
    except (TritonHookError, OSError):
        return None


def _unlike(a: Build, b: Build) -> int:
    """Score how little two builds have in common: the level counts most."""
    return 2 * (level_of(a.options) != level_of(b.options)) + (a.options != b.options)
