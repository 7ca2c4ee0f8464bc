"""The Summary of any value that shows itself in a notebook: that of its result, or of a PTX module or machine code,
which have none."""

from __future__ import annotations

from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import NameComparison
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.opcode_classes import class_counts
from tritonhook.cubin.sass import Sass
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memory.watcher import Watch
from tritonhook.ptx.module import Ptx
from tritonhook.report.format import count, duration, number
from tritonhook.report.result import Result
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.capture import CapturedOne
from tritonhook.report.results.captures import Captures
from tritonhook.report.results.diff import Diff
from tritonhook.report.results.file import File, GpuFile
from tritonhook.report.results.memory import Memory
from tritonhook.report.results.names import Names
from tritonhook.report.summary import Summary, Table, Tone
from tritonhook.snapshot.kernels import Kernels
from tritonhook.timing.result import Timed


def summary_of(value: Any) -> Summary | None:
    """None for a value that is no result."""
    if isinstance(value, Ptx):
        return _ptx_summary(value)
    if isinstance(value, Sass):
        return _sass_summary(value)
    if isinstance(value, Kernels):
        return _kernels_summary(value)
    result = result_of(value)
    return None if result is None else result.summary()


def result_of(value: Any) -> Result | None:
    """A value as a result; None for one that is none."""
    if isinstance(value, CubinDiff):
        return Diff.of(value)
    if isinstance(value, NameComparison):
        return Names.of(value)
    if isinstance(value, Timed):
        return TimedComparison.of(value)
    if isinstance(value, MemoryTimeline):
        return Memory.of([value])
    if isinstance(value, Watch):
        return Memory.of(value.timelines, value.notes)
    if isinstance(value, Cubin):
        return File.of(GpuFile("in memory", "cubin", [value], [{}]))
    if isinstance(value, CaptureFolder):
        return Captures.of(value)
    if isinstance(value, Session):
        return Captures.of(CaptureFolder.open(value.out)).only(value.seen)
    if isinstance(value, Capture):
        return CapturedOne.of(value)
    return None


def _kernels_summary(kernels: Kernels) -> Summary:
    """A row for each kernel, with its figures."""
    columns = ("id", "title", "arch", "registers", "spills", "stack", "shared", "instructions")
    called, _ = kernels.titles, kernels.facts
    rows = tuple(
        (
            *(k.id, called[k.id], k.arch, *(number(getattr(k, name)) for name in columns[3:])),
            "-" if k.compile_time is None else duration(round(k.compile_time * 1e6)),
        )
        for k in kernels
    )
    table = Table("", (*columns, "compile time"), rows, 3)
    return Summary("Kernels", "", count(len(rows), "kernel"), Tone.NEUTRAL, (), (table,))


def _ptx_summary(ptx: Ptx) -> Summary:
    """The kernels of a module with their parameters."""
    rows = tuple((entry, ", ".join(ptx.parameters(entry))) for entry in ptx.entries)
    facts = (f"PTX {ptx.version}, {count(ptx.text.count(chr(10)), 'line')}",)
    verdict = f"{count(len(ptx.entries), 'kernel')} for {ptx.target}"
    table = Table("Kernels", ("name", "parameters"), rows, 2)
    return Summary("PTX", ", ".join(ptx.entries), verdict, Tone.NEUTRAL, facts, (table,))


def _sass_summary(sass: Sass) -> Summary:
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
