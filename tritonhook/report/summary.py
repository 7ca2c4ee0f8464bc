"""Summary, Table and Page: what every result is shown as. Values only; `summaries` makes them, `render` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Tone(str, Enum):
    """How good or bad a finding is. A renderer has a colour for each; the text says it too."""

    GOOD = "good"
    BAD = "bad"
    CHANGED = "changed"
    UNSURE = "unsure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under named columns.

    left: the number of columns, from the first, that hold text and not figures. words: further columns with text.
    tones: one for each row, or none at all.
    one_line: a terminal gives each row one line. It shortens texts, and leaves out the last columns that do not fit.
    extra: columns that a terminal leaves out unless it is asked for all of them.
    kept: columns that are left out last, as the one by which the rows are sorted.
    keys: one for each row, the key of its kernel's page; or none at all.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    tones: tuple[Tone, ...] = ()
    words: tuple[int, ...] = ()
    one_line: bool = False
    extra: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()

    def is_figure(self, column: int) -> bool:
        return column >= self.left and column not in self.words


@dataclass(frozen=True, slots=True)
class Summary:
    """A result in brief: all of it in a terminal, in Markdown and in a notebook, and the top of its HTML page.

    what: the kind of result, e.g. "Diff". subject: what was examined. verdict: the answer in one line.
    facts: sentences that support it. notes: how the result was obtained, and what is missing.
    """

    what: str
    subject: str
    verdict: str
    tone: Tone
    facts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A number in large type at the top of a page."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Page:
    """An HTML page. template: the name of the one that draws it. parts: the template's variables. data: JSON values
    for the page's script."""

    summary: Summary
    template: str = "tables"
    parts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None
