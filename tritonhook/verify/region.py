"""Where the machine code of two builds parts: the first instructions that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.compare.alignment import align, align_texts
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.verify.model import Build

_SHOWN = 12  # instructions of each side
_NEAR = 3  # rows that are equal on both sides within a region


@dataclass(frozen=True, slots=True)
class Region:
    """The first region in which two builds have other instructions. a, b: labels of the builds.

    a_code, b_code: (offset in bytes, instruction). further: how many regions follow. places: rows that differ, in all.
    """

    a: str
    b: str
    a_code: tuple[tuple[int, str], ...]
    b_code: tuple[tuple[int, str], ...]
    further: int
    places: int


def parting(toolchain: Toolchain, a: Build, b: Build) -> Region:
    """Disassemble both and find where they part. Raises ToolError or CubinError."""
    codes = [_sass(toolchain, build) for build in (a, b)]
    rows = align(*codes).rows
    if all(row.in_place for row in rows):  # they differ in registers alone
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
