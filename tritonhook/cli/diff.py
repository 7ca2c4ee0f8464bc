"""Compare two kernels: PTX, cubin or capture on each side.

PTX is assembled with the same ptxas and options on both sides. Where two PTX sides have names of different
length, side a is assembled under a control name as long as b's, because the length alone moves sections.

  tritonhook diff a.ptx b.ptx --ptxas 12.8.93
  tritonhook diff OUT/kernels/add-0123 OUT/kernels/cutlass_add-4567
"""

from __future__ import annotations

import argparse

from tritonhook.ab import diff_cubins
from tritonhook.cli._output import add_json, show, show_json
from tritonhook.cli._sides import Side, chosen_arguments, chosen_ptxas, load_side
from tritonhook.cubin import Cubin
from tritonhook.errors import CubinError
from tritonhook.ptx import Ptx
from tritonhook.rename import TRIGGER, control_name
from tritonhook.toolchain import Toolchain, find_nvdisasm, find_ptxas


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", help="PTX file, cubin file, or capture folder")
    parser.add_argument("b", help="the same")
    add_tool_options(parser)
    parser.add_argument("--no-control", action="store_true", help="compare names of different length as they are")
    add_json(parser)


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose kernel, ptxas and its options; shared by diff and ab."""
    parser.add_argument("--entry", help="the kernel, where there are several")
    parser.add_argument(
        "--ptxas", metavar="VERSION|PATH", help="assemble with this ptxas (default: the capture's, else the newest)"
    )
    parser.add_argument("--options", metavar="'...'", help="ptxas options (default: the capture's, else -v -lineinfo)")


def run(arguments: argparse.Namespace) -> int:
    sides = [load_side(path, arguments.entry) for path in (arguments.a, arguments.b)]
    fresh = arguments.ptxas is not None or arguments.options is not None
    notes: list[str] = []
    if any(_needs_assembly(side, fresh) for side in sides):
        ptxas = find_ptxas(chosen_ptxas(arguments.ptxas, sides))
        options = chosen_arguments(arguments.options, sides)
        notes.append(f"assembled with ptxas {ptxas.version}: {' '.join(options)}")
        toolchain = Toolchain(ptxas, find_nvdisasm())
        (a, a_name), (b, b_name) = _assembled_sides(sides, toolchain, options, fresh, arguments.no_control, notes)
        version: str | None = ptxas.version
    else:
        nvdisasm = find_nvdisasm()
        toolchain = Toolchain(nvdisasm, nvdisasm)  # nothing is assembled
        (a, a_name), (b, b_name) = ((_cubin(side), side.entry) for side in sides)
        version = None
        notes += _cubin_notes(sides)
    if a.arch != b.arch:
        raise CubinError(f"a is for sm_{a.arch}, b for sm_{b.arch}; compare kernels for one architecture")
    result = diff_cubins(a, b, toolchain, a_name, b_name)
    versions = [version or (side.assembler.version if side.assembler else None) for side in sides]
    if arguments.json:
        from tritonhook.report.json import diff_document

        show_json(diff_document(result, *versions) | {"notes": notes})
    else:
        from tritonhook.report.terminal import render_diff

        show(render_diff(result, notes))
    return 0 if result.identical_code else 1


def _needs_assembly(side: Side, fresh: bool) -> bool:
    return side.cubin is None or (fresh and side.ptx is not None)


def _cubin(side: Side) -> Cubin:
    assert side.cubin is not None  # _needs_assembly was asked
    return side.cubin


def _cubin_notes(sides: list[Side]) -> list[str]:
    notes = []
    if len(sides[0].entry) != len(sides[1].entry):
        notes.append("the names differ in length, which by itself moves string tables and alignment")
    makers = {side.assembler.version for side in sides if side.assembler}
    if len(makers) > 1:
        notes.append(f"made by different ptxas versions: {', '.join(str(v) for v in sorted(makers, key=str))}")
    return notes


def _assembled_sides(
    sides: list[Side], toolchain: Toolchain, options: tuple[str, ...], fresh: bool, no_control: bool, notes: list[str]
) -> tuple[tuple[Cubin, str], tuple[Cubin, str]]:
    names = [side.entry for side in sides]
    texts: list[Ptx | None] = [side.ptx for side in sides]
    if len(names[0]) != len(names[1]) and not no_control:
        index = _control_side(names)
        text = texts[index]
        if text is not None:
            control = control_name(names[index], names[1 - index])
            texts[index] = text.rename_entries({names[index]: control})
            which = f"side {'ab'[index]} ({names[index]})"
            notes.append(f"{which} stands under the control name {control}, as long as {names[1 - index]}")
            names[index] = control
            fresh = True
    cubins = []
    for side, text, name in zip(sides, texts, names, strict=True):
        if text is not None and (side.cubin is None or fresh):
            cubins.append((toolchain.assemble_or_raise(text, options).cubin, name))
        else:
            cubins.append((_cubin(side), name))
    return cubins[0], cubins[1]


def _control_side(names: list[str]) -> int:
    """The side that gets a control name: the one without the trigger, else the shorter."""
    with_trigger = [TRIGGER in name for name in names]
    if with_trigger[0] != with_trigger[1]:
        return 0 if with_trigger[1] else 1
    return 0 if len(names[0]) < len(names[1]) else 1
