"""Show every step on a bundled kernel, without a GPU: capture, rename, assemble both forms, diff, table.

The kernel is a Triton Gluon attention for Blackwell (sm_100a), compiled offline. Everything is *assembled* by ptxas;
nothing is executed or timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tritonhook._util.entry_points import call_function
from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.cli._results import add_results, give, is_printed
from tritonhook.cli._streams import show_summary, write_out
from tritonhook.cli.table import ROW_NOTES
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.lab.published_table import ATTENTION_PUBLISHED, PTXAS, Row, measure
from tritonhook.ptx.module import Ptx
from tritonhook.ptx_capture import session
from tritonhook.ptxas.toolchain import Toolchain, find_toolchain
from tritonhook.rename import PREFIX, Rename

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary

SUBJECT = "gluon_kernels:compile_offline"
# PTX 8.7 is what ptxas 12.8, the version of the published table, reads.
_COMPILE = {"options": {"ptx_version": 87}}
_VARIANTS = {"scalar row sum": False, "packed row sum": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    parser.add_argument("--ptxas", default=PTXAS, metavar="VERSION|PATH", help=f"default: {PTXAS}, as published")
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    toolchain = find_toolchain(arguments.ptxas)
    started = time.monotonic()
    current, captures = _capture(arguments.out)
    if not is_printed(arguments):
        _show_capture(current, captures)
    comparisons = {title: _compare(capture, toolchain) for title, capture in captures.items()}
    rows = [*measure(toolchain), *_attention_rows(comparisons)]

    def document(full: bool) -> dict[str, Any]:
        return _document(comparisons, rows, captures, toolchain, full)

    def show(summary: Summary) -> None:
        _show_comparisons(document(False), toolchain)
        print(f"\nAssembled, not executed or timed. Captures: {current.out}. {time.monotonic() - started:.0f} s.")

    give(arguments, document, show=show)
    return 0


def _capture(out: str | None) -> tuple[Session, dict[str, Capture]]:
    """Compile both variants offline and capture them, also from a warm Triton cache."""
    captures: dict[str, Capture] = {}
    with session(out) as current:
        for title, packed in _VARIANTS.items():
            before = set(current.kernels)
            call_function(SUBJECT, packed_row_sum=packed, **_COMPILE)
            (record,) = set(current.kernels) - before
            captures[title] = current.captures[current.kernels.index(record)]
    return current, captures


def _compare(capture: Capture, toolchain: Toolchain) -> NameComparison:
    return compare_names(capture.ptx, Rename(prefix=PREFIX), toolchain, capture.assembler.options or ())


def _attention_rows(comparisons: dict[str, NameComparison]) -> list[Row]:
    return [
        Row(f"attention fp8 D64, {title}", ATTENTION_PUBLISHED, ROW_NOTES[title], comparison)
        for title, comparison in comparisons.items()
    ]


def _show_title(text: str) -> None:
    from tritonhook.report.render.terminal import render_title

    write_out(render_title(text, sys.stdout))


def _show_capture(current: Session, captures: dict[str, Capture]) -> None:
    from tritonhook.report.documents.captures import capture_document
    from tritonhook.report.summaries.captures import capture_summary

    _show_title(f"1. Capture: {SUBJECT}, compiled for sm_100a without a GPU")
    record, capture = current.kernels[0], captures["scalar row sum"]
    path = str(current.out / "kernels" / record)
    show_summary(capture_summary(capture_document(capture) | {"path": path}))
    print(current.summary)
    _show_title("2. Rename: the PTX differs in these tokens and nowhere else")
    ptx = capture.ptx
    renamed = Rename(prefix=PREFIX).apply(ptx)
    for line in _changed_lines(ptx, renamed):
        print(f"  {line}")


def _changed_lines(old: Ptx, new: Ptx, most: int = 4) -> list[str]:
    pairs = [(a, b) for a, b in zip(old.text.splitlines(), new.text.splitlines(), strict=True) if a != b]
    shown = [f"{a.strip()}  ->  {b.strip()}" for a, b in pairs[:most]]
    return [*shown, f"... {len(pairs)} lines of {len(old.text.splitlines()):,} changed"]


def _show_comparisons(document: dict[str, Any], toolchain: Toolchain) -> None:
    """Print the first comparison in full, the verdict and facts of the second, then the table of both."""
    from tritonhook.report.summaries.names import names_summary
    from tritonhook.report.summaries.published import published_summary

    for number, (title, comparison) in enumerate(document["comparisons"].items(), start=3):
        _show_title(f"{number}. Assemble and diff with ptxas {toolchain.ptxas.version}: {title}")
        summary = names_summary(comparison)
        show_summary(summary if number == 3 else replace(summary, tables=(), notes=()))
    _show_title("5. The published table, again")
    show_summary(published_summary(document["table"]))


def _document(
    comparisons: dict[str, NameComparison],
    rows: list[Row],
    captures: dict[str, Capture],
    toolchain: Toolchain,
    full: bool = False,
) -> dict[str, Any]:
    from tritonhook.report.documents.captures import kernel_fields
    from tritonhook.report.documents.names import names_document
    from tritonhook.report.documents.published import table_document

    arguments = captures["scalar row sum"].assembler.arguments or ()
    return {
        "format": 1,
        "kind": "demo",
        "captures": list(kernel_fields(captures).values()),
        "comparisons": {t: names_document(c, toolchain.ptxas, arguments, full) for t, c in comparisons.items()},
        "table": table_document(rows, toolchain.ptxas),
    }
