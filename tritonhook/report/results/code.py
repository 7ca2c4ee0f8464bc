"""A kernel's code as it stands in documents: instructions, line info and PTX. A saved result with it needs neither its
cubin nor nvdisasm to be shown in full."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass


class Row(NamedTuple):
    """One instruction. source: index into `files`, and line. ptx: line of the PTX."""

    predicate: str
    opcode: str
    operands: str
    control: Count
    source: tuple[Count, Count] | None
    ptx: Count | None


class Code(Fields):
    """A kernel's code.

    indirect_targets: offsets. files: source files. ptx: its text; null if it is not at hand. instructions: lists of
    predicate, opcode, operands, control field, [index into `files`, line] or null, line of the PTX or null; instruction
    *i* is at byte 16 *i*. live: for each instruction, how many general registers are live.
    """

    kernel: str
    indirect_targets: tuple[Count, ...]
    files: tuple[str, ...]
    ptx: str | None
    instructions: tuple[Row, ...]
    live: tuple[Count, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if any(row.source is not None and row.source[0] >= len(self.files) for row in self.instructions):
            raise ValueError("a source line names a file that is not listed")
        if self.live and len(self.live) != len(self.instructions):
            raise ValueError("live registers are not those of each instruction")

    @classmethod
    def of(cls, cubin: Cubin, sass: Sass, ptx: str | None = None) -> Code:
        """ptx: None if it is not at hand."""
        lines = read_lines(cubin, sass.kernel)
        rows = (
            Row(instruction.predicate, instruction.opcode, instruction.operands, instruction.control, source, line)
            for instruction, source, line in zip(sass.instructions, lines.source, lines.ptx, strict=True)
        )
        return cls(sass.kernel, sass.indirect_targets, lines.files, ptx, tuple(rows))

    def sass(self) -> Sass:
        """The instructions with their blocks and loops."""
        rows = enumerate(self.instructions)
        listed = (Instruction(i * INSTRUCTION_BYTES, r.predicate, r.opcode, r.operands, r.control) for i, r in rows)
        return Sass(self.kernel, tuple(listed), self.indirect_targets)
