"""Compare two kernels: PTX, cubin or capture on each side.

PTX is assembled with the same ptxas and options on both sides. If the names of two PTX sides differ in
length, one side is assembled under a control name as long as the other's: the length alone moves sections.

  tritonhook diff a.ptx b.ptx --ptxas 12.8.93
  tritonhook diff OUT/kernels/add-0123 OUT/kernels/cutlass_add-4567
"""

from __future__ import annotations

import argparse
from typing import Any

from tritonhook.cli._inputs import Input, check_entry, chosen_arguments, chosen_ptxas, load_input
from tritonhook.cli._results import add_results, give
from tritonhook.compare.names import diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CubinError
from tritonhook.ptx.miscompiles import known_wrong
from tritonhook.ptxas.discovery import find_nvdisasm, find_ptxas
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.rename import TRIGGER, control_name

_UNSTEADY_ARCHS = (10,)  # sm_10x: seen with 12.9.86 and 13.0.88; sm_80, sm_90a and sm_120a were steady


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", help="PTX file, cubin file, or capture folder")
    parser.add_argument("b", help="the same")
    add_tool_options(parser)
    parser.add_argument("--no-control", action="store_true", help="compare names of different length as they are")
    add_results(parser, save=True)


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose kernel, ptxas and its options; shared by diff and ab."""
    parser.add_argument("--entry", help="the kernel, where there are several")
    parser.add_argument(
        "--ptxas", metavar="VERSION|PATH", help="assemble with this ptxas (default: the capture's, else the newest)"
    )
    parser.add_argument(
        "--options", metavar="'...'", help="ptxas options, e.g. '-O1 -v' (default: the capture's, else -v -lineinfo)"
    )


def run(arguments: argparse.Namespace) -> int:
    sides = [load_input(path, arguments.entry) for path in (arguments.a, arguments.b)]
    check_entry(arguments.entry, sides)
    pair = _Pair(sides, arguments)
    a, b = pair.cubins
    if a.arch != b.arch:
        raise CubinError(f"a is for sm_{a.arch}, b for sm_{b.arch}; compare kernels for one architecture")
    nvdisasm = find_nvdisasm()
    result = diff_cubins(a, b, Toolchain(nvdisasm, nvdisasm), *pair.names)  # nothing is assembled any more
    if not result.identical_code and a.arch // 10 in _UNSTEADY_ARCHS:
        pair.notes.append(
            "ptxas is not deterministic for this architecture: a few changed instructions can come from two runs alone"
        )
    from tritonhook.report.documents.code import diff_code
    from tritonhook.report.documents.diff import diff_document

    def document(full: bool) -> dict[str, Any]:
        found = diff_document(result, *pair.versions) | {"notes": pair.notes}
        return found | {"code": diff_code(result, *pair.texts)} if full else found

    give(arguments, document)
    return 0 if result.identical_code else 1


class _Pair:
    """The two cubins to compare: their names, the ptxas versions that made them, their PTX, and notes for the user."""

    def __init__(self, sides: list[Input], arguments: argparse.Namespace) -> None:
        self.names = [side.entry for side in sides]
        self.notes: list[str] = []
        self.versions: list[str | None] = [side.ptxas for side in sides]
        fresh = arguments.ptxas is not None or arguments.options is not None
        assembled = [side.cubin is None or (fresh and side.ptx is not None) for side in sides]
        control = self._control(sides, arguments)
        self.cubins: list[Cubin] = []
        self.texts: list[str | None] = []  # the PTX that each cubin was made of, as far as there is one
        for index, side in enumerate(sides):
            text = side.ptx
            if text is not None and index == control:
                # Only the name may differ: a capture is assembled again by the ptxas that made it.
                text = text.rename_entries({side.entry: self.names[index]})
            self.texts.append(None if text is None else text.text)
            if text is None or not (assembled[index] or index == control):
                assert side.cubin is not None  # load_input gives PTX or a cubin
                self.cubins.append(side.cubin)
                continue
            donors = sides if assembled[index] else [side]
            ptxas = find_ptxas(chosen_ptxas(arguments.ptxas, donors))
            options = chosen_arguments(arguments.options, donors)
            self.versions[index] = ptxas.version
            self._note(f"side {'ab'[index]} assembled with ptxas {ptxas.version}: {' '.join(options)}")
            self.cubins.append(Toolchain(ptxas, ptxas).assemble_or_raise(text, options).cubin)
        for side, version in zip(sides, self.versions, strict=True):
            if side.ptx is not None:
                for sentence in known_wrong(side.ptx, version):
                    self._note(f"{side.label}: {sentence}")
        if self.versions[0] != self.versions[1]:
            a, b = (f"ptxas {version}" if version else "an unknown ptxas" for version in self.versions)
            self._note(f"a is made by {a}, b by {b}: differences can come from that")

    def _note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def _control(self, sides: list[Input], arguments: argparse.Namespace) -> int | None:
        """Choose the side that is assembled under a control name, and change its name; None if neither is."""
        a, b = self.names
        if len(a) == len(b):
            return None
        index = _control_side(self.names)
        if arguments.no_control or sides[index].ptx is None:
            why = "" if arguments.no_control else f", and side {'ab'[index]} has no PTX to give it a control name"
            self._note(f"the names differ in length, which by itself moves string tables and alignment{why}")
            return None
        control = control_name(a, b) if index == 0 else control_name(b, a)
        self._note(
            f"side {'ab'[index]} ({self.names[index]}) is assembled as {control}, a control name of equal length"
        )
        self.names[index] = control
        return index


def _control_side(names: list[str]) -> int:
    """The side that gets a control name: the one without the trigger, else the shorter."""
    with_trigger = [TRIGGER in name for name in names]
    if with_trigger[0] != with_trigger[1]:
        return 0 if with_trigger[1] else 1
    return 0 if len(names[0]) < len(names[1]) else 1
