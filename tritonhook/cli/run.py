"""Run a Python script, and all its child processes, with tritonhook enabled.

Options come before the script. The exit status is the script's.

  tritonhook run script.py arg ...
  tritonhook run --prefix cutlass_ --out captures -m package.module
  tritonhook run -- torchrun --nproc-per-node 2 train.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tritonhook import startup
from tritonhook.cli._output import add_json, show_json
from tritonhook.cli.rename import add_rename, wanted_rename
from tritonhook.errors import UsageError
from tritonhook.ptx_capture import DEFAULT_OUT, make_settings
from tritonhook.store import CaptureFolder, CaptureWriter

_LISTED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", help=f"folder for captures (default: $TRITONHOOK_OUT, else {DEFAULT_OUT})")
    parser.add_argument("--only", metavar="REGEX", help="only kernels whose name it matches")
    add_rename(parser)
    add_json(parser)
    parser.add_argument("-m", dest="module", action="store_true", help="what follows is a module, as in python -m")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="script and its arguments, or -- program and arguments"
    )


def run(arguments: argparse.Namespace) -> int:
    command = _command(arguments.command, arguments.module)
    settings = make_settings(arguments.out, wanted_rename(arguments), only=arguments.only)
    CaptureWriter(settings.out).close()  # says now, not in some child, if the folder cannot be written
    started = time.time_ns()
    code = _wait(command, startup.environment(settings, os.environ))
    _report(settings.out, started, arguments.json)
    return code


def _command(words: list[str], module: bool) -> list[str]:
    if words[:1] == ["--"] and not module:
        if len(words) < 2 or shutil.which(words[1]) is None:
            raise UsageError(f"{words[1] if len(words) > 1 else 'nothing after --'}: no such program")
        return words[1:]
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise UsageError("no script given; write `tritonhook run script.py`")
    if module:
        return [sys.executable, "-m", *words]
    if not Path(words[0]).is_file():
        remedy = f"; for a program write `tritonhook run -- {words[0]}`" if shutil.which(words[0]) else ""
        raise UsageError(f"{words[0]}: no such script{remedy}")
    return [sys.executable, *words]


def _wait(command: list[str], environment: dict[str, str]) -> int:
    """Run to the end. A terminal's Ctrl-C reaches the child by itself; other signals are passed on."""
    child = subprocess.Popen(command, env=environment)
    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number)),
    }
    try:
        code = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _report(out: Path, started_ns: int, as_json: bool) -> None:
    """On standard error, so that the script's own output stays as it is."""
    folder = CaptureFolder.open(out).since(started_ns)
    records = list(dict.fromkeys(s.record for s in folder.sightings))
    hits = sum(1 for r in records if next(s for s in folder.sightings if s.record == r).cache_hit)
    if as_json:
        from tritonhook.report.json import captures_document

        show_json(captures_document(folder))
        return
    from rich.console import Console

    from tritonhook.report.terminal import render_captures

    console = Console(stderr=True, width=None if sys.stderr.isatty() else 160, highlight=False)
    if records:
        console.print(render_captures(folder, records[:_LISTED]))
        if len(records) > _LISTED:
            console.print(f"... {len(records) - _LISTED} more: tritonhook show {out}", markup=False)
    for note in folder.notes:
        console.print(f"  {note}", markup=False)
    seen = f"{len(records)} kernel{'' if len(records) == 1 else 's'} seen, {hits} from cache"
    console.print(f"tritonhook: {seen}; captures in {out}", markup=False, soft_wrap=True)
