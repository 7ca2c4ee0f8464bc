"""Summaries of code that is a value in Python and no document: a PTX module, the machine code of one kernel."""

from __future__ import annotations

from tritonhook.cubin.opcode_classes import class_counts
from tritonhook.cubin.sass import Sass
from tritonhook.ptx.module import Ptx
from tritonhook.report.format import count, number
from tritonhook.report.summary import Summary, Table, Tone


def ptx_summary(ptx: Ptx) -> Summary:
    """The kernels of a module with their parameters."""
    rows = tuple((entry, ", ".join(ptx.parameters(entry))) for entry in ptx.entries)
    facts = (f"PTX {ptx.version}, {count(ptx.text.count(chr(10)), 'line')}",)
    verdict = f"{count(len(ptx.entries), 'kernel')} for {ptx.target}"
    table = Table("Kernels", ("name", "parameters"), rows, 2)
    return Summary("PTX", ", ".join(ptx.entries), verdict, Tone.NEUTRAL, facts, (table,))


def sass_summary(sass: Sass) -> Summary:
    """The instructions of a kernel by class, and its loops."""
    mix = tuple((name, number(n)) for name, n in class_counts(sass.opcode_counts()).items())
    loops = tuple(
        (f"{sass.instructions[sass.blocks[loop.header].first].offset:#x}", number(len(loop.instructions)))
        for loop in sass.loops
    )
    tables = (
        Table("Instructions by class", ("class", "instructions"), mix),
        Table("Loops of 8 instructions or more", ("offset", "instructions"), loops),
    )
    verdict = count(len(sass.instructions), "instruction")
    return Summary("Machine code", sass.kernel, verdict, Tone.NEUTRAL, (), tables)
