"""One kernel under two names: assemble both with the same ptxas and options, and diff them.

Timing two cubins on a GPU belongs here too; so far this compares code only.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tritonhook.cubin import Cubin
from tritonhook.diff import CubinDiff, diff
from tritonhook.errors import UsageError
from tritonhook.ptx import Ptx
from tritonhook.rename import TRIGGER, Rename, control_name
from tritonhook.toolchain import DEFAULT_ARGUMENTS, Assembled, AssembleError, Crash, Toolchain, assemble

RUNS = 8  # how often a module is assembled again in search of a code that both names can have


@dataclass(frozen=True, slots=True)
class Build:
    """A kernel assembled under one name. `result` is a Crash where ptxas made no cubin."""

    kernel: str
    ptx: Ptx
    result: Assembled | Crash

    @property
    def cubin(self) -> Cubin | None:
        return self.result.cubin if isinstance(self.result, Assembled) else None

    @property
    def code(self) -> bytes | None:
        return None if self.cubin is None else self.cubin.text(self.kernel)


@dataclass(frozen=True, slots=True)
class NameComparison:
    """A kernel under its own name, a new one, and a control name as long as the one with the trigger.

    diff: the pair of equal name length; a is the side before the rename. None if one of the pair crashed.
    control_diff: the control against the side without the trigger, where their code differs. ptxas can give
    two ordinary names different code too (register numbers, mostly): that is the floor below which a
    difference says nothing about the trigger.
    """

    original: Build
    renamed: Build
    control: Build
    diff: CubinDiff | None
    control_diff: CubinDiff | None

    @property
    def crashes(self) -> tuple[tuple[str, Crash], ...]:
        builds = (self.original, self.renamed, self.control)
        return tuple((b.kernel, b.result) for b in builds if isinstance(b.result, Crash))

    @property
    def plain(self) -> Build:
        """The side whose name does not have the trigger (the original, if neither or both have it)."""
        return self.renamed if TRIGGER in self.original.kernel and TRIGGER not in self.renamed.kernel else self.original

    @property
    def control_is_neutral(self) -> bool | None:
        """Whether the control has the very code of the plain side. None if one of them crashed."""
        return None if self.plain.code is None or self.control.code is None else self.plain.code == self.control.code


def compare_names(
    ptx: Ptx,
    rename: Rename,
    toolchain: Toolchain,
    arguments: Sequence[str] = DEFAULT_ARGUMENTS,
    entry: str | None = None,
) -> NameComparison:
    """Assemble a kernel under both names and a control name, and diff the pair of equal length.

    Raises UsageError if the rename leaves the name as it is, AssembleError if ptxas does not take the
    kernel under its own name either.
    """
    old = ptx.only_entry(entry)
    new = rename.new_name(old)
    if new == old:
        raise UsageError(f"the rename leaves {old!r} as it is; choose another prefix, or --strip")
    removes_trigger = TRIGGER in old and TRIGGER not in new
    names = (old, new, control_name(old, new))
    builds = build_names(ptx, old, names, toolchain, arguments)
    if isinstance(builds[0].result, Crash):
        raise AssembleError(builds[0].result)
    original, renamed, control = builds
    if removes_trigger:
        renamed, control = settle((renamed, control), toolchain, arguments)
    else:
        original, control = settle((original, control), toolchain, arguments)
    pair = (original, control) if removes_trigger else (control, renamed)
    plain = renamed if removes_trigger else original
    floor = None if plain.code == control.code else _diff_builds(plain, control, toolchain)
    return NameComparison(original, renamed, control, _diff_builds(*pair, toolchain), floor)


def build_names(
    ptx: Ptx, entry: str, names: Sequence[str], toolchain: Toolchain, arguments: Sequence[str]
) -> list[Build]:
    """Assemble one module with `entry` under each name, side by side."""
    texts = [ptx if name == entry else ptx.rename_entries({entry: name}) for name in names]
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        results = list(pool.map(lambda text: toolchain.assemble(text, arguments), texts))
    return [Build(*parts) for parts in zip(names, texts, results, strict=True)]


def settle(builds: Sequence[Build], toolchain: Toolchain, arguments: Sequence[str], runs: int = RUNS) -> list[Build]:
    """Give builds the same code where ptxas can: it is not deterministic, and one run is one draw.

    Assembles each module up to `runs` times, until one code has been seen under every name; returns the
    builds with that code, or unchanged where there is none.
    """
    if any(build.code is None for build in builds):
        return list(builds)
    seen: list[dict[bytes, Build]] = [{build.code or b"": build} for build in builds]
    for _ in range(runs):
        common = set.intersection(*(set(codes) for codes in seen))
        if common:
            return [codes[min(common)] for codes in seen]
        for codes, build in zip(seen, builds, strict=True):
            result = assemble(toolchain.ptxas, build.ptx, arguments, fixed_layout=False)
            again = Build(build.kernel, build.ptx, result)
            if again.code is not None:
                codes.setdefault(again.code, again)
    return list(builds)


def _diff_builds(a: Build, b: Build, toolchain: Toolchain) -> CubinDiff | None:
    if a.cubin is None or b.cubin is None:
        return None
    return diff_cubins(a.cubin, b.cubin, toolchain, a.kernel, b.kernel)


def diff_cubins(
    a: Cubin, b: Cubin, toolchain: Toolchain, a_kernel: str | None = None, b_kernel: str | None = None
) -> CubinDiff:
    """Disassemble and compare one kernel of each image. Raises CubinError, ToolError."""
    a_name, b_name = a.only_kernel(a_kernel), b.only_kernel(b_kernel)
    a_code, b_code = toolchain.disassemble(a, b)
    return diff(a, b, a_code[a_name], b_code[b_name])
