"""Compare two kernels; first assemble a kernel that has only PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.cli._inputs import Input, chosen_assembler, options_option, trust_option
from tritonhook.cli._parser import Group, option
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.errors import PtxError
from tritonhook.ptx.miscompiles import warnings_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.toolchain import Toolchain, may_draw, reading_toolchain
from tritonhook.rename import TRIGGER, control_name

if TYPE_CHECKING:
    from tritonhook.report.results.diff import Diff


@dataclass(frozen=True, kw_only=True)
class ToolOptions(Group):
    """Options that select the kernel, the ptxas and its options: for diff and ab."""

    entry: str | None = option(
        metavar="NAME|A:B", help="name of the kernel, if there are several; A:B: a name for each side"
    )
    ptxas: str | None = option(
        metavar="VERSION|PATH", help="assemble with this ptxas (default: the capture's, else the newest)"
    )
    trust: bool = trust_option()
    ptxas_options: str | None = options_option("the capture's, else -v -lineinfo")


AS_COMPILED = ToolOptions(entry=None, ptxas=None, trust=False, ptxas_options=None)


@dataclass(frozen=True, slots=True)
class _Side:
    """A cubin to compare. name: the kernel's name in the cubin. ptxas: version of the ptxas that made the cubin.
    options: its options. ptx: the kernel's PTX. Fields are None if unknown."""

    name: str
    cubin: Cubin
    ptxas: str | None
    options: Sequence[str] | None
    ptx: str | None


def compared(
    tool: ToolOptions, no_control: bool, inputs: Sequence[Input], own: tuple[str, str]
) -> tuple[CubinDiff, Callable[[bool], Diff]]:
    """Compare two kernels. Returns the comparison, and a function that makes the result; called with True, it adds the
    code. own: the kernels' names in the result, which are never control names."""
    from tritonhook.report.results.diff import Diff

    names, notes = _names(inputs, no_control)
    a, b = (side_of(number, name, inputs, tool, notes) for number, name in enumerate(names))
    notes += notes_on_sides(inputs, a, b)
    result = diff_cubins(a.cubin, b.cubin, reading_toolchain(), a.name, b.name)
    result = result.with_launches(*(given.dynamic_shared for given in inputs))
    notes += notes_on_draws(result.identical_code, a.cubin)
    ptxas, ptx, captures = (a.ptxas, b.ptxas), (a.ptx, b.ptx), [given.capture for given in inputs]
    return result, lambda full: Diff.of(result, ptxas, ptx, own, notes, full, captures)


def _names(inputs: Sequence[Input], no_control: bool) -> tuple[list[str], list[str]]:
    """Choose the names under which the kernels are compared: if their lengths differ, one kernel gets a control name,
    which has the length of the other name and no effect on ptxas. Returns the names, and notes."""
    names = [given.entry for given in inputs]
    a, b = names
    if len(a) == len(b):
        return names, []
    if no_control or not _is_one_kernel(*inputs):
        without = [f"side {side}" for side, given in zip("ab", inputs, strict=True) if given.ptx is None]
        why = f"; {' and '.join(without)} has no PTX, so no control name is used" if without else ""
        return names, [f"the names differ in length, which by itself moves string tables and alignment{why}"]
    index = _control_side(a, b)
    control = control_name(names[index], names[1 - index])
    note = (
        f"one kernel under two names: side {'ab'[index]} ({names[index]}) is assembled under the control name "
        f"{control}, as long as the other name and without effect, so that only the spelling of the names differs"
    )
    names[index] = control
    return names, [note]


def _is_one_kernel(a: Input, b: Input) -> bool:
    """Whether both sides are the same entry of the same PTX, apart from the names of entries."""
    if a.ptx is None or b.ptx is None or len(a.ptx.entries) != len(b.ptx.entries):
        return False
    names = dict(zip(a.ptx.entries, b.ptx.entries, strict=True))
    if names[a.entry] != b.entry:
        return False
    try:
        renamed = a.ptx.rename_entries(names)
    except PtxError:  # a name is already used
        return False
    return renamed.tokens.code.split() == b.ptx.tokens.code.split()


def _control_side(a: str, b: str) -> int:
    """Choose the side that gets a control name, 0 or 1: the side whose name lacks the trigger "cutlass"; if both
    names have it or both lack it, the side with the shorter name."""
    if (TRIGGER in a) != (TRIGGER in b):
        return int(TRIGGER in a)
    return 0 if len(a) < len(b) else 1


def side_of(number: int, name: str, inputs: Sequence[Input], tool: ToolOptions, notes: list[str]) -> _Side:
    """Return the cubin of input `number` with its kernel named `name`. Assemble the PTX, and add a note, if there is no
    cubin, if the options choose a ptxas, or if the name changes."""
    given = inputs[number]
    chosen = tool.ptxas is not None or tool.ptxas_options is not None
    assemble = given.cubin is None or (chosen and given.ptx is not None)
    ptx = given.ptx if given.ptx is None or name == given.entry else given.ptx.rename_entries({given.entry: name})
    if ptx is None or not (assemble or name != given.entry):
        assert given.cubin is not None  # an input has PTX, a cubin, or both
        cubin = given.cubin.with_proven_spills(ptx)
        options = None if given.assembler is None else given.assembler.options
        return _Side(name, cubin, given.ptxas, options, None if ptx is None else ptx.text)
    # If only the name of a captured kernel changes, its own ptxas assembles it, not the ptxas of the other side.
    sources = inputs if assemble else [given]
    ptxas, arguments = chosen_assembler(tool.ptxas, tool.ptxas_options, tool.trust, sources)
    notes.append(f"side {'ab'[number]} assembled with ptxas {ptxas.version}: {' '.join(arguments)}")
    cubin = Toolchain(ptxas, ptxas).assemble_or_raise(ptx, arguments).cubin
    return _Side(name, cubin, ptxas.version, arguments, ptx.text)


def notes_on_draws(identical: bool, cubin: Cubin) -> list[str]:
    if identical or not may_draw(cubin.arch):
        return []
    return [
        "ptxas is not deterministic for this architecture: two runs on the same PTX can differ in a few instructions"
    ]


def notes_on_sides(inputs: Sequence[Input], a: _Side, b: _Side) -> list[str]:
    """List known miscompilations of both ptxas, and note if their versions differ."""
    notes = [
        f"{given.label}: {sentence}"
        for given, side in zip(inputs, (a, b), strict=True)
        if given.ptx is not None
        for sentence in warnings_of(given.ptx.text, side.ptxas, level_of(side.options))
    ]
    if a.ptxas != b.ptxas:
        by_a, by_b = (f"ptxas {side.ptxas}" if side.ptxas else "an unknown ptxas" for side in (a, b))
        notes.append(f"a was made by {by_a}, b by {by_b}: this alone can make differences")
    return notes
