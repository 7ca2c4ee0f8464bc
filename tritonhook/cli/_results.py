"""Results of a verb: printed as text, JSON, Markdown or CSV, and written to the files that its flags name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.files import write_given
from tritonhook._util.text import say, to_json
from tritonhook.cli._parser import Group, flag, option
from tritonhook.cli._progress import working
from tritonhook.cli._streams import write_out
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.threads import tool_threads

if TYPE_CHECKING:
    from tritonhook.capture.model import Capture
    from tritonhook.report.result import Result, Summary

Make = Callable[[bool], "Result"]
Show = Callable[["Summary"], None]  # prints a result as text
KernelPage = tuple[str, Callable[[], "Result"]]  # key of the kernel's rows, and a function that makes its result


@dataclass(frozen=True, kw_only=True)
class Results(Group):
    """The output flags. They are the same, and mean the same, for every verb that has a result."""

    TITLE = "output"
    json: bool = flag(one_of="printed", help="print one JSON document instead of text")
    markdown: bool = flag(one_of="printed", help="print a summary in GitHub's Markdown instead of text")
    csv: bool = flag(help="print the first table as CSV, with all columns")
    html: str | None = option(
        metavar="FILE|FOLDER/",
        help="also write the result as HTML: to FILE as one page, or to FOLDER/ as index.html and a page for each "
        "kernel; write FOLDER/ with the slash unless it exists",
    )
    save: str | None = option(
        metavar="FILE", help="also write the result to FILE as JSON, with its code, for `tritonhook show`"
    )
    force: bool = flag(help="replace files that exist")

    @property
    def is_printed(self) -> bool:
        """Whether standard output is for the result, so that nothing else may be printed there."""
        return self.json or self.markdown or self.csv

    def check(self) -> None:
        """Raise UsageError, before any work, if a file of --html or --save could not be written later."""
        if self.csv and (self.json or self.markdown):
            raise UsageError("--csv: not allowed with --json or --markdown")
        if self.save:
            check_new(Path(self.save), self.force)
        if self.html:
            place = Path(self.html)
            check_new(place / "index.html" if place.is_dir() else place, self.force)
            from tritonhook.report.render.html import check_available

            check_available()


def show_summary(summary: Summary, wide: bool = False) -> None:
    """Print a result on standard output. wide: show all columns of its tables."""
    from tritonhook.report.render.terminal import render_terminal

    write_out(render_terminal(summary, sys.stdout, wide))


def give(
    options: Results,
    result: Result | Make,
    source: str = "",
    show: Show = show_summary,
    pages: Sequence[KernelPage] = (),
) -> None:
    """Print the result in the requested form, and write its files.

    result: the result, or a function that makes it; called with True, it adds parts that only pages and saved files
    have, e.g. the code. source: the file that a page names as its source. show: prints the result as text. pages: pages
    of the result's kernels, for `--html FOLDER/`.
    """
    make: Make = result if callable(result) else lambda full: result
    brief = make(False)
    if options.json:
        write_out(as_json(brief))
    elif options.csv:
        from tritonhook.report.render.csv import render_csv

        write_out(render_csv(brief.csv_table()))
    elif options.markdown:
        from tritonhook.report.render.markdown import render_markdown

        write_out(render_markdown(brief.summary()))
    else:
        show(brief.summary())
    if options.save:
        with working(f"writing {options.save}"):
            write_new(Path(options.save), as_json(make(True)), options.force)
        _say_wrote(options.save)
    if options.html and (options.html.endswith("/") or Path(options.html).is_dir()):
        with working(f"writing the pages of {options.html}", len(pages) or None) as advance:
            _write_site(Path(options.html), make(True), source, pages, options.force, advance)
        _say_wrote(str(Path(options.html) / "index.html"))
    elif options.html:
        with working(f"writing {options.html}"):
            write_new(Path(options.html), _page(make(True), source), options.force)
        _say_wrote(options.html)


def as_json(result: Result) -> str:
    """Write the result's document as text."""
    return to_json(result.document(), indent=1) + "\n"


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)


# --- HTML pages ----------------------------------------------------------------------------------


def _page(result: Result, source: str, links: dict[str, str] | None = None, home: str = "") -> str:
    """Render a result as a page. links: paths of the kernels' pages, by the keys of their rows."""
    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html

    return render_html(page_of(result), source, links or {}, home)


def _write_site(
    folder: Path, result: Result, source: str, pages: Sequence[KernelPage], force: bool, done: Callable[[int], None]
) -> None:
    """Write FOLDER/index.html, and the kernels' pages in FOLDER/kernels. A kernel that cannot be read has no page; an
    error is printed instead. done: called after each page."""
    from tritonhook.ptxas.pool import usable_processors

    def kernel_page(page: KernelPage) -> str | None:
        try:
            return _page(page[1](), source, home="../index.html")
        except TritonHookError as error:
            say(f"tritonhook: one kernel has no page: {error}")
            return None

    try:
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write: {error.strerror}") from None
    links = {}
    with tool_threads(usable_processors()) as pool:
        for (key, _), text in zip(pages, pool.map(kernel_page, pages), strict=True):
            done(1)
            if text is not None:
                links[key] = f"kernels/{key}.html"
                write_new(folder / links[key], text, force)
    write_new(folder / "index.html", _page(result, source, links), force)


def capture_page(capture: Capture, title: str | None, path: str | None = None) -> Result:
    """Make the result of one captured kernel with its code. title: its name with the configuration; None: its own
    name."""
    from msgspec import UNSET, structs

    from tritonhook.report.results.capture import CapturedOne

    return structs.replace(CapturedOne.of(capture, path or UNSET, full=True), title=title or UNSET)


# --- files ---------------------------------------------------------------------------------------


def check_new(path: Path, force: bool) -> None:
    """Raise UsageError if `write_new` would fail. Verbs that work for a long time call it before they begin."""
    if path.is_dir():
        raise UsageError(f"{path}: a folder; name a file in it")
    if str(path) == "-":
        raise UsageError("-: standard output is for the verb's own text; name a file, or ./-")
    if (path.is_file() or path.is_block_device()) and not force:
        raise UsageError(f"{path}: exists; pass --force to replace it")
    folder = Path(os.path.realpath(path)).parent  # a link is followed to its target
    if not path.exists() and not folder.is_dir():
        raise UsageError(f"{path}: cannot write: the folder {folder} does not exist; make it first")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: cannot write: you may not write to the folder {folder}")


def write_new(path: Path, data: str | bytes, force: bool) -> None:
    """Write a whole file, or nothing. Raises UsageError if the file exists without `force`, or cannot be written.

    A link stays, and its target is written. A device or a pipe is written to, not replaced.
    """
    check_new(path, force)
    try:
        write_given(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from None
