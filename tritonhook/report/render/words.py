"""Texts in a terminal: lines that break no word that fits into one, and texts with their middle left out."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_FOLDERS = re.compile(r"[^/]*/|[^/]+")
_BETWEEN = re.compile(r"[^/\\_,.;:=-]*[/\\_,.;:=-]+|[^/\\_,.;:=-]+")  # a long word may end behind these signs


class Words:
    """A text in lines that end between words. A word longer than a line is broken behind a sign such as "/".

    mark: stands before the first line; the others are indented as much."""

    def __init__(self, text: str, style: str = "", mark: str = "") -> None:
        self._text = text
        self._style = style
        self._mark = mark

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = _lines(self._text, options.max_width - len(self._mark))
        indent = " " * len(self._mark)
        yield Text(self._mark + f"\n{indent}".join(lines), self._style, justify=options.justify, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(map(cell_len, self._text.split()), default=0)
        most = options.max_width
        return Measurement(min(longest, most), min(cell_len(self._text), most))


def _lines(text: str, width: int) -> list[str]:
    lines, left = [""], width
    for word in re.findall(r"\s*\S+", text.rstrip()):
        left -= cell_len(word)
        if left >= 0:
            lines[-1] += word
            continue
        word = word.lstrip()
        left = width - cell_len(word)
        if left >= 0:
            lines.append(word)
            continue
        start = f"{lines.pop()} " if cell_len(lines[-1]) < width // 2 and lines[-1] else ""
        lines += _pieces(start, word, width)
        left = width - cell_len(lines[-1])
    return [line.rstrip() for line in lines if line] or [""]


def _pieces(start: str, word: str, width: int) -> list[str]:
    """A word in lines of at most `width` cells, the first behind `start`."""
    lines = [start]
    parts = _FOLDERS.findall(word)
    if max(map(cell_len, parts)) > width:
        parts = _BETWEEN.findall(word)
    for part in parts:
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        while cell_len(part) > width:
            lines[-1:] = [part[:width], ""]
            part = part[width:]
        lines[-1] += part
    return lines


def least_width(text: str, available: int, least: int) -> int:
    """The width in which no word of a text is broken but behind a "/". A word longer than `available` is broken
    wherever it stands: it counts as `least`."""
    widths = [cell_len(part) for word in text.split() for part in _FOLDERS.findall(word)]
    return max((width if width <= available else least for width in widths), default=0)


def elided(text: str, width: int) -> str:
    """A text with its middle left out: names often differ at their end."""
    tail = min(max(width - 1, 0) // 3, len(text))
    head = max(width - 1 - tail, 0)
    while head + tail > 0 and cell_len(text[:head] + text[len(text) - tail :]) > width - 1:  # wide characters
        head, tail = (head - 1, tail) if head > tail else (head, tail - 1)
    return f"{text[:head]}…{text[len(text) - tail :]}"
