"""Results of a verb: printed as text, JSON, Markdown or CSV, and written to the files that its flags name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._parser import Group, flag, option
from tritonhook.cli._progress import working
from tritonhook.cli._sites import KernelPage, is_site, write_site
from tritonhook.cli._streams import to_json, write_out
from tritonhook.errors import UsageError

if TYPE_CHECKING:
    from tritonhook.report.result import Result, Summary

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


def show_summary(summary: Summary, wide: bool = False) -> None:
    """Print a result on standard output. wide: with all columns of its tables."""
    from tritonhook.report.render.terminal import render_terminal

    write_out(render_terminal(summary, sys.stdout, wide))


def show_json(document: dict[str, Any]) -> None:
    write_out(to_json(document))


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
        from tritonhook.report.render.csv import render_csv

        write_out(render_csv(brief.csv_table()))
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


def _full(result: Result | Make) -> Result:
    return result(True) if callable(result) else result


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)
