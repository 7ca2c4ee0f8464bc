"""Run a Python script, with all its child processes, and show what took its GPU memory.

  tritonhook mem watch script.py arg ...
  tritonhook mem watch --save memory.json -m package.module      # `tritonhook show memory.json` shows it again
  tritonhook mem watch --fail-over 256MiB script.py              # for CI

Options come before the script. The result goes to standard error. With --json or --markdown it goes to standard output,
and the script's own output to standard error.

The exit status is the script's. It is 2 if there is no GPU (then the script is not run), or if nothing was watched.
With --fail-over it is 1 if the script ended with 0 and the memory that no allocator shows grew by more than SIZE, or is
not known.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.cli._parser import TROUBLE, Group, argument, flag, option, part
from tritonhook.cli._programs import script_command, watched
from tritonhook.cli._results import Results, give
from tritonhook.cli._streams import complain, write_err
from tritonhook.memory.prediction import parse_bytes
from tritonhook.memory.timeline import MemoryTimeline

if TYPE_CHECKING:
    from tritonhook.report.result import Summary


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    fail_over: str | None = option(
        metavar="SIZE", help="exit with 1 if memory outside allocators grew by more than SIZE"
    )
    module: bool = flag("-m", help="run a module instead of a script, as python -m does")
    command: tuple[str, ...] = argument(
        nargs=argparse.REMAINDER, help="script and its arguments, or -- program and arguments"
    )
    results: Results = part(Results)


def run(options: Options) -> int:
    command = script_command(options.command, options.module)
    limit = None if options.fail_over is None else parse_bytes(options.fail_over)
    ended, timelines, notes = watched(command, options.results.is_printed)
    try:
        _give(options, timelines, notes)
    except Exception as error:  # the script has run, so its exit status is still returned
        complain("mem watch, after the script", error)
    if ended.code or not timelines:
        return ended.code or TROUBLE
    return int(limit is not None and is_over(timelines, limit))


def is_over(timelines: Sequence[MemoryTimeline], limit: int) -> bool:
    """Return True if growth outside allocators is above the limit on a GPU, or is unknown."""
    grown = [timeline.outside_allocators_bytes for timeline in timelines]
    return not grown or any(value is None or value > limit for value in grown)


def _give(options: Options, timelines: Sequence[MemoryTimeline], notes: Sequence[str]) -> None:
    from tritonhook.report.results.memory import Memory

    give(options.results, Memory.of(timelines, notes), show=_show)


def _show(summary: Summary) -> None:
    """Print the result on standard error, because standard output is the script's."""
    from tritonhook.report.render.terminal import render_terminal

    write_err(render_terminal(summary, sys.stderr))
