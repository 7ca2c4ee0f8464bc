"""A result in brief as GitHub-flavoured Markdown, e.g. for $GITHUB_STEP_SUMMARY. A summary in, text out.

Names come from anywhere: each stands in a code span or with its special characters escaped, so that none makes a link,
a mention or a table column.
"""

from __future__ import annotations

import re

from tritonhook.report.pages.common import Summary, Table, Tone, short

_SIGNS = {
    Tone.GOOD: ":green_circle:",
    Tone.BAD: ":red_circle:",
    Tone.CHANGED: ":purple_circle:",
    Tone.UNSURE: ":yellow_circle:",
    Tone.NEUTRAL: ":white_circle:",
}
_MOST_ROWS = 60
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!$@])")


def render_markdown(summary: Summary) -> str:
    """The verdict as a heading, the facts, and the tables; long ones are cut, and say so."""
    parts = [f"### {_SIGNS[summary.tone]} {escaped(summary.what)}: {escaped(summary.verdict)}"]
    if summary.subject:
        parts.append(code_span(short(summary.subject, 200)))
    if summary.facts:
        parts.append("\n".join(f"- {escaped(fact)}" for fact in summary.facts))
    parts += [_table(table) for table in summary.tables if table.rows]
    if summary.notes:
        parts.append("\n".join(f"> {escaped(note)}\\" for note in summary.notes)[:-1])
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """A text that stays text: one line, nothing in it is markup. What stood in backquotes becomes a code span."""
    pieces = re.split(r"`([^`\n]+)`", visible(short(text, 1000)))
    return "".join(
        code_span(piece) if index % 2 else _SPECIAL.sub(r"\\\1", piece).replace("://", ":\u200b//")
        for index, piece in enumerate(pieces)
    )


def visible(text: str) -> str:
    """Control characters and line breaks written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def code_span(text: str) -> str:
    """Backquotes around it, more than it has in a row."""
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(table: Table) -> str:
    lines = [f"**{escaped(table.title)}**", ""]
    lines.append("| " + " | ".join(escaped(column) or "&nbsp;" for column in table.columns) + " |")
    lines.append("|" + "|".join("---:" if table.is_figure(i) else "---" for i in range(len(table.columns))) + "|")
    for number, row in enumerate(table.rows[:_MOST_ROWS]):
        bold = bool(table.tones) and table.tones[number] is Tone.BAD
        cells = [escaped(short(cell, 200)) for cell in row]
        lines.append("| " + " | ".join(f"**{cell}**" if bold and cell else cell for cell in cells) + " |")
    if len(table.rows) > _MOST_ROWS:
        lines += ["", f"{len(table.rows) - _MOST_ROWS:,} further rows are left out."]
    return "\n".join(lines)
