"""Standard output and standard error: text or JSON for results, one line for what went wrong."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from tritonhook.errors import TritonHookError

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary

_DEBUG = "TRITONHOOK_DEBUG"


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def show_summary(summary: Summary) -> None:
    """Print a result on standard output."""
    from tritonhook.report.render.terminal import render_terminal

    write_out(render_terminal(summary, sys.stdout))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of texts on standard output."""
    from tritonhook.report.render.terminal import render_table
    from tritonhook.report.summary import Table

    write_out(render_table(Table("", tuple(columns), tuple(map(tuple, rows)), len(columns)), sys.stdout))


def show_json(document: dict[str, Any]) -> None:
    write_out(to_json(document))


def to_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, default=str) + "\n"


def write_out(text: str = "") -> None:
    """Write and flush standard output. An OSError (BrokenPipeError too) names it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


class _ClosedOutput(io.TextIOBase):
    """Replaces a standard output that is closed (`>&-`), to which print() would write nothing without an error."""

    def write(self, text: str, /) -> int:
        if text:
            raise OSError(errno.EBADF, "closed; give a file or a pipe", "standard output")
        return 0


def open_streams() -> None:
    """Give the verbs something to write to: a stream that is closed from the start is None in Python."""
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedOutput())
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (open to the end)


def end_streams() -> None:
    """Discard what cannot be written: the interpreter would fail to flush it at exit, and end with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def complain(where: str, error: BaseException) -> None:
    """Print an error in one line on standard error; with TRITONHOOK_DEBUG=1 also the traceback of an internal one."""
    with suppress(OSError, ValueError):  # there is no standard error
        print(f"tritonhook{where and ' '}{where}: {_sentence(error)}", file=sys.stderr)
        if os.environ.get(_DEBUG) == "1" and not isinstance(error, TritonHookError):
            traceback.print_exception(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, TritonHookError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    text = " ".join(str(error).split())
    return f"internal error: {type(error).__name__}: {text}; please report it ({_DEBUG}=1 shows where it is)"
