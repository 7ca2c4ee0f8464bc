"""Run a Python script, and all its child processes, with tritonhook enabled.

Options come before the script. The exit status is the script's; 128 + N if signal N ended it; 2 if it did not run.

  tritonhook run script.py arg ...
  tritonhook run --prefix cutlass_ --out captures -m package.module
  tritonhook run --rewrite tma-cta script.py
  tritonhook run -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tritonhook.capture.model import Capture
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment
from tritonhook.capture.ptxas_wrapper.script import troubles
from tritonhook.capture.session import summary_line
from tritonhook.capture.settings import DEFAULT_OUT, REWRITES, SHAPES, VALUES, make_settings
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.children.environment import capture_environment
from tritonhook.cli._captures import folder_document
from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._programs import run_to_end, script_command
from tritonhook.cli._renames import add_rename, wanted_rename
from tritonhook.cli._results import add_html, write_html
from tritonhook.cli._streams import complain, to_json, write_err
from tritonhook.rename import Rename

_LISTED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    parser.add_argument("--only", metavar="REGEX", help="capture and rename only kernels whose name matches")
    add_rename(parser)
    parser.add_argument(
        "--rewrite", action="append", default=[], choices=REWRITES, help="rewrite kernels; may be repeated"
    )
    parser.add_argument("--ptxas", metavar="VERSION|PATH", help="assemble Triton's kernels with this ptxas")
    parser.add_argument(
        "--options", metavar="'...'", help="add these ptxas options for Triton's kernels: --options='-O1 -v'"
    )
    launches = parser.add_mutually_exclusive_group()
    launches.add_argument(
        "--launches", action="store_const", const=SHAPES, help="record how kernels are launched, for `tritonhook ab`"
    )
    launches.add_argument(
        "--launch-values",
        dest="launches",
        action="store_const",
        const=VALUES,
        help="the same, with the contents of all buffers",
    )
    parser.add_argument("--json", metavar="FILE", help="write the list of captures to FILE, as one JSON document")
    add_html(parser, force=False)
    parser.add_argument("--force", action="store_true", help="replace the files of --json and --html if they exist")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="run a module instead of a script, as python -m does"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="script and its arguments, or -- program and arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    command = script_command(arguments.command, arguments.module)
    rename = wanted_rename(arguments)
    settings = make_settings(
        arguments.out,
        rename,
        only=arguments.only,
        rewrites=arguments.rewrite,
        launches=arguments.launches,
        ptxas=arguments.ptxas,
        options=arguments.options,
    )
    CaptureWriter(settings.out).close()  # raises here, not in a child process, if the folder cannot be written
    if arguments.json:
        check_new(Path(arguments.json), arguments.force)
    started = time.time_ns()
    home = WrapperHome.for_run(settings.out)
    code = run_to_end(command, path_environment(capture_environment(settings, os.environ), home))
    try:
        folder = CaptureFolder.open(settings.out).since(started)
        notes = [*folder.notes, *troubles(home.log, settings.out, started), *_unmatched(rename, folder)]
        notes += _passed_by(command, folder)
        if arguments.json:
            _write_document(Path(arguments.json), folder, notes, arguments.force)
        if arguments.html:
            document = folder_document(folder)
            write_html(arguments.html, document | {"notes": notes}, arguments.force)
        _report(folder, notes)
    except Exception as error:  # the script has run: its status is returned all the same
        complain("run, after the script", error)
    return code


def _unmatched(rename: Rename | None, folder: CaptureFolder) -> Iterator[str]:
    """A note for each OLD of --to that no kernel had."""
    if rename is None or not rename.mapping:
        return
    captures = [folder.try_capture(record) for record in folder.records]
    names = {n for c in captures if isinstance(c, Capture) for n in (c.kernel, c.rewritten_from)}
    for old, new in rename.mapping:
        if old not in names:
            yield f"--to {old}={new}: no kernel of that name was seen"


def _passed_by(command: Sequence[str], folder: CaptureFolder) -> Iterator[str]:
    """A note, if the user called a compiler by its full path, past the wrapper on PATH."""
    program = command[0]
    if not folder.records and "/" in program and Path(program).name in ("nvcc", "ptxas", "tileiras"):
        yield f"{program}: its full path bypasses the wrapper; put its folder on PATH and write {Path(program).name}"


def _write_document(path: Path, folder: CaptureFolder, notes: Sequence[str], force: bool) -> None:
    from tritonhook.report.documents.captures import captures_document

    write_new(path, to_json(captures_document(folder) | {"notes": list(notes)}), force)


def _report(folder: CaptureFolder, notes: Sequence[str]) -> None:
    """On standard error, so that the script's own output stays as it is."""
    from tritonhook.report.render.terminal import render_terminal
    from tritonhook.report.summaries.captures import captures_summary

    records = folder.records
    hits = sum(all(s.cache_hit for s in folder.seen(record)) for record in records)  # a worker may have compiled it
    if records:
        summary = captures_summary(folder_document(folder) | {"notes": notes})
        tables = tuple(replace(table, rows=table.rows[:_LISTED]) for table in summary.tables)
        write_err(render_terminal(replace(summary, tables=tables), sys.stderr))
    else:
        for note in notes:
            print(f"  {note}", file=sys.stderr)
    if len(records) > _LISTED:
        print(f"... {len(records) - _LISTED} more; to list them all: tritonhook show {folder.path}", file=sys.stderr)
    print(summary_line(len(records), hits, folder.path), file=sys.stderr)
