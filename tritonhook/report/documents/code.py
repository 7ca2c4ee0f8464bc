"""A kernel's code as JSON values: instructions, line info and PTX. A saved result with them needs neither its cubin nor
nvdisasm to be shown in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritonhook.compare.diff import CubinDiff
from tritonhook.cubin.line_info import Lines, read_lines
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass


@dataclass(frozen=True, slots=True)
class CodeListing:
    """The code of one kernel. ptx: None if it is not at hand."""

    sass: Sass
    lines: Lines
    ptx: str | None


def diff_code(diff: CubinDiff, a_ptx: str | None = None, b_ptx: str | None = None) -> dict[str, Any]:
    """The code of both sides: the field `code` of a saved diff."""
    return {
        "a": code_document(CodeListing(diff.a_sass, read_lines(diff.a, diff.a_kernel), a_ptx)),
        "b": code_document(CodeListing(diff.b_sass, read_lines(diff.b, diff.b_kernel), b_ptx)),
    }


def code_document(code: CodeListing) -> dict[str, Any]:
    """A listing as JSON values. `instructions` has rows of predicate, opcode, operands, control field, [file, line] or
    null, PTX line or null."""
    rows = zip(code.sass.instructions, code.lines.source, code.lines.ptx, strict=True)
    return {
        "kernel": code.sass.kernel,
        "indirect_targets": list(code.sass.indirect_targets),
        "files": list(code.lines.files),
        "instructions": [
            [i.predicate, i.opcode, i.operands, i.control, None if at is None else list(at), line]
            for i, at, line in rows
        ],
        "ptx": code.ptx,
    }


def read_code(document: Mapping[str, Any]) -> CodeListing:
    """The listing that `code_document` wrote. Raises ValueError if a line is in a file that is not listed."""
    rows = document["instructions"]
    instructions = tuple(Instruction(index * INSTRUCTION_BYTES, *row[:4]) for index, row in enumerate(rows))
    source = tuple(None if row[4] is None else (row[4][0], row[4][1]) for row in rows)
    files = tuple(document["files"])
    if any(at is not None and at[0] >= len(files) for at in source):
        raise ValueError("a source line names a file that is not listed")
    sass = Sass(document["kernel"], instructions, tuple(document["indirect_targets"]))
    return CodeListing(sass, Lines(files, source, tuple(row[5] for row in rows)), document["ptx"])
