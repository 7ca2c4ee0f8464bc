"""What a verb does with its result: print it as text, JSON or Markdown, write it as an HTML page, save it for later."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonhook.cli._files import check_new, write_new
from tritonhook.cli._streams import add_json, show_json, show_summary, to_json, write_out

Document = Callable[[bool], dict[str, Any]]  # called with True, it adds what only a page shows, e.g. the code


def add_results(parser: argparse.ArgumentParser, save: bool = False, force: bool = True) -> None:
    """Add --json, --markdown and --html FILE, with `save` --save FILE too, with `force` --force too."""
    printed = parser.add_mutually_exclusive_group()
    add_json(printed)
    printed.add_argument("--markdown", action="store_true", help="print a summary in GitHub's Markdown instead of text")
    add_html(parser, force)
    if save:
        parser.add_argument("--save", metavar="FILE", help="keep the result with its code, for `tritonhook report`")


def add_html(parser: argparse.ArgumentParser, force: bool = True) -> None:
    parser.add_argument("--html", metavar="FILE", help="also write the result to FILE, as one HTML page")
    if force:
        parser.add_argument("--force", action="store_true", help="replace files that exist")


def check_results(arguments: argparse.Namespace) -> None:
    """Raises UsageError, before any work, if the page could not be made or written afterwards."""
    for path in (getattr(arguments, name, None) for name in ("html", "save")):
        if path:
            check_new(Path(path), arguments.force)
    if getattr(arguments, "html", None):
        from tritonhook.report.render.html import check_available

        check_available()


def give(arguments: argparse.Namespace, document: Document) -> None:
    """Print the result as asked for, and write its files."""
    if arguments.json:
        show_json(document(False))
    else:
        from tritonhook.report.kinds import summary_of

        summary = summary_of(document(False))
        if arguments.markdown:
            from tritonhook.report.render.markdown import render_markdown

            write_out(render_markdown(summary))
        else:
            show_summary(summary)
    save = getattr(arguments, "save", None)
    if save:
        write_new(Path(save), to_json(document(True)), arguments.force)
        _say_wrote(save)
    if arguments.html:
        write_html(arguments.html, document(True), arguments.force)


def write_html(path: str, document: dict[str, Any], force: bool, source: str = "") -> None:
    """Write a document's page, and print where."""
    from tritonhook.report.kinds import page_of
    from tritonhook.report.render.html import render_html

    # Through JSON, so that the page is the one that the saved document gives.
    read_back = json.loads(to_json(document))
    write_new(Path(path), render_html(page_of(read_back), source), force)
    _say_wrote(path)


def _say_wrote(path: str) -> None:
    write_out()
    print(f"wrote {path}", file=sys.stderr)
