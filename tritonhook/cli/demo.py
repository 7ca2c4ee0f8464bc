"""The whole job on a bundled kernel, without a GPU: capture, rename, assemble both forms, diff, table.

The kernel is a Triton Gluon attention for Blackwell (sm_100a), compiled offline. Nothing here is measured:
what you see is *assembled*, i.e. what ptxas makes of it.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from tritonhook._util.entry_points import call_function
from tritonhook.capture.model import Capture
from tritonhook.capture.session import Session
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.cli._results import add_html, write_html
from tritonhook.cli._streams import add_json, show, show_json
from tritonhook.cli.table import ROW_NOTES
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.lab.published_table import ATTENTION_PUBLISHED, PTXAS, Row, measure
from tritonhook.ptx.module import Ptx
from tritonhook.ptx_capture import session
from tritonhook.ptxas.toolchain import Toolchain, find_toolchain
from tritonhook.rename import PREFIX, Rename

SUBJECT = "gluon_kernels:compile_offline"
# PTX 8.7 is what ptxas 12.8, the version of the published table, reads.
_COMPILE = {"options": {"ptx_version": 87}}
_VARIANTS = {"scalar row sum": False, "packed row sum": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    parser.add_argument("--ptxas", default=PTXAS, metavar="VERSION|PATH", help=f"default: {PTXAS}, as published")
    add_json(parser)
    add_html(parser)


def run(arguments: argparse.Namespace) -> int:
    toolchain = find_toolchain(arguments.ptxas)
    started = time.monotonic()
    current, captures = _capture(arguments.out)
    if not arguments.json:
        _show_capture(current, captures)
    comparisons = {title: _compare(capture, toolchain) for title, capture in captures.items()}
    if not arguments.json:
        for title, comparison in comparisons.items():
            _show_comparison(title, comparison, toolchain)
    rows = [*measure(toolchain), *_attention_rows(comparisons)]
    if arguments.json:
        show_json(_document(comparisons, rows, captures, toolchain))
    else:
        from tritonhook.report.terminal import render_table

        _title("5. The published table, again")
        show(render_table(rows, toolchain.ptxas.version))
        print(f"\nAssembled, not executed or timed. Captures: {current.out}. {time.monotonic() - started:.0f} s.")
    if arguments.html:
        write_html(arguments.html, _document(comparisons, rows, captures, toolchain, full=True), arguments.force)
    return 0


def _capture(out: str | None) -> tuple[Session, dict[str, Capture]]:
    """Compile both variants offline with tritonhook listening; a warm Triton cache is as good."""
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


def _title(text: str) -> None:
    from rich.text import Text

    show(Text(f"\n{text}", style="bold reverse"))


def _show_capture(current: Session, captures: dict[str, Capture]) -> None:
    from tritonhook.report.terminal import render_capture

    _title(f"1. Capture: {SUBJECT}, compiled for sm_100a without a GPU")
    record, capture = current.kernels[0], captures["scalar row sum"]
    show(render_capture(capture, str(current.out / "kernels" / record)))
    print(current.summary)
    _title("2. Rename: the PTX differs in these tokens and nowhere else")
    ptx = capture.ptx
    renamed = Rename(prefix=PREFIX).apply(ptx)
    for line in _changed_lines(ptx, renamed):
        print(f"  {line}")


def _changed_lines(old: Ptx, new: Ptx, most: int = 4) -> list[str]:
    pairs = [(a, b) for a, b in zip(old.text.splitlines(), new.text.splitlines(), strict=True) if a != b]
    shown = [f"{a.strip()}  ->  {b.strip()}" for a, b in pairs[:most]]
    return [*shown, f"... {len(pairs)} lines of {len(old.text.splitlines()):,} changed"]


def _show_comparison(title: str, comparison: NameComparison, toolchain: Toolchain) -> None:
    from tritonhook.report.terminal import comparison_headline, render_comparison

    full = title == "scalar row sum"
    number = 3 if full else 4
    _title(f"{number}. Assemble and diff with ptxas {toolchain.ptxas.version}: {title}")
    if full or comparison.diff is None:
        show(render_comparison(comparison))
    else:
        print(comparison_headline(comparison))
        print(comparison.diff.summary)


def _document(
    comparisons: dict[str, NameComparison],
    rows: list[Row],
    captures: dict[str, Capture],
    toolchain: Toolchain,
    full: bool = False,
) -> dict[str, Any]:
    from tritonhook.capture.store import describe
    from tritonhook.report.json import comparison_document, table_document

    arguments = captures["scalar row sum"].assembler.arguments or ()
    return {
        "format": 1,
        "kind": "demo",
        "captures": [describe(capture) for capture in captures.values()],
        "comparisons": {t: comparison_document(c, toolchain.ptxas, arguments, full) for t, c in comparisons.items()},
        "table": table_document(rows, toolchain.ptxas),
    }
