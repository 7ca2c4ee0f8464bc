"""What every result is shown as: Summary, Table and Page, which are values only; and numbers, sizes and names as text.

Result classes make them, `render` draws them. An unknown value is written "not known", never as 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tritonhook._util.demangle import demangled, function_name, is_left_mangled
from tritonhook._util.text import visible as visible
from tritonhook.errors import listed
from tritonhook.ptx.triggers import Trigger

UNKNOWN = "not known"
MIB = 1 << 20
_TOOLS = ("ptxas", "nvdisasm", "tritonhook")


def number(value: Any, unit: str = "") -> str:
    """A value with its thousands separated; a list as its items, "none" if it is empty."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def signed(value: int | float | None) -> str:
    """A difference: "+3", "-1,024", "0"."""
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:+,}" if isinstance(value, int) else f"{value:+,.4g}"


def size(value: int | float | None) -> str:
    """Bytes in binary units: "512 B", "1.5 KiB", "3,728 MiB"; GiB from 10 GiB on, so that no MiB is rounded away."""
    if value is None:
        return UNKNOWN
    amount = abs(value)
    if amount >= 10 << 30:
        return f"{value / (1 << 30):,.4g} GiB"
    if amount < 1 << 10:
        return f"{value:,.0f} B"
    unit, text = (MIB, "MiB") if amount >= MIB else (1 << 10, "KiB")
    return f"{value / unit:,.0f} {text}" if amount >= 100 * unit else f"{value / unit:,.1f} {text}"


def size_range(low: int, high: int) -> str:
    """ "2 KiB to 3 KiB", or one size if both read the same."""
    sizes = dict.fromkeys((size(low), size(high)))
    return " to ".join(sizes)


def ratio(a: int | float | None, b: int | float | None) -> str:
    """b over a: "1.031x"; empty where one is not known."""
    return f"{b / a:.3f}x" if a and b is not None else ""


def percent_of(a: int | float | None, b: int | float | None) -> str:
    """How much more b is than a: "+3.1%"; empty where one is not known."""
    return f"{(b - a) / a * 100:+.1f}%" if a and b is not None else ""


def count(amount: int, what: str, several: str | None = None) -> str:
    """ "1 block", "2 blocks"."""
    return f"{amount:,} {what if amount == 1 else several or what + 's'}"


def grouped(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Texts with the names that each is said of: {"too old": "a, b and 3 more"}. entries: name and text."""
    groups: dict[str, dict[str, None]] = {}
    for name, text in entries:
        groups.setdefault(text, {})[name] = None
    return {text: listed(names) for text, names in groups.items()}


def both(a: Any, b: Any) -> str:
    """ "a" if both are equal, else "a → b"."""
    return number(a) if a == b else f"{number(a)} → {number(b)}"


def short(text: str, most: int = 80) -> str:
    """A long text with its middle left out."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-most // 4 :]}"


def sentence(text: str) -> str:
    """The text with a capital first letter, unless it is one name, or its first word is a tool's name or no plain word.

    A text must not begin with a name that users choose: it can look like a word.
    """
    first, _, rest = text.strip().partition(" ")
    plain = first.rstrip(",:;").replace("-", "").replace("'", "").isalpha() or first.isdecimal()
    is_name = not rest or first in _TOOLS or not plain
    return text if is_name else text[:1].upper() + text[1:]


def trigger(what: Trigger) -> str:
    """What makes ptxas take its other scheduler for a kernel: "none", "name", "pragma", or "name and pragma"."""
    if what.pragma is None:
        return f"name; pragma {UNKNOWN}" if what.name else UNKNOWN
    return " and ".join(word for word, there in (("name", what.name), ("pragma", what.pragma)) if there) or "none"


def kernel_names(kernels: Iterable[str]) -> dict[str, str]:
    """Each kernel's name as people wrote it: without parameters, unless two kernels then had one name."""
    brief = {name: function_name(name) for name in set(kernels)}
    counts = Counter(brief.values())
    return {name: text if counts[text] == 1 else demangled(name) for name, text in brief.items()}


def mangled_note(kernels: Iterable[str]) -> tuple[str, ...]:
    """A note where names of kernels are shown mangled because what they stand for is too long."""
    left = sum(map(is_left_mangled, dict.fromkeys(kernels)))
    return (f"{count(left, 'name')} shown mangled: written as C++ too long to show",) if left else ()


def spills(stores: int | None, loads: int | None) -> str:
    """Bytes of spill stores and loads: "0", "72/68", or "not known"."""
    if stores is None or loads is None:
        return UNKNOWN
    return "0" if stores == loads == 0 else f"{number(stores)}/{number(loads)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested JSON values as rows of a dotted name and a text."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            rows.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            rows.append((f"{prefix}{name}", "none" if value is None else number(value)))
    return rows


def duration(microseconds: int) -> str:
    """A time as people read it: "820 us", "14 ms", "151 s"."""
    for limit, unit, size in ((1_000, "us", 1), (1_000_000, "ms", 1_000)):
        if microseconds < limit:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds / 1e6:,.1f} s"


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
