"""A kernel's code as it stands in documents: instructions, line info and PTX. A saved result with it needs neither its
cubin nor nvdisasm to be shown in full. And what each line of the source became."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from tritonhook._util.files import read_given
from tritonhook._util.schema import Count, Fields
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass
from tritonhook.report.format import number
from tritonhook.report.summary import Summary, Table, Tone


class Row(NamedTuple):
    """One instruction. source: index into `files`, and line. ptx: line of the PTX."""

    predicate: str
    opcode: str
    operands: str
    control: Count
    source: tuple[Count, Count] | None
    ptx: Count | None


class CodeFields(Fields):
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
    def of(cls, cubin: Cubin, sass: Sass, ptx: str | None = None) -> CodeFields:
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


# --- what each line of the source became ----------------------------------------------------------


_CONTEXT = 3  # lines without code that stay visible beside one with
_STORE, _LOAD = "STL", "LDL"  # of local memory
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # bytes; 4 without one


@dataclass(slots=True)
class _Line:
    """What one line became. live: the registers at its peak. stored, loaded: bytes of local memory."""

    instructions: int = 0
    live: int = 0
    stored: int = 0
    loaded: int = 0

    def add(self, instruction: Instruction, live: int) -> None:
        self.instructions += 1
        self.live = max(self.live, live)
        if instruction.base_opcode in (_STORE, _LOAD):
            width = next((size for part, size in _WIDTHS.items() if part in instruction.opcode.split(".")), 4)
            self.stored += width * (instruction.base_opcode == _STORE)
            self.loaded += width * (instruction.base_opcode == _LOAD)


def source_summary(code: CodeFields) -> Summary:
    """For each line of the source instructions, live registers, and bytes of local memory stored and loaded, which are
    spills where the kernel has no local variables."""
    files: dict[int, dict[int, _Line]] = {}
    live = code.live or [0] * len(code.instructions)
    for row, instruction, registers in zip(code.instructions, code.sass().instructions, live, strict=True):
        if row.source is not None:
            file, line = row.source
            files.setdefault(file, {}).setdefault(line, _Line()).add(instruction, registers)
    tables = [_of_file(code.files[file], lines, bool(code.live)) for file, lines in files.items()]
    known = sum(line.instructions for lines in files.values() for line in lines.values())
    verdict = f"{number(known)} of {number(len(code.instructions))} instructions have a line"
    notes = ["lines are read from the files as they are now"] if tables else ["the machine code has no line info"]
    if tables and not code.live:
        notes.append(
            "live registers are not known: no nvdisasm here analyses this cubin; install Triton, which has one"
        )
    return Summary("Source", code.kernel, verdict, Tone.NEUTRAL, (), tuple(tables), tuple(notes))


def _of_file(path: str, became: Mapping[int, _Line], with_live: bool) -> Table:
    """live: how many registers are in use where most are, on this line."""
    try:
        texts = read_given(Path(path)).decode("utf-8", "replace").splitlines()
    except OSError:
        texts = []
    columns = ["instrs", *(["live"] if with_live else []), "stored", "loaded"]
    rows = []
    for line in range(min(became), max(became) + 1):
        own = became.get(line)
        text = texts[line - 1].expandtabs(4) if line <= len(texts) else ""
        near = any(at in became for at in range(line - _CONTEXT, line + _CONTEXT + 1))
        if own is not None:
            figures = {"instrs": own.instructions, "live": own.live, "stored": own.stored, "loaded": own.loaded}
            rows.append((str(line), *(number(figures[name]) if figures[name] else "" for name in columns), text))
        elif near and text.strip():
            rows.append((str(line), *("" for _ in columns), text))
    title = f"{path} ({'live: registers at the peak; ' if with_live else ''}local memory stored, loaded: bytes)"
    last = len(columns) + 1
    return Table(title, ("line", *columns, "source"), tuple(rows), 1, words=(last,), one_line=True)
