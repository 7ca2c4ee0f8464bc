"""A Summary for a notebook: a fragment of HTML without a script and with its few styles inline, so that Jupyter, VS
Code and GitHub all show it. `tritonhook show` makes the full page."""

from __future__ import annotations

from html import escape
from typing import Any

from tritonhook.errors import TritonHookError
from tritonhook.report.format import short, visible
from tritonhook.report.summary import Summary, Table, Tone
from tritonhook.report.values import summary_of

# Readable on white and on black: the notebook's theme is not known here.
_COLOURS = {
    Tone.GOOD: "#1f8f55",
    Tone.BAD: "#d0433a",
    Tone.CHANGED: "#8a63d2",
    Tone.UNSURE: "#b07a10",
    Tone.NEUTRAL: "inherit",
}
_MOST_ROWS = 30


def fragment(value: Any) -> str | None:
    """The HTML of a result. None for other values: the notebook shows their repr."""
    try:
        summary = summary_of(value)
        return None if summary is None else render_fragment(summary)
    except TritonHookError as error:
        return f"<p>{escape(str(error))}</p>"


def render_fragment(summary: Summary) -> str:
    """Verdict, facts, tables, notes."""
    colour = _COLOURS[summary.tone]
    parts = [
        '<div style="font-family:system-ui,sans-serif;line-height:1.45;max-width:960px">',
        f'<div style="font-size:1.35em;font-weight:600;color:{colour}">{_text(summary.verdict)}</div>',
        f'<div style="opacity:.75">{escape(summary.what)}: <code>{_text(summary.subject)}</code></div>',
    ]
    if summary.facts:
        parts.append("<ul>" + "".join(f"<li>{_text(fact)}</li>" for fact in summary.facts) + "</ul>")
    parts += [_table(table) for table in summary.tables if table.rows]
    parts += [f'<div style="opacity:.75">{_text(note)}</div>' for note in summary.notes]
    return "".join([*parts, "</div>"])


def _text(text: str) -> str:
    return escape(visible(short(text, 400)))


def _table(table: Table) -> str:
    def cell(tag: str, text: str, index: int, colour: str = "") -> str:
        align = "right" if table.is_figure(index) else "left"
        return f'<{tag} style="text-align:{align};{colour}">{_text(text)}</{tag}>'

    head = "".join(cell("th", text, i) for i, text in enumerate(table.columns))
    rows = []
    for number, row in enumerate(table.rows[:_MOST_ROWS]):
        tone = table.tones[number] if table.tones else Tone.NEUTRAL
        colour = f"color:{_COLOURS[tone]};font-weight:600" if tone in (Tone.BAD, Tone.GOOD) else ""
        rows.append("<tr>" + "".join(cell("td", text, i, colour) for i, text in enumerate(row)) + "</tr>")
    more = len(table.rows) - _MOST_ROWS
    rest = f"<div>{more:,} further rows</div>" if more > 0 else ""
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<p><b>{_text(table.title)}</b></p><table>{body}</table>{rest}"
