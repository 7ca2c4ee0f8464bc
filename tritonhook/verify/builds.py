"""Which ptxas, at which level, make the builds of a kernel, and making them. Each is a run of ptxas; `Pool` starts
several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptx.module import Ptx, newest_version, retarget, version_for
from tritonhook.ptxas.assembler import Assembled, Crash, assemble
from tritonhook.ptxas.command_line import LEVELS, level_of
from tritonhook.ptxas.tool import Tool
from tritonhook.verify.latitude import Latitude
from tritonhook.verify.model import Build

NO_CONTRACTION = "--fmad=false"
_ASSEMBLING_S = 120.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to assemble a kernel. as_used: with the options as they are, where the other builds are made without
    contraction. others: tried in order where this one makes no cubin."""

    ptxas: Tool
    options: tuple[str, ...]
    as_used: bool = False
    others: tuple[Recipe, ...] = ()

    @property
    def label(self) -> str:
        """As people read it."""
        return f"{self.ptxas.version} {level_of(self.options)}{', as used' if self.as_used else ''}"


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """A recipe that made no cubin, with the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class Built:
    """What the recipes of a kernel made. builds: the reference first; each has code of its own. same_code: the label of
    a build, and that of a recipe that gave the same code again."""

    builds: tuple[Build, ...]
    same_code: tuple[tuple[str, str], ...]
    failed: tuple[NotBuilt, ...]


def recipes(own: Tool, options: Sequence[str], latitude: Latitude, tools: Sequence[Tool]) -> tuple[Recipe, ...]:
    """The usual builds: the ptxas in use at its level (the reference), the same at -O0, or -O1 where that fails, the
    oldest and the newest of `tools` that take the kernel. All without contraction; where PTX leaves it open, the build
    with the options as they are comes last."""
    fixed = tuple(option for option in options if not option.startswith(("--fmad", "-fmad")))
    strict = (*fixed, NO_CONTRACTION) if latitude.contraction else tuple(options)
    wanted = [Recipe(own, strict)]
    flat = tuple(option for option in strict if not option.startswith(LEVELS))
    low = [Recipe(own, (*flat, name)) for name in ("-O0", "-O1") if name != level_of(options)]
    if low:
        wanted.append(replace(low[0], others=tuple(low[1:])))
    key = version_key(own.version)
    by_version = sorted({tool.version: tool for tool in tools}.values(), key=lambda tool: version_key(tool.version))
    older = [tool for tool in by_version if version_key(tool.version) < key]
    newer = [tool for tool in reversed(by_version) if version_key(tool.version) > key]
    for several in (older, newer):
        chain = [Recipe(tool, strict) for tool in several]
        if chain:
            wanted.append(replace(chain[0], others=tuple(chain[1:])))
    if strict != tuple(options):
        wanted.append(Recipe(own, tuple(options), as_used=True))
    return tuple(wanted)


def build_all(ptx: Ptx, entry: str, wanted: Sequence[Recipe], folder: Path, pool: Executor) -> Built:
    """Assemble every recipe into `folder`, several at a time. Raises UsageError if the reference cannot be made."""
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
    """A kernel's instructions and constants."""
    return b"".join(part.data for part in cubin.sections_of(entry) if part.role.startswith((".text", ".nv.const")))


def _make(ptx: Ptx, recipe: Recipe) -> tuple[list[NotBuilt], tuple[Recipe, Assembled] | None]:
    """The first of a recipe and its others that makes a cubin, and those that failed before it."""
    failed: list[NotBuilt] = []
    for variant in (recipe, *recipe.others):
        version = version_for(ptx.version, ptx.target, newest_version(variant.ptxas.version))
        try:
            result = assemble(variant.ptxas, retarget(ptx, ptx.target, version), variant.options, _ASSEMBLING_S)
        except TritonHookError as error:
            failed.append(NotBuilt(variant.label, str(error).splitlines()[0]))
            continue
        if not isinstance(result, Crash):
            return failed, (variant, result)
        failed.append(NotBuilt(variant.label, result.summary))
    return failed, None
