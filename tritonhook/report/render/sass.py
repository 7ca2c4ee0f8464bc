"""Machine code as text: each instruction with its control field, its loops and the source lines it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from tritonhook._util.demangle import function_name
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.report.format import number, visible
from tritonhook.report.results.code import Code

_NO_BARRIER = 7
LEGEND = """\
Control field: barriers waited for; read and write barrier
set; yield bit; stall cycles. One | for each loop around."""


def render_sass(code: Code, arch: str) -> str:
    """The listing of one kernel, ending with a line break."""
    return "".join(f"{line}\n" for line in _lines(code, arch))


def _lines(code: Code, arch: str) -> Iterator[str]:
    sass = code.sass()
    instructions = sass.instructions
    yield visible(f"{function_name(sass.kernel)}: {arch}, {number(len(instructions))} instructions")
    depths = _depths(sass)
    deepest = max(depths, default=0)
    digits = max(4, len(f"{instructions[-1].offset:x}")) if instructions else 4
    shown = None
    for instruction, depth, row in zip(instructions, depths, code.instructions, strict=True):
        if row.source is not None and row.source != shown:
            yield visible(f"{'':{digits}}  // {code.files[row.source[0]]}:{row.source[1]}")
            shown = row.source
        loop = f"{'|' * depth:{deepest}} " if deepest else ""
        guard = f"{instruction.predicate} " if instruction.predicate else ""
        text = f"{guard}{instruction.opcode} {', '.join(instruction.operands.split(','))}".rstrip()
        yield visible(f"{instruction.offset:0{digits}x}  {_control(instruction)}  {loop}{text}")


def _depths(sass: Sass) -> list[int]:
    """How many loops each instruction is in."""
    depths = [0] * len(sass.instructions)
    for loop in sass.loops:
        for index in loop.instructions:
            depths[index] += 1
    return depths


def _control(instruction: Instruction) -> str:
    """As on the HTML page: "0----- 1- Y 05"."""
    wait = "".join(str(bit) if instruction.wait_mask >> bit & 1 else "-" for bit in range(6))
    read, write = instruction.control >> 8 & 7, instruction.control >> 5 & 7
    barriers = "".join("-" if barrier == _NO_BARRIER else str(barrier) for barrier in (read, write))
    return f"{wait} {barriers} {'Y' if instruction.yield_bit else '-'} {instruction.stall:02}"
