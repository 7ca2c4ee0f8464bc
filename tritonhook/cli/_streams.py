"""Standard output and standard error: text or JSON for results, one line for what went wrong.

This is the edge at which foreign text is made safe: `print` and `sys.stderr.write` escape control characters while a
command runs. What a renderer made, which has escaped its texts and adds colours, is written with write_out and
write_err; so are JSON and PTX.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from tritonhook._util import text as texts
from tritonhook._util.text import say, visible
from tritonhook.errors import TritonHookError, UsageError

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary

_DEBUG = "TRITONHOOK_DEBUG"


def show_summary(summary: Summary, wide: bool = False) -> None:
    """Print a result on standard output. wide: with all columns of its tables."""
    from tritonhook.report.render.terminal import render_terminal

    write_out(render_terminal(summary, sys.stdout, wide))


def show_json(document: dict[str, Any]) -> None:
    write_out(to_json(document))


def to_json(document: Mapping[str, Any]) -> str:
    return texts.to_json(document, indent=1) + "\n"


def write_out(text: str = "", exact: bool = False) -> None:
    """Write safe text and flush standard output. An OSError (BrokenPipeError too) names it.

    exact: raise UsageError for characters that the stream's encoding does not have, instead of writing them out.
    """
    stream = unescaped(sys.stdout)
    try:
        stream.write(text if exact else _encodable(text, stream))
        sys.stdout.flush()
    except UnicodeEncodeError as error:
        raise UsageError(f"standard output takes {error.encoding} only; write to a file with -o FILE") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from None


def _encodable(text: str, stream: TextIO) -> str:
    """The text, with arrows and what else the stream's encoding does not have written out in ASCII."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.replace("\u2192", "->").encode(encoding, "backslashreplace").decode(encoding)
    return text


def write_err(text: str) -> None:
    """Write safe text on standard error, and flush it."""
    unescaped(sys.stderr).write(text)
    sys.stderr.flush()


class _Escaping(io.TextIOBase):
    """A stream that writes control characters out, except line ends and tabs. inner: where it writes to."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.inner.encoding

    def write(self, text: str, /) -> int:
        self.inner.write(_encodable(visible(text, keep="\n\t"), self.inner))
        return len(text)

    def flush(self) -> None:
        self.inner.flush()

    def isatty(self) -> bool:
        return self.inner.isatty()

    def fileno(self) -> int:
        return self.inner.fileno()


def unescaped(stream: TextIO) -> TextIO:
    """The stream behind one that escapes, for what draws with control characters."""
    return stream.inner if isinstance(stream, _Escaping) else stream


class _ClosedOutput(io.TextIOBase):
    """Replaces a standard output that is closed (`>&-`), to which print() would write nothing without an error."""

    def write(self, text: str, /) -> int:
        if text:
            raise OSError(errno.EBADF, "closed; give a file or a pipe", "standard output")
        return 0


@contextmanager
def streams() -> Iterator[None]:
    """Give the verbs escaping streams to write to; a stream that is closed from the start is None in Python.

    At the end what cannot be written is discarded: the interpreter would fail to flush it, and exit with status 120.
    """
    given = sys.stdout, sys.stderr
    out = cast(TextIO, _ClosedOutput()) if sys.stdout is None else sys.stdout
    err = Path(os.devnull).open("w") if sys.stderr is None else sys.stderr  # noqa: SIM115  (open to the end)
    sys.stdout, sys.stderr = cast(TextIO, _Escaping(out)), cast(TextIO, _Escaping(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = given[0] or out, given[1] or err
        for stream in (out, err):
            _flush(stream)


def _flush(stream: TextIO) -> None:
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
        say(f"tritonhook{where and ' '}{where}: {_sentence(error)}")
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
