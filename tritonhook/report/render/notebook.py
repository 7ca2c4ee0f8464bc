"""Notebook output: the Summary of a value as an HTML fragment without a script and with inline styles, which Jupyter,
VS Code and GitHub all show. `tritonhook show` makes the full page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.store import CaptureFolder
from tritonhook.compare.diff import CubinDiff
from tritonhook.compare.names import NameComparison
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass, class_counts
from tritonhook.errors import TritonHookError
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memory.watcher import Watch
from tritonhook.ptx.module import Ptx
from tritonhook.report.result import Result, Summary, Table, Tone, count, duration, number, short, visible
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.capture import CapturedOne
from tritonhook.report.results.captures import Captures
from tritonhook.report.results.diff import Diff
from tritonhook.report.results.file import File, GpuFile
from tritonhook.report.results.memory import Memory
from tritonhook.report.results.names import Names
from tritonhook.snapshot.kernels import Kernels
from tritonhook.timing.plan import Timed

# Readable on white and on black: the notebook's theme is unknown.
_COLOURS = {
    Tone.GOOD: "#1f8f55",
    Tone.BAD: "#d0433a",
    Tone.CHANGED: "#8a63d2",
    Tone.UNSURE: "#b07a10",
    Tone.NEUTRAL: "inherit",
}
_MOST_ROWS = 30


def fragment(value: Any) -> str | None:
    """Write a value's Summary as HTML. None if it has no Summary: the notebook then shows its repr."""
    try:
        summary = summary_of(value)
        return None if summary is None else render_fragment(summary)
    except TritonHookError as error:
        return f"<p>{escape(str(error))}</p>"


def render_fragment(summary: Summary) -> str:
    """Write verdict, facts, tables and notes as HTML."""
    colour = _COLOURS[summary.tone]
    parts = [
        '<div style="font-family:system-ui,sans-serif;line-height:1.45;max-width:960px">',
        f'<div style="font-size:1.35em;font-weight:600;color:{colour}">{_text(summary.verdict)}</div>',
        f'<div style="opacity:.75">{escape(summary.what)}: <code>{_text(summary.subject)}</code></div>',
    ]
    if summary.facts:
        parts.append("<ul>" + "".join(f"<li>{_text(fact)}</li>" for fact in summary.facts) + "</ul>")
    parts += [_table(table) for table in summary.tables if table.rows]
    parts += [f'<div style="opacity:.75">{_text(note)}</div>' for note in summary.notes]
    return "".join([*parts, "</div>"])


def _text(text: str) -> str:
    return escape(visible(short(text, 400)))


def _table(table: Table) -> str:
    def cell(tag: str, text: str, index: int, colour: str = "") -> str:
        align = "right" if table.is_figure(index) else "left"
        return f'<{tag} style="text-align:{align};{colour}">{_text(text)}</{tag}>'

    head = "".join(cell("th", text, i) for i, text in enumerate(table.columns))
    rows = []
    for at, row in enumerate(table.rows[:_MOST_ROWS]):
        tone = table.tones[at] if table.tones else Tone.NEUTRAL
        colour = f"color:{_COLOURS[tone]};font-weight:600" if tone in (Tone.BAD, Tone.GOOD) else ""
        rows.append("<tr>" + "".join(cell("td", text, i, colour) for i, text in enumerate(row)) + "</tr>")
    more = len(table.rows) - _MOST_ROWS
    rest = f"<div>{more:,} further rows</div>" if more > 0 else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<p><b>{_text(table.title)}</b></p><table>{body}</table>{rest}"


# --- values as summaries -------------------------------------------------------------------------


def summary_of(value: Any) -> Summary | None:
    """Summarise a value; None if it has no Summary."""
    own = next((make(value) for kind, make in _SUMMARIES.items() if isinstance(value, kind)), None)
    result = result_of(value) if own is None else None
    return own if result is None else result.summary()


def result_of(value: Any) -> Result | None:
    """Convert a value to its Result, else None."""
    return next((make(value) for kind, make in _RESULTS.items() if isinstance(value, kind)), None)


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
    """Make a row for each kernel, with its figures."""
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
    """List a module's kernels with their parameters."""
    rows = tuple((entry, ", ".join(ptx.parameters(entry))) for entry in ptx.entries)
    facts = (f"PTX {ptx.version}, {count(ptx.text.count(chr(10)), 'line')}",)
    verdict = f"{count(len(ptx.entries), 'kernel')} for {ptx.target}"
    table = Table("Kernels", ("name", "parameters"), rows, 2)
    return Summary("PTX", ", ".join(ptx.entries), verdict, Tone.NEUTRAL, facts, (table,))


def _sass_summary(sass: Sass) -> Summary:
    """Count a kernel's instructions by class, and list its loops."""
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


_SUMMARIES: dict[type, Callable[[Any], Summary]] = {Ptx: _ptx_summary, Sass: _sass_summary, Kernels: _kernels_summary}
