"""What a verb does with its result: print it as text, JSON or Markdown, write it as an HTML page, save it for later."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._progress import working
from tritonhook.cli._streams import show_json, show_summary, to_json, write_out

if TYPE_CHECKING:
    from tritonhook.report.summary import Summary

Document = Callable[[bool], dict[str, Any]]  # called with True, it adds what only a page shows, e.g. the code
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


def give(arguments: argparse.Namespace, document: Document, source: str = "", show: Show = show_summary) -> None:
    """Print the result as asked for, and write its files.

    source: the file that the page names as its source. show: prints the result as text.
    """
    if arguments.json:
        show_json(document(False))
    else:
        from tritonhook.report.kinds import summary_of

        summary = summary_of(document(False))
        if arguments.markdown:
            from tritonhook.report.render.markdown import render_markdown

            write_out(render_markdown(summary))
        else:
            show(summary)
    if arguments.save:
        with working(f"writing {arguments.save}"):
            write_new(Path(arguments.save), to_json(document(True)), arguments.force)
        _say_wrote(arguments.save)
    if arguments.html:
        with working(f"writing {arguments.html}"):
            _write_html(arguments.html, document(True), arguments.force, source)
        _say_wrote(arguments.html)


def _write_html(path: str, document: dict[str, Any], force: bool, source: str) -> None:
    """Write a document's page."""
    from tritonhook.report.kinds import page_of
    from tritonhook.report.render.html import render_html

    # Through JSON, so that the page is the one that the saved document gives.
    read_back = json.loads(to_json(document))
    write_new(Path(path), render_html(page_of(read_back), source), force)


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)
