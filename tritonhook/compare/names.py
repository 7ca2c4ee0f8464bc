"""Compare one kernel under two names: assemble it under both with the same ptxas and options, and compare the code.

The trigger is a part of a name, "cutlass", that makes ptxas use its other scheduler. The package `timing` compares the
speed on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tritonhook._display import Brief, Notebook
from tritonhook.compare.diff import CubinDiff, diff
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.toolchain import (
    DEFAULT_ARGUMENTS,
    MAX_RUNS,
    STEADY_RUNS,
    Assembled,
    AssembleError,
    Crash,
    Toolchain,
    assemble,
)
from tritonhook.rename import Rename, control_name, removes_trigger

MAX_DRAW_SECONDS = 20.0  # time limit of the search for code that ptxas makes for all names


@dataclass(frozen=True, slots=True, repr=False)
class RenamedBuild(Brief):
    """A kernel assembled under one name. result: a Crash if ptxas made no cubin."""

    _shown: ClassVar[tuple[str, ...]] = ("kernel",)

    kernel: str
    ptx: Ptx
    result: Assembled | Crash

    @property
    def cubin(self) -> Cubin | None:
        return self.result.cubin if isinstance(self.result, Assembled) else None

    @property
    def code(self) -> bytes | None:
        return None if self.cubin is None else self.cubin.text(self.kernel)


@dataclass(frozen=True, slots=True, repr=False)
class NameComparison(Notebook):
    """A kernel under its original name, a new name and a control name.

    One of original and new name has the trigger: the word that makes ptxas use its second scheduler. The control name
    has the length of that name and no trigger.
    diff: comparison of the build with the trigger with the control. The control replaces the other build: it is the
    first side if the new name has the trigger, else the second side. None if ptxas crashed for one of the two.
    runs: how often the kernel was assembled under each name.
    codes: number of different codes for each name (original, renamed, control).
    control_diff: comparison of the build without the trigger with the control; None if their code is equal. ptxas can
    make different code, mostly with other register numbers, for two names without the trigger. A difference of that
    size is not an effect of the trigger.
    """

    _shown: ClassVar[tuple[str, ...]] = ("original", "renamed", "diff.verdict", "runs", "codes")

    original: RenamedBuild
    renamed: RenamedBuild
    control: RenamedBuild
    diff: CubinDiff | None
    control_diff: CubinDiff | None
    runs: int
    codes: tuple[int, int, int]

    def with_launches(self, dynamic_shared: int | None) -> NameComparison:
        """Add the dynamic shared memory of a launch, in bytes, to the diffs. Return the new comparison."""
        diff, control = (
            it and it.with_launches(dynamic_shared, dynamic_shared) for it in (self.diff, self.control_diff)
        )
        return replace(self, diff=diff, control_diff=control)

    @property
    def crashes(self) -> tuple[tuple[str, Crash], ...]:
        builds = (self.original, self.renamed, self.control)
        return tuple((b.kernel, b.result) for b in builds if isinstance(b.result, Crash))

    @property
    def plain(self) -> RenamedBuild:
        """The build whose name lacks the trigger; the original if neither or both names have it."""
        return self.renamed if removes_trigger(self.original.kernel, self.renamed.kernel) else self.original

    @property
    def control_is_neutral(self) -> bool | None:
        """Whether the control has the same code as the build without the trigger. None if ptxas crashed for one."""
        return None if self.plain.code is None or self.control.code is None else self.plain.code == self.control.code


def compare_names(
    ptx: Ptx,
    rename: Rename,
    toolchain: Toolchain,
    arguments: Sequence[str] = DEFAULT_ARGUMENTS,
    entry: str | None = None,
) -> NameComparison:
    """Assemble a kernel under both names and a control name, and compare the two builds with names of equal length.

    Raises UsageError if the rename does not change the name, and AssembleError if ptxas does not assemble the kernel
    under its original name.
    """
    old = ptx.only_entry(entry)
    new = rename.other_name(old)
    names = (old, new, control_name(old, new))
    builds = build_names(ptx, old, names, toolchain, arguments)
    if isinstance(builds[0].result, Crash):
        raise AssembleError(builds[0].result)
    # named: the name with the trigger. plain, control: names without it, for which ptxas should make equal code.
    named, plain, control = (0, 1, 2) if removes_trigger(old, new) else (1, 0, 2)
    before, after = (named, control) if named == 0 else (control, named)
    draws = [Draws((build,), 1) for build in builds]
    change = _diff_builds(builds[before], builds[after], toolchain)
    if not _is_settled(builds, plain, control, change):
        draws = draw(draws, toolchain, arguments)
        builds = choose(draws, named, plain, control)
        change = _diff_builds(builds[before], builds[after], toolchain)
    same = builds[plain].code == builds[control].code
    return NameComparison(
        builds[0],
        builds[1],
        builds[2],
        diff=change,
        control_diff=None if same else _diff_builds(builds[plain], builds[control], toolchain),
        runs=draws[0].runs,
        codes=(len(draws[0].codes), len(draws[1].codes), len(draws[2].codes)),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Draws(Brief):
    """The builds of one module in several runs of ptxas, which is not deterministic. builds: one for each code."""

    builds: tuple[RenamedBuild, ...]
    runs: int

    @property
    def codes(self) -> dict[bytes, RenamedBuild]:
        return {build.code: build for build in self.builds if build.code is not None}

    def plus(self, build: RenamedBuild) -> Draws:
        new = () if build.code is None or build.code in self.codes else (build,)
        return Draws((*self.builds, *new), self.runs + 1)


def _is_settled(builds: Sequence[RenamedBuild], plain: int, control: int, change: CubinDiff | None) -> bool:
    """Return True if one run per name is enough: there is a crash, equal code for all names, or proof that ptxas used
    its other scheduler for the name with the trigger and not for the control. change: the diff of these two."""
    codes = [build.code for build in builds]
    if change is None or None in codes or len(set(codes)) == 1:
        return True
    if codes[plain] != codes[control]:
        return False
    return change.other_scheduler == ((False, True) if change.a_kernel == builds[control].kernel else (True, False))


def draw(draws: Sequence[Draws], toolchain: Toolchain, arguments: Sequence[str]) -> list[Draws]:
    """Assemble each module repeatedly, with ptxas's memory at random addresses. Stop when all modules have a code in
    common, when ptxas proves to be deterministic, or at a limit of runs or time."""
    drawn = list(draws)
    deadline = time.monotonic() + MAX_DRAW_SECONDS
    while drawn[0].runs < MAX_RUNS and time.monotonic() < deadline:
        if set.intersection(*(set(item.codes) for item in drawn)):
            break
        if drawn[0].runs > STEADY_RUNS and all(len(item.codes) == 1 for item in drawn):
            break
        with tool_threads(len(drawn)) as pool:
            again = list(pool.map(lambda item: _build_again(item.builds[0], toolchain, arguments), drawn))
        drawn = [item.plus(build) for item, build in zip(drawn, again, strict=True)]
    return drawn


def _build_again(build: RenamedBuild, toolchain: Toolchain, arguments: Sequence[str]) -> RenamedBuild:
    return RenamedBuild(build.kernel, build.ptx, assemble(toolchain.ptxas, build.ptx, arguments, fixed_layout=False))


def choose(draws: Sequence[Draws], named: int, plain: int, control: int) -> list[RenamedBuild]:
    """Choose one build of each name for the comparison.

    Choose a code that all names have in common, if there is one. Else choose a code that the plain name and its control
    have in common, and the most similar code of the name with the trigger. If these two have no common code, choose the
    first builds.
    """
    shared = set(draws[plain].codes) & set(draws[control].codes)
    if not shared:
        return [item.builds[0] for item in draws]
    code, other = min(
        ((x, y) for x in sorted(shared) for y in sorted(draws[named].codes)), key=lambda pair: _distance(*pair)
    )
    builds = [item.builds[0] for item in draws]
    builds[plain], builds[control] = draws[plain].codes[code], draws[control].codes[code]
    builds[named] = draws[named].codes[other]
    return builds


def _distance(a: bytes, b: bytes) -> int:
    """Count the positions at which the instructions differ."""
    step = INSTRUCTION_BYTES
    return sum(a[i : i + step] != b[i : i + step] for i in range(0, max(len(a), len(b)), step))


def build_names(
    ptx: Ptx, entry: str, names: Sequence[str], toolchain: Toolchain, arguments: Sequence[str]
) -> list[RenamedBuild]:
    """Assemble a module once for each name of `names`, with `entry` renamed to it, in parallel."""
    texts = [ptx if name == entry else ptx.rename_entries({entry: name}) for name in names]
    with tool_threads(len(names)) as pool:
        results = list(pool.map(lambda text: toolchain.assemble(text, arguments), texts))
    return [RenamedBuild(*parts) for parts in zip(names, texts, results, strict=True)]


def _diff_builds(a: RenamedBuild, b: RenamedBuild, toolchain: Toolchain) -> CubinDiff | None:
    if a.cubin is None or b.cubin is None:
        return None
    return diff_cubins(a.cubin, b.cubin, toolchain, a.kernel, b.kernel)


def diff_cubins(
    a: Cubin, b: Cubin, toolchain: Toolchain, a_kernel: str | None = None, b_kernel: str | None = None
) -> CubinDiff:
    """Disassemble and compare one kernel of each image. Raises CubinError, ToolError."""
    a_name, b_name = a.only_kernel(a_kernel), b.only_kernel(b_kernel)
    with tool_threads(2) as pool:
        a_code, b_code = pool.map(toolchain.disassemble, (a, b), ([a_name], [b_name]))
    return diff(a, b, a_code[a_name], b_code[b_name])
