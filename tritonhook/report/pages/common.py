"""What every page consists of, and how numbers are written on it. Values in, values out; html.py and markdown.py show
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

UNKNOWN = "not known"
MIB = 1 << 20


class Tone(str, Enum):
    """How a finding is to be taken; pages have a colour for each, and say it in words besides."""

    GOOD = "good"
    BAD = "bad"
    CHANGED = "changed"
    UNSURE = "unsure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows. left: how many columns, from the first, are words rather than figures; words: further such.
    tones: of rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    tones: tuple[Tone, ...] = ()
    words: tuple[int, ...] = ()

    def is_figure(self, column: int) -> bool:
        return column >= self.left and column not in self.words


@dataclass(frozen=True, slots=True)
class Summary:
    """A result in brief: what a job summary or a notebook shows, and what stands on top of a page.

    what: the kind of result, in a word or two. subject: what it is about. facts, notes: sentences.
    """

    what: str
    subject: str
    verdict: str
    tone: Tone
    facts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page. template: which one draws it. parts: what that template needs. data: for the page's script."""

    summary: Summary
    template: str = "tables"
    parts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None


def number(value: Any, unit: str = "") -> str:
    """With thousands separated; None as "not known"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def signed(value: int | float | None) -> str:
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:+,}" if isinstance(value, int) else f"{value:+,.4g}"


def size(value: int | float | None) -> str:
    """Bytes for people, in binary units."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:,.0f} {unit}" if unit == "B" or abs(amount) >= 100 else f"{amount:,.1f} {unit}"


def ratio(a: int | float | None, b: int | float | None) -> str:
    return f"{b / a:.3f}x" if a and b is not None else ""


def percent_of(a: int | float | None, b: int | float | None) -> str:
    """How much b is more than a: "+3.1%"."""
    return f"{(b - a) / a * 100:+.1f}%" if a and b is not None else ""


def count(amount: int, what: str, several: str | None = None) -> str:
    """ "1 block", "2 blocks"."""
    return f"{amount:,} {what if amount == 1 else several or what + 's'}"


def short(text: str, most: int = 80) -> str:
    """A long text with its middle left out."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-most // 4 :]}"


def sentence(text: str) -> str:
    """With a capital letter in front, unless it is a name or begins with one."""
    is_name = " " not in text.strip() or text.startswith(("ptxas", "nvdisasm"))
    return text if is_name else text[:1].upper() + text[1:]


def both(a: Any, b: Any) -> str:
    """ "a" if equal, else "a → b"."""
    return number(a) if a == b else f"{number(a)} → {number(b)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested JSON values as rows of a name and a text."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            rows.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            rows.append((f"{prefix}{name}", "none" if value is None else number(value)))
    return rows
