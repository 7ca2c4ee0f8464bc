"""Find the source lines at which kernels spill registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritonhook.capture.model import Capture
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import Lines, read_lines
from tritonhook.cubin.sass import Sass
from tritonhook.snapshot.assembled import disassembler

_SPILL_OPCODES = ("STL", "LDL")  # stores to and loads from local memory, where ptxas spills registers


@dataclass(frozen=True, slots=True, order=True)
class SourceLine:
    """A source line. file: its path in the debug information. line: its number, from 1."""

    file: str
    line: int


def spill_lines(captures: Sequence[Capture], wanted: Callable[[str], bool]) -> list[SourceLine | None]:
    """For each kernel, find the source line with most spill instructions; None if no line is known. wanted: returns
    True for files whose lines count. The code of an inlined library function has lines of the library's file."""
    kernels = [(Cubin.from_bytes(capture.cubin), capture.kernel) for capture in captures]
    codes = disassembler()(kernels) if kernels else ()
    return [_line(read_lines(*kernel), sass, wanted) for kernel, sass in zip(kernels, codes, strict=True)]


def _line(lines: Lines, sass: Sass, wanted: Callable[[str], bool]) -> SourceLine | None:
    """Return the line with most spill instructions; the first line if no instruction spills."""
    known: list[tuple[int, SourceLine]] = []
    for index, source in enumerate(lines.source):
        if source is not None and source[1] and wanted(lines.files[source[0]]):
            known.append((index, SourceLine(lines.files[source[0]], source[1])))
    codes = sass.instructions
    spilling = [at for index, at in known if codes[index].opcode.partition(".")[0] in _SPILL_OPCODES]
    if spilling:
        times = Counter(spilling)
        return min(times, key=lambda at: (-times[at], at))
    return min((at for _, at in known), default=None)
