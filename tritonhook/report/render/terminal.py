"""A Summary as text for a terminal, laid out with rich.

Numbers are never cut or broken. A word is broken only if it is a path or longer than a line. In a table that is too
wide, texts wrap between words; if the table still does not fit, each row is printed as a list of its cells. In a table
with `one_line`, texts are shortened first, then the last columns are left out, except those in `kept`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Literal, TextIO

from rich import cells as rich_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from tritonhook.report.result import Summary, Table, Tone, sentence, visible


def elided(text: str, width: int) -> str:
    """Shorten a text to `width` cells. Cut it in its middle, because names often differ at their end."""
    tail = min(max(width - 1, 0) // 3, len(text))
    head = max(width - 1 - tail, 0)
    # A character may be two cells wide, so that this first cut is too wide.
    while head + tail > 0 and cell_len(text[:head] + text[len(text) - tail :]) > width - 1:
        head, tail = (head - 1, tail) if head > tail else (head, tail - 1)
    return f"{text[:head]}…{text[len(text) - tail :]}"


_STYLES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.CHANGED: "magenta", Tone.UNSURE: "yellow", Tone.NEUTRAL: ""}
_HEIGHT = 25  # lines; only given because rich ignores the width of a dumb terminal without a height
_GAP = 2  # blanks between columns
_WIDTH_OF_A_FILE = 1_000_000  # wider than any text, so that nothing is wrapped or broken
_NARROWEST = 12  # minimum width of a column with paths or overlong words
_SHORTEST = 16  # minimum width of a shortened text in a `one_line` table
_LONGEST = 20_000  # characters; longer texts are shortened in the middle; no compiler writes such texts


def render_terminal(summary: Summary, stream: TextIO, wide: bool = False) -> str:
    """Draw verdict, facts, tables and notes at the width of `stream`. wide: show all columns of `one_line` tables,
    however long the lines become."""
    style = f"bold {_STYLES[summary.tone]}".strip()
    parts: list[RenderableType] = [_text(sentence(summary.verdict), style)]
    if summary.subject:
        parts.append(_text(f"{summary.what}: {summary.subject}", "dim"))
    parts += [_item(fact) for fact in summary.facts]
    for table in filter(lambda table: table.rows, summary.tables):
        parts += ["", OneLineTable(table, wide) if table.one_line else TextTable(table)]
    if summary.notes:
        parts += ["", *(_item(note, "dim") for note in summary.notes)]
    return drawn(Group(*parts), stream)


def render_title(text: str, stream: TextIO) -> str:
    """Draw a title above several results."""
    return drawn(Group("", _text(text, "bold reverse")), stream)


def drawn(renderable: RenderableType, stream: TextIO) -> str:
    """Draw with rich, at the terminal's width. In a file or pipe, lines are as long as their text.

    rich never gets the stream itself: on a broken pipe it would end the process with status 1, which means "different".
    """
    terminal = stream.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal or None,  # None: rich reads variables such as FORCE_COLOR
        width=_width(terminal),
        height=_HEIGHT,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(renderable, crop=False)
    lines = captured.get().splitlines()
    return "".join(f"{line if terminal else line.rstrip()}\n" for line in lines)


def _width(terminal: bool) -> int | None:
    """Return the width of the output. For a terminal it is the variable COLUMNS; None if this is not set: rich then
    asks the terminal. For a file or pipe, COLUMNS is ignored, because a shell or Python with readline exports it to
    child processes."""
    if not terminal:
        return _WIDTH_OF_A_FILE
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else None


def cell_len(text: str) -> int:
    """Return the width in cells of a text without control characters."""
    return len(text) if text.isascii() or text.replace("→", "").isascii() else rich_cells.cell_len(text)


def _line(text: str, style: str, console: Console) -> Iterator[Segment]:
    """Draw one line of any length. A Segment is ten times faster than a rich Text."""
    yield Segment(text, console.get_style(style) if style else None)
    yield Segment.line()


def _text(text: str, style: str = "") -> Text:
    return _folded(_shown(text), style)


def _folded(text: str, style: str = "") -> Text:
    """Make a rich Text that wraps between words; a word longer than the line is broken."""
    return Text(text, style, overflow="fold")


def _shown(text: str) -> str:
    text = visible(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def _item(text: str, style: str = "") -> RenderableType:
    item = Grid.grid()
    item.add_row(Text("- ", style), _text(text, style))
    return item


class TextTable:
    """A Table drawn by rich in the available width. Columns without any text are left out."""

    def __init__(self, table: Table) -> None:
        filled = [i for i in range(len(table.columns)) if any(row[i] for row in table.rows)]
        self.table = table
        self.is_figure = [table.is_figure(i) for i in filled]
        self.columns = [visible(table.columns[i]) for i in filled]
        self.rows = [[_shown(row[i]) for i in filled] for row in table.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.table.title:
            yield _text(self.table.title, "bold")
        widths = self._widths(options.max_width)
        if widths is None:
            yield self._lists()
        elif all(map(_fits, self.rows, repeat(widths))) and _fits(self.columns, widths):
            yield from self._lines(widths, console)
        else:
            yield self._grid(widths)

    def _lines(self, widths: Sequence[int], console: Console) -> Iterator[Segment]:
        """Draw one line for each row, without rich's grid, which takes ten times as long and much memory."""
        heading = [(self.columns, "bold")] if any(self.columns) else []
        for row, style in chain(heading, ((row, self._style(n)) for n, row in enumerate(self.rows))):
            cells = map(_aligned, row, widths, self.is_figure)
            yield from _line((" " * _GAP).join(cells), style, console)

    def _widths(self, available: int) -> list[int] | None:
        """Return each column's width; None if the line is too short even for numbers and the longest words of
        headings."""
        cells = [max((cell_len(row[i]) for row in self.rows), default=0) for i in range(len(self.columns))]
        words = [max(map(cell_len, heading.split()), default=0) for heading in self.columns]
        folded = [cells[i] if figure else self._least(i, available) for i, figure in enumerate(self.is_figure)]
        widths = list(map(max, folded, words))
        spare = available - _GAP * (len(widths) - 1) - sum(widths)
        if spare < 0:
            return None
        headings = map(cell_len, self.columns)
        for wanted in (cells, list(map(max, cells, headings))):  # first for the cells, then for the headings
            spare = _widen(widths, wanted, spare)
        return widths

    def _least(self, column: int, available: int) -> int:
        words = {word: cell_len(word) for row in self.rows for word in row[column].split()}
        long = (_NARROWEST if "/" in word or width > available else width for word, width in words.items())
        return max(long, default=0)

    def _grid(self, widths: Sequence[int]) -> RenderableType:
        grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=any(self.columns))
        for heading, width, is_figure in zip(self.columns, widths, self.is_figure, strict=True):
            justify: Literal["left", "right"] = "right" if is_figure else "left"
            grid.add_column(_folded(heading), justify=justify, width=width)
        for number, row in enumerate(self.rows):
            grid.add_row(*map(_folded, row), style=self._style(number))
        return grid

    def _lists(self) -> RenderableType:
        """Draw each row as a list: its first cell as heading, then a line for each other cell that is not empty."""
        parts: list[RenderableType] = []
        for number, (first, *others) in enumerate(self.rows):
            parts.append(_folded(first, f"bold {self._style(number)}".strip()))
            cells = Grid.grid(padding=(0, _GAP, 0, 0))
            for heading, cell in zip(self.columns[1:], others, strict=True):
                if cell:
                    cells.add_row(Text(heading, no_wrap=True), _folded(cell))
            parts.append(Padding(cells, (0, 0, 0, _GAP)))
        return Group(*parts)

    def _style(self, row: int) -> str:
        return _STYLES[self.table.tones[row]] if self.table.tones else ""


class OneLineTable(TextTable):
    """A Table with one line for each row. wide: show all columns, however long the lines become."""

    def __init__(self, table: Table, wide: bool) -> None:
        kept = [i for i in range(len(table.columns)) if wide or i not in table.extra]
        self._wide = wide
        self._never_hidden = {0, 1, *map(kept.index, table.kept)}
        words = tuple(n for n, i in enumerate(kept) if not table.is_figure(i))
        rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
        super().__init__(replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows, left=0, words=words))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _text(self.table.title, "bold")
        widths, hidden = self._fitted(options.max_width)
        for number, row in enumerate([self.columns, *self.rows]):
            cells = [_aligned(row[i], width, self.is_figure[i]) for i, width in widths.items()]
            style = self._style(number - 1) if number else "bold"
            yield from _line((" " * _GAP).join(cells).rstrip(), style, console)
        if hidden:
            yield _text(f"not shown, for lack of width: {', '.join(hidden)}", "dim")

    def _fitted(self, available: int) -> tuple[dict[int, int], list[str]]:
        """Return the widths of the shown columns, and the headings of those that do not fit."""
        columns = range(len(self.columns))
        full = [max(map(cell_len, (self.columns[i], *(row[i] for row in self.rows)))) for i in columns]
        least = [full[i] if i == 0 or self.is_figure[i] else min(full[i], _SHORTEST) for i in columns]
        if self._wide:
            return dict(enumerate(full)), []
        shown = list(columns)
        for last in reversed(columns):
            if sum(least[i] for i in shown) + _GAP * (len(shown) - 1) > available and last not in self._never_hidden:
                shown.remove(last)
        widths = [least[i] for i in shown]
        _widen(widths, [full[i] for i in shown], available - sum(widths) - _GAP * (len(shown) - 1))
        return dict(zip(shown, widths, strict=True)), [self.columns[i] for i in columns if i not in shown]


def _fits(row: Sequence[str], widths: Sequence[int]) -> bool:
    return all(cell_len(text) <= width for text, width in zip(row, widths, strict=True))


def _aligned(text: str, width: int, is_figure: bool) -> str:
    shown = text if cell_len(text) <= width else elided(text, width)
    blanks = " " * (width - cell_len(shown))
    return f"{blanks}{shown}" if is_figure else f"{shown}{blanks}"


def _widen(widths: list[int], wanted: Sequence[int], spare: int) -> int:
    """Widen columns up to their `wanted` widths, beginning with the column that lacks the least. Return the width left
    over."""
    wanting = sorted((i for i, width in enumerate(widths) if wanted[i] > width), key=lambda i: wanted[i] - widths[i])
    for done, i in enumerate(wanting):
        more = min(wanted[i] - widths[i], spare // (len(wanting) - done))
        widths[i] += more
        spare -= more
    return spare
