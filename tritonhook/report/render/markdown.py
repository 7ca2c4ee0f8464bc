"""A Summary as GitHub-flavoured Markdown, e.g. for $GITHUB_STEP_SUMMARY and for notebooks.

A result's texts are untrusted: each is escaped or put into a code span, so that none becomes a link, a mention or a
column of a table.
"""

from __future__ import annotations

import re

from tritonhook.report.result import Summary, Table, Tone, short, visible

SIGNS = {
    Tone.GOOD: "🟢",
    Tone.BAD: "🔴",
    Tone.CHANGED: "🟣",
    Tone.UNSURE: "🟡",
    Tone.NEUTRAL: "⚪",
}
_MOST_ROWS = 60
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!$@])")


def render_markdown(summary: Summary) -> str:
    """Write the verdict as a heading, then facts, tables and notes. A long table is cut; a line states how many rows
    are left out."""
    parts = [f"### {SIGNS[summary.tone]} {escaped(summary.what)}: {escaped(summary.verdict)}"]
    if summary.subject:
        parts.append(code_span(short(summary.subject, 200)))
    if summary.facts:
        parts.append("\n".join(f"- {escaped(fact)}" for fact in summary.facts))
    for table in summary.tables:
        if table.rows:
            parts += [f"**{escaped(table.title)}**"] if table.title else []
            parts.append(markdown_table(table))
    if summary.notes:
        parts.append("\n".join(f"> {escaped(note)}\\" for note in summary.notes)[:-1])
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Escape text as one line without markup. Text in backquotes becomes a code span."""
    pieces = re.split(r"`([^`\n]+)`", visible(short(text, 1000)))
    return "".join(
        code_span(piece) if index % 2 else _SPECIAL.sub(r"\\\1", piece).replace("://", ":\u200b//")
        for index, piece in enumerate(pieces)
    )


def code_span(text: str) -> str:
    """Write a code span. Its fence has one backquote more than the longest run of backquotes in the text."""
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def markdown_table(table: Table, most: int = _MOST_ROWS) -> str:
    """Write a table without its title. most: maximum number of rows; further rows are only counted."""
    lines = ["| " + " | ".join(escaped(column) or "&nbsp;" for column in table.columns) + " |"]
    lines.append("|" + "|".join("---:" if table.is_figure(i) else "---" for i in range(len(table.columns))) + "|")
    for number, row in enumerate(table.rows[:most]):
        bold = bool(table.tones) and table.tones[number] is Tone.BAD
        cells = [escaped(short(cell, 200)) for cell in row]
        lines.append("| " + " | ".join(f"**{cell}**" if bold and cell else cell for cell in cells) + " |")
    if len(table.rows) > most:
        lines += ["", f"{len(table.rows) - most:,} further rows are left out."]
    return "\n".join(lines)
