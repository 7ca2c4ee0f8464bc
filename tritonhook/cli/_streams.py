"""Standard output and standard error: results as text or JSON, errors in one line, progress; and the files that a verb
writes.

Foreign text is made safe here: `print` and `sys.stderr.write` escape control characters while a command runs. Renderers
escape texts themselves and add colours, so their output goes through write_out and write_err, and so do JSON and PTX.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from tritonhook._util import text as texts
from tritonhook._util.files import write_given
from tritonhook._util.text import say, visible
from tritonhook.cli._parser import Group, flag, option
from tritonhook.errors import Terminated, TritonHookError, UsageError
from tritonhook.ptxas.threads import tool_threads

if TYPE_CHECKING:
    from tritonhook.capture.model import Capture
    from tritonhook.report.result import Result, Summary, Table


# A kernel's page: the key of its rows, and a function that makes its result.
KernelPage = tuple[str, Callable[[], "Result"]]
Write = Callable[[Path, str], None]


def is_site(path: str) -> bool:
    """Return whether a path names a folder of pages rather than a single file."""
    return path.endswith("/") or Path(path).is_dir()


def write_site(
    folder: Path, result: Result, source: str, pages: Sequence[KernelPage], write: Write, done: Callable[[int], None]
) -> None:
    """Write the kernels' pages to FOLDER/kernels, and FOLDER/index.html. A kernel that cannot be read gets no page, but
    a line on standard error. write: writes one file. done: called after each page."""
    from tritonhook.ptxas.pool import usable_processors
    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html

    try:
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write: {error.strerror}") from None
    links = {}
    with tool_threads(usable_processors()) as pool:
        texts = pool.map(partial(_kernel_page, source=source), pages)
        for (key, _), text in zip(pages, texts, strict=True):
            done(1)
            if text is not None:
                links[key] = f"kernels/{key}.html"
                write(folder / links[key], text)
    write(folder / "index.html", render_html(page_of(result), source, links))


def capture_page(capture: Capture, title: str | None, path: str | None = None) -> Result:
    """Make the result of one captured kernel with its code. title: its name among others."""
    from msgspec import UNSET, structs

    from tritonhook.report.results.capture import CapturedOne

    return structs.replace(CapturedOne.of(capture, path or UNSET, full=True), title=title or UNSET)


def _kernel_page(page: KernelPage, source: str) -> str | None:
    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html

    try:
        return render_html(page_of(page[1]()), source, home="../index.html")
    except TritonHookError as error:
        say(f"tritonhook: no page of one kernel: {error}")
        return None


_DEBUG = "TRITONHOOK_DEBUG"
_GROUPS = re.compile(r"(?<=\d),(?=\d{3})")  # between the thousands of a number


def show_summary(summary: Summary, wide: bool = False) -> None:
    """Print a result on standard output. wide: with all columns of its tables."""
    from tritonhook.report.render.terminal import render_terminal

    write_out(render_terminal(summary, sys.stdout, wide))


def write_paged(text: str) -> None:
    """Write safe text; if it is too long for the terminal, through $PAGER, else less."""
    if sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        pager = shlex.split(os.environ.get("PAGER") or "less -FRX")
        with suppress(OSError, BrokenPipeError):
            subprocess.run(pager, input=text.encode(), check=False)
            return
    write_out(text)


def show_json(document: dict[str, Any]) -> None:
    write_out(to_json(document))


def to_json(document: Mapping[str, Any]) -> str:
    return texts.to_json(document, indent=1) + "\n"


def write_out(text: str = "", exact: bool = False) -> None:
    """Write safe text and flush standard output. An OSError (BrokenPipeError too) names standard output.

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
    """Write safe text on standard error, and flush it."""
    unescaped(sys.stderr).write(text)
    sys.stderr.flush()


class _Escaping(io.TextIOBase):
    """A stream that escapes control characters, except line ends and tabs. inner: the stream that it writes to."""

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
    """Return the stream behind an escaping one, for output with control characters."""
    return stream.inner if isinstance(stream, _Escaping) else stream


class _ClosedOutput(io.TextIOBase):
    """Replaces a standard output that is closed (`>&-`), to which print() would write nothing without an error."""

    def write(self, text: str, /) -> int:
        if text:
            raise OSError(errno.EBADF, "closed; give a file or a pipe", "standard output")
        return 0


@contextmanager
def streams() -> Iterator[None]:
    """Replace the standard streams by escaping ones; Python has None for a stream that was closed from the start.

    At the end, discard what cannot be written: the interpreter would fail to flush it, and exit with status 120.
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
    """Print an error in one line on standard error; with TRITONHOOK_DEBUG=1 add the traceback of an internal error."""
    with suppress(OSError, ValueError):  # there is no standard error
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


# --- files ----------------------------------------------------------------------------------------


def near(path: Path) -> Path:
    """Shorten a path: relative if it lies in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


def check_new(path: Path, force: bool) -> None:
    """Raise UsageError if `write_new` would fail: for verbs that work for long before they write."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file in it")
    if str(path) == "-":
        raise UsageError("-: standard output has the verb's own text; name a file, or ./-")
    if (path.is_file() or path.is_block_device()) and not force:
        raise UsageError(f"{path}: exists; pass --force to replace it")
    if not path.exists() and not _place(path).parent.is_dir():
        raise UsageError(f"{path}: cannot write: the folder {_place(path).parent} does not exist; make it first")
    if not path.exists() and not os.access(_place(path).parent, os.W_OK):
        raise UsageError(f"{path}: cannot write: you may not write to the folder {_place(path).parent}")


def write_new(path: Path, data: str | bytes, force: bool) -> None:
    """Write a file whole or not at all. Raises UsageError if it exists without `force`, or if it cannot be written.

    A link is followed, and stays. A device or a pipe is written to, not replaced.
    """
    check_new(path, force)
    try:
        write_given(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None


def _place(path: Path) -> Path:
    """Return the path that a write ends at, with all links followed."""
    return Path(os.path.realpath(path))


# --- progress -------------------------------------------------------------------------------------
# Progress of work that takes longer than a moment. On a terminal it is a bar, removed at the end; elsewhere a
# line at the beginning, and further lines if the work has a count.


DELAY_S = 0.7  # shorter work is not reported
_AGAIN_S = 20.0  # between lines without a terminal
_QUIET = "TRITONHOOK_QUIET"

Advance = Callable[[int], None]


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Advance]:
    """Report work that takes longer than a moment. Yields a function to call with the number of steps done.

    text: e.g. "assembling side a with ptxas 12.8.93". total: the number of steps, if known in advance.
    """
    if is_quiet():
        yield lambda steps: None
        return
    reporter = (_Bar if sys.stderr.isatty() else _Lines)(visible(text), total)
    thread = threading.Thread(target=reporter.run, daemon=True)
    thread.start()
    try:
        yield reporter.advance
    finally:
        reporter.ended.set()
        thread.join()


def is_quiet() -> bool:
    """Return whether the user wants no progress reports."""
    return bool(os.environ.get(_QUIET))


class _Lines:
    """Reports in lines, for a file or a pipe."""

    def __init__(self, text: str, total: int | None) -> None:
        self.text, self.total, self.done = text, total, 0
        self.ended = threading.Event()

    def advance(self, steps: int) -> None:
        self.done += steps

    def run(self) -> None:
        wait = DELAY_S
        while not self.ended.wait(wait):
            count = "" if self.total is None else f", {self.done:,} of {self.total:,} done"
            say(f"tritonhook: {self.text}{count} ...")
            wait = _AGAIN_S if self.total is not None else threading.TIMEOUT_MAX


class _Bar(_Lines):
    """Reports as a bar, which goes away at the end."""

    def run(self) -> None:
        if self.ended.wait(DELAY_S):
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        counted = () if self.total is None else (BarColumn(), MofNCompleteColumn())
        console = Console(file=unescaped(sys.stderr))
        with Progress(SpinnerColumn(), text, *counted, TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task(self.text, total=self.total)
            while not self.ended.wait(0.1):
                bar.update(task, completed=self.done)


# --- results --------------------------------------------------------------------------------------


Make = Callable[[bool], "Result"]
Show = Callable[["Summary"], None]  # prints a result as text


@dataclass(frozen=True, kw_only=True)
class Results(Group):
    """The output flags. They are the same, and mean the same, for every verb that has a result."""

    TITLE = "output"
    json: bool = flag(one_of="printed", help="print one JSON document instead of text")
    markdown: bool = flag(one_of="printed", help="print a summary in GitHub's Markdown instead of text")
    csv: bool = flag(help="print the first table as CSV, with all columns")
    html: str | None = option(
        metavar="FILE|FOLDER/",
        help="also write the result to FILE as one HTML page; to FOLDER/ (with the slash, or if it exists) with a page "
        "for each kernel, linked from index.html",
    )
    save: str | None = option(
        metavar="FILE", help="also write the result to FILE as JSON, with its code, for `tritonhook show`"
    )
    force: bool = flag(help="replace files that exist")

    @property
    def is_printed(self) -> bool:
        """Whether standard output carries the result: then nothing else may be printed there."""
        return self.json or self.markdown or self.csv

    def check(self) -> None:
        """Raise UsageError, before any work, if the page or the file could not be written afterwards."""
        if self.csv and (self.json or self.markdown):
            raise UsageError("--csv: not with --json or --markdown")
        if self.save:
            check_new(Path(self.save), self.force)
        if self.html:
            place = Path(self.html)
            check_new(place / "index.html" if place.is_dir() else place, self.force)
            from tritonhook.report.render.html import check_available

            check_available()


def give(
    options: Results,
    result: Result | Make,
    source: str = "",
    show: Show = show_summary,
    pages: Sequence[KernelPage] = (),
) -> None:
    """Print the result in the requested form, and write its files.

    result: or a function that makes it; called with True, it adds what only pages and saved files have, e.g. the code.
    source: the file that the page names as its source. show: prints the result as text. pages: of its kernels, for a
    folder of pages.
    """
    brief = result(False) if callable(result) else result
    if options.json:
        show_json(brief.document())
    elif options.csv:
        write_out(_csv(brief.csv_table()))
    elif options.markdown:
        from tritonhook.report.render.markdown import render_markdown

        write_out(render_markdown(brief.summary()))
    else:
        show(brief.summary())
    if options.save:
        with working(f"writing {options.save}"):
            write_new(Path(options.save), to_json(_full(result).document()), options.force)
        _say_wrote(options.save)
    if options.html:
        from tritonhook.report.pages import page_of
        from tritonhook.report.render.html import render_html

        write = partial(write_new, force=options.force)
        if is_site(options.html):
            with working(f"writing the pages of {options.html}", len(pages) or None) as advance:
                write_site(Path(options.html), _full(result), source, pages, write, advance)
            _say_wrote(str(Path(options.html) / "index.html"))
            return
        with working(f"writing {options.html}"):
            write(Path(options.html), render_html(page_of(_full(result)), source))
        _say_wrote(options.html)


def _csv(table: Table | None) -> str:
    """Write a table as CSV, numbers without thousands separators. Raises UsageError without a table."""
    if table is None:
        raise UsageError("--csv: this result has no table; --json has all of it")
    out = io.StringIO()
    rows = ([_GROUPS.sub("", cell) if table.is_figure(n) else cell for n, cell in enumerate(row)] for row in table.rows)
    csv.writer(out, lineterminator="\n").writerows([table.columns, *rows])
    return out.getvalue()


def _full(result: Result | Make) -> Result:
    return result(True) if callable(result) else result


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)
