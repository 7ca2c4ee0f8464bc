"""Add the pages that are generated when the site is built.

MkDocs calls `on_files` (`hooks` in mkdocs.yml). No such page is committed: the command line's follows from argparse,
the JSON documents' from the schemas of the results, the tables of instructions and of measurements from
`benchmarks/results/`, what is trusted from SECURITY.md. Triton is not needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import full_tables
import schema

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of the site."""
    from mkdocs.structure.files import File  # type: ignore[import-not-found, unused-ignore]

    for name, content in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content()))
    return files


# --- What is trusted --------------------------------------------------------------------------------


def trust() -> str:
    """Copy the section "What is trusted" of SECURITY.md, because the docs cannot link to files outside of docs/."""
    _, _, text = (ROOT / "SECURITY.md").read_text().partition("## What is trusted\n")
    return f"# What is trusted\n{text}"


# --- JSON documents and measurements ----------------------------------------------------------------


def json_documents() -> str:
    """Write every kind of JSON document with its fields."""
    return f"{(HERE / 'json.md').read_text()}\n{schema.documents()}\n"


def measurements() -> str:
    """Write the full tables of which other pages show some rows."""
    return f"{(HERE / 'results.md').read_text()}\n{full_tables.sections()}"


# --- The command line -------------------------------------------------------------------------------


def cli_reference() -> str:
    """Write every verb with its arguments, from argparse."""
    from tritonhook.cli import parser

    top = parser()
    lines = [
        "# Command line",
        "",
        "Made from `tritonhook --help` and the help of each verb.",
        "",
        f"{top.epilog} `run` ends with the status of its script.",
        "",
        *_verbs(top, "##"),
    ]
    return "\n".join(lines) + "\n"


def _verbs(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _verb(verb, heading)


def _verb(verb: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    """Write a heading, the description, the usage and a table of arguments; then the verbs below it."""
    verb.formatter_class = _Usage
    yield from (f"{heading} {verb.prog}", "")
    for paragraph in (verb.description or "").strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        commands = all(line.startswith(("tritonhook", "#")) for line in lines)
        yield from (["```console", *(f"$ {line}" for line in lines), "```", ""] if commands else [*lines, ""])
    yield from ("```text", verb.format_usage().rstrip(), "```", "")
    rows = [row for action in verb._actions if (row := _argument(action)) is not None]
    if rows:
        yield from ("| argument | meaning |", "| --- | --- |", *rows, "")
    yield from _verbs(verb, heading + "#")


class _Usage(argparse.HelpFormatter):
    """Format the usage in a fixed width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


def _argument(action: argparse.Action) -> str | None:
    if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
        return None
    value = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices)) if action.choices else None
        metavar = action.metavar if isinstance(action.metavar, str) else None
        value = metavar or choices or (action.dest.upper() if action.option_strings else action.dest)
    names = [f"`{name}{' ' + value if value else ''}`" for name in action.option_strings] or [f"`{value}`"]
    text = " ".join((action.help or "").split())
    if "%(" in text:
        text %= {**vars(action), "prog": "tritonhook"}
    text = text.replace("|", chr(92) + "|")  # an escaped pipe does not end the table's cell
    return f"| {', '.join(names)} | {text} |"


# --- Instructions of each architecture --------------------------------------------------------------


def instructions() -> str:
    """Write the tables of `tritonhook lab caps` over all versions of ptxas, from the committed result."""
    from tritonhook._util.schema import as_schema
    from tritonhook.report.render.markdown import markdown_table
    from tritonhook.report.results.capabilities import Capabilities

    document = json.loads((ROOT / "benchmarks" / "results" / "caps.json").read_text())["samples"]
    result = as_schema(document, Capabilities)
    introduction = (HERE / "instructions.md").read_text()
    summary = result.summary()
    parts = [introduction.replace("{versions}", ", ".join(result.ptxas)).rstrip()]
    parts.append("\n".join(f"- {note}" for note in summary.notes))
    for table in summary.tables:
        parts += [f"## {table.title}", markdown_table(table, len(table.rows))]
    return "\n\n".join(parts) + "\n"


PAGES = {
    "cli": cli_reference,
    "instructions": instructions,
    "json": json_documents,
    "results": measurements,
    "trust": trust,
}
