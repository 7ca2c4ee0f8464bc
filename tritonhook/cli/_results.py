"""What a verb does with its result: print it as text, JSON or Markdown, write it as an HTML page, save it for later."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._progress import working
from tritonhook.cli._streams import show_json, show_summary, to_json, write_out

if TYPE_CHECKING:
    from tritonhook.report.result import Result
    from tritonhook.report.summary import Page, Summary

Document = Callable[[bool], "dict[str, Any] | Result"]
Show = Callable[["Summary"], None]  # prints a result as text


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the output flags. They are the same, and mean the same, for every verb that has a result."""
    group = parser.add_argument_group("output")
    printed = group.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    printed.add_argument("--markdown", action="store_true", help="print a summary in GitHub's Markdown instead of text")
    group.add_argument("--html", metavar="FILE", help="also write the result to FILE, as one HTML page")
    group.add_argument(
        "--save", metavar="FILE", help="also write the result to FILE as JSON, with its code, for `tritonhook report`"
    )
    group.add_argument("--force", action="store_true", help="replace files that exist")


def is_printed(arguments: argparse.Namespace) -> bool:
    """Whether standard output is for the result: then nothing else may be printed there."""
    return bool(arguments.json or arguments.markdown)


def check_results(arguments: argparse.Namespace) -> None:
    """Raises UsageError, before any work, if the page could not be made or written afterwards."""
    for path in (getattr(arguments, name, None) for name in ("html", "save")):
        if path:
            check_new(Path(path), arguments.force)
    if getattr(arguments, "html", None):
        from tritonhook.report.render.html import check_available

        check_available()


def give(arguments: argparse.Namespace, result: Result | Document, source: str = "", show: Show = show_summary) -> None:
    """Print the result as asked for, and write its files.

    result: or a function that makes it; called with True, it adds what only pages and saved files have, e.g. the code.
    source: the file that the page names as its source. show: prints the result as text.
    """
    make = _maker(result)
    brief = make(False)
    if arguments.json:
        show_json(brief.document())
    elif arguments.markdown:
        from tritonhook.report.render.markdown import render_markdown

        write_out(render_markdown(brief.summary()))
    else:
        show(brief.summary())
    if arguments.save:
        with working(f"writing {arguments.save}"):
            write_new(Path(arguments.save), to_json(make(True).document()), arguments.force)
        _say_wrote(arguments.save)
    if arguments.html:
        with working(f"writing {arguments.html}"):
            _write_html(arguments.html, make(True), arguments.force, source)
        _say_wrote(arguments.html)


def _maker(result: Result | Document) -> Callable[[bool], Result]:
    if not callable(result):
        return lambda full: result
    return lambda full: made if not isinstance(made := result(full), dict) else cast("Result", _OfDocument(made))


@dataclass(frozen=True)
class _OfDocument:
    """A result of a kind that has no class yet."""

    values: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return self.values

    def summary(self) -> Summary:
        from tritonhook.report.kinds import summary_of

        return summary_of(self.values)

    def page(self) -> Page:
        from tritonhook.report.kinds import page_of

        return page_of(self.values)


def _write_html(path: str, result: Result, force: bool, source: str) -> None:
    """Write a result's page: the one that the saved document gives."""
    from tritonhook.report.kinds import page_of
    from tritonhook.report.render.html import render_html

    read_back = json.loads(to_json(result.document()))
    write_new(Path(path), render_html(page_of(read_back), source), force)


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)
