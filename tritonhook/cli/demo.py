"""Show every step on a bundled kernel, without a GPU: capture, rename, assemble both forms, diff, table.

The kernel is a Triton Gluon attention for Blackwell (sm_100a), compiled offline. Everything is *assembled* by ptxas;
nothing is executed or timed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.entry_points import call_function
from tritonhook._util.text import say
from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.cli._parser import Group, option, part
from tritonhook.cli._streams import Results, give, show_summary, working, write_out
from tritonhook.cli.table import HELP, ROW_NOTES, measured_rows, published_ptxas
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.errors import UsageError
from tritonhook.lab.published_table import ATTENTION_PUBLISHED, ConditionRow
from tritonhook.ptx.module import Ptx
from tritonhook.ptx_capture import session
from tritonhook.ptxas.toolchain import Toolchain, toolchain_of
from tritonhook.rename import PREFIX, Rename

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary

SUBJECT = "gluon_kernels:compile_offline"
# PTX 8.7 is what ptxas 12.8, the version of the published table, reads.
_COMPILE = {"options": {"ptx_version": 87}}
_VARIANTS = {"scalar row sum": False, "packed row sum": True}


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    out: str | None = option(metavar="DIR", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    ptxas: str | None = option(metavar="VERSION|PATH", help=HELP)
    results: Results = part(Results)


def run(options: Options) -> int:
    if find_spec("triton") is None:
        raise UsageError(
            "Triton is not installed, and the demo compiles a Triton kernel; `pip install triton`, or `pipx run --spec "
            "'tritonhook[triton]' tritonhook demo`, or see `tritonhook table`, which needs no Triton"
        )
    started = time.monotonic()
    is_shown = not options.results.is_printed
    ptxas, notes = published_ptxas(options.ptxas)
    current, captures = _capture(options.out, is_shown)
    for note in notes:
        say(f"tritonhook: {note}")
    toolchain = toolchain_of(ptxas)
    comparisons: dict[str, NameComparison] = {}
    for number, (title, capture) in enumerate(captures.items(), start=3):
        comparisons[title] = _compare(number, title, capture, toolchain, is_shown)
    if is_shown:
        _show_title("5. The published table, again")
    rows = [*measured_rows(toolchain), *_attention_rows(comparisons)]

    from tritonhook.report.results.kernel import kernel_fields
    from tritonhook.report.results.names import Names
    from tritonhook.report.results.table import Demo, PublishedTable

    table = PublishedTable.of(rows, ptxas, notes)
    kernels = tuple(map(kernel_fields, captures.values()))
    ptxas_options = captures["scalar row sum"].assembler.arguments or ()

    def demo(full: bool) -> Demo:
        names = {title: Names.of(comparison, ptxas, ptxas_options, full) for title, comparison in comparisons.items()}
        return Demo(kernels, names, table)

    def show(summary: Summary) -> None:
        show_summary(table.summary())
        print(f"\n{current.summary}")
        print(f"Assembled, not executed or timed. {time.monotonic() - started:.0f} s.")

    give(options.results, demo, show=show)
    return 0


def _capture(out: str | None, is_shown: bool) -> tuple[Session, dict[str, Capture]]:
    """Compile both variants offline and capture them, also from a warm Triton cache. The first is shown at once."""
    captures: dict[str, Capture] = {}
    if is_shown:
        _show_title(f"1. Capture: {SUBJECT}, compiled for sm_100a without a GPU")
    with session(out) as current:
        for title, packed in _VARIANTS.items():
            before = set(current.records)
            with working(f"compiling the kernel with a {title}"):
                call_function(SUBJECT, packed_row_sum=packed, **_COMPILE)
            (record,) = set(current.records) - before
            captures[title] = current.captures[current.records.index(record)]
            if is_shown and not before:
                _show_capture(current.out / "kernels" / record, captures[title])
    return current, captures


def _compare(number: int, title: str, capture: Capture, toolchain: Toolchain, is_shown: bool) -> NameComparison:
    """Compare both names; show all of the first comparison, and of the second the verdict and the facts."""
    if is_shown:
        _show_title(f"{number}. Assemble and diff with ptxas {toolchain.ptxas.version}: {title}")
    with working(f"assembling under three names with ptxas {toolchain.ptxas.version}"):
        comparison = compare_names(capture.ptx, Rename(prefix=PREFIX), toolchain, capture.assembler.options or ())
    if is_shown:
        from tritonhook.report.results.names import Names

        summary = Names.of(comparison, toolchain.ptxas, capture.assembler.arguments or ()).summary()
        show_summary(summary if number == 3 else replace(summary, tables=(), notes=()))
    return comparison


def _attention_rows(comparisons: dict[str, NameComparison]) -> list[ConditionRow]:
    return [
        ConditionRow(f"attention fp8 D64, {title}", ATTENTION_PUBLISHED, ROW_NOTES[title], comparison)
        for title, comparison in comparisons.items()
    ]


def _show_title(text: str) -> None:
    from tritonhook.report.render.terminal import render_title

    write_out(render_title(text, sys.stdout))


def _show_capture(folder: Path, capture: Capture) -> None:
    from tritonhook.report.results.capture import CapturedOne

    show_summary(CapturedOne.of(capture, str(folder)).summary())
    _show_title("2. Rename: the PTX differs in these tokens and nowhere else")
    ptx = capture.ptx
    renamed = Rename(prefix=PREFIX).apply(ptx)
    for line in _changed_lines(ptx, renamed):
        print(f"  {line}")


def _changed_lines(old: Ptx, new: Ptx, most: int = 4) -> list[str]:
    pairs = [(a, b) for a, b in zip(old.text.splitlines(), new.text.splitlines(), strict=True) if a != b]
    shown = [f"{a.strip()}  ->  {b.strip()}" for a, b in pairs[:most]]
    return [*shown, f"... {len(pairs)} lines of {len(old.text.splitlines()):,} changed"]
