"""Notebook output: the Summary of a value as Markdown, which Jupyter, VS Code and GitHub display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import NameComparison
from tritonhook.cubin.image import Cubin
from tritonhook.errors import TritonHookError
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memory.watcher import Watch
from tritonhook.report.render.markdown import escaped, render_markdown
from tritonhook.report.result import Result, Summary, Table, Tone, count, duration, number
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.capture import CapturedOne
from tritonhook.report.results.captures import Captures
from tritonhook.report.results.diff import Diff
from tritonhook.report.results.file import File, GpuFile
from tritonhook.report.results.memory import Memory
from tritonhook.report.results.names import Names
from tritonhook.snapshot.kernels import Kernels
from tritonhook.timing.plan import Timed


def view(value: Any) -> str | None:
    """Write a value's Summary as Markdown. None if it has no Summary: the notebook then shows its repr."""
    try:
        if isinstance(value, Kernels):
            return render_markdown(_kernels_summary(value))
        result = next((make(value) for kind, make in _RESULTS.items() if isinstance(value, kind)), None)
        return None if result is None else render_markdown(result.summary())
    except TritonHookError as error:
        return escaped(str(error))


_RESULTS: dict[type, Callable[[Any], Result]] = {
    CubinDiff: Diff.of,
    NameComparison: Names.of,
    Timed: TimedComparison.of,
    MemoryTimeline: lambda timeline: Memory.of([timeline]),
    Watch: lambda watch: Memory.of(watch.timelines, watch.notes),
    Cubin: lambda cubin: File.of(GpuFile("in memory", "cubin", [cubin], [{}])),
    CaptureFolder: Captures.of,
    Session: lambda session: Captures.of(CaptureFolder.open(session.out)).only(session.seen),
    Capture: CapturedOne.of,
}


def _kernels_summary(kernels: Kernels) -> Summary:
    """Summarise kernels in one table, with a row of figures for each kernel."""
    columns = ("id", "title", "arch", "registers", "spills", "stack", "shared", "instructions")
    called, _ = kernels.titles, kernels.facts  # reading `facts` reads all kernels at once, which is faster
    rows = tuple(
        (
            *(k.id, called[k.id], k.arch, *(number(getattr(k, name)) for name in columns[3:])),
            "-" if k.compile_time is None else duration(round(k.compile_time * 1e6)),
        )
        for k in kernels
    )
    table = Table("", (*columns, "compile time"), rows, 3)
    return Summary("Kernels", "", count(len(rows), "kernel"), Tone.NEUTRAL, (), (table,))
