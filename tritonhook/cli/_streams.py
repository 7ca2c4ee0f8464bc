"""Standard output and standard error: errors in one line, text through the pager.

While a command runs, `print` and `sys.stderr.write` escape control characters in texts from outside. Renderers escape
texts themselves and add colours, so their output, and JSON and PTX, go through write_out and write_err.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, cast

from tritonhook._util.text import say, visible
from tritonhook.errors import Terminated, TritonHookError, UsageError

_DEBUG = "TRITONHOOK_DEBUG"


def write_paged(text: str) -> None:
    """Write text that is already escaped. If it is too long for the terminal, run $PAGER (default: `less`) to show
    it."""
    if sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        pager = shlex.split(os.environ.get("PAGER") or "less -FRX")
        with suppress(OSError, BrokenPipeError):
            subprocess.run(pager, input=text.encode(), check=False)
            return
    write_out(text)


def write_out(text: str = "", exact: bool = False) -> None:
    """Write text that is already escaped, and flush standard output. Any OSError, also BrokenPipeError, names standard
    output as its file.

    exact: raise UsageError for characters that the stream's encoding lacks, instead of escaping them.
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
    """Replace characters that the stream's encoding lacks: arrows by ->, others by backslash escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.replace("\u2192", "->").encode(encoding, "backslashreplace").decode(encoding)
    return text


def write_err(text: str) -> None:
    """Write text that is already escaped to standard error, and flush it."""
    unescaped(sys.stderr).write(text)
    sys.stderr.flush()


class _Escaping(io.TextIOBase):
    """A stream that escapes control characters, except line breaks and tabs. inner: the stream that it writes to."""

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
    """Return the stream behind an escaping one, for output with control characters such as colours."""
    return stream.inner if isinstance(stream, _Escaping) else stream


class _ClosedOutput(io.TextIOBase):
    """Replaces a standard output that is closed (`>&-`), so that print() fails. Otherwise print() would silently write
    nothing."""

    def write(self, text: str, /) -> int:
        if text:
            raise OSError(errno.EBADF, "closed; give a file or a pipe", "standard output")
        return 0


@contextmanager
def streams() -> Iterator[None]:
    """Replace the standard streams by escaping ones. A stream that was closed from the start is None in Python.

    At the end, discard output that cannot be written; otherwise the interpreter's flush would fail, with exit status
    120.
    """
    given = sys.stdout, sys.stderr
    out = cast(TextIO, _ClosedOutput()) if sys.stdout is None else sys.stdout
    err = Path(os.devnull).open("w") if sys.stderr is None else sys.stderr  # noqa: SIM115  (stays open)
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
    """Print an error in one line on standard error. With TRITONHOOK_DEBUG=1, add the traceback of an internal error."""
    with suppress(OSError, ValueError):  # standard error may be closed
        say(f"tritonhook{where and ' '}{where}: {_sentence(error)}")
        if os.environ.get(_DEBUG) == "1" and not isinstance(error, TritonHookError):
            traceback.print_exception(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, TritonHookError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "ended by a signal" if isinstance(error, Terminated) else "interrupted"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    text = " ".join(str(error).split())
    return f"internal error: {type(error).__name__}: {text}; please report it ({_DEBUG}=1 shows where it is)"
