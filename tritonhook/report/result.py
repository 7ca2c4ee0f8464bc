"""`Result`, the base class of all results: the value, its JSON document and the schema of that document are one class.

The classes are in `report/results/`. A class's tag is the field `kind` of its documents. `of` builds a result from the
values of a run; `summary` describes it in sentences for people; no code reads these.

This module also has the values that `render` draws (Summary, Table, Page), and functions that format numbers, sizes and
names. An unknown value is written "not known", never as 0.
"""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from msgspec import to_builtins

from tritonhook._util.demangle import demangled, function_name, is_left_mangled
from tritonhook._util.files import read_given
from tritonhook._util.schema import MOST_JSON, DocumentError, Fields, as_schema, read_json
from tritonhook._util.text import visible as visible
from tritonhook.errors import UsageError, listed
from tritonhook.ptx.throughput_pragma import Trigger

UNKNOWN = "not known"
MIB = 1 << 20
_TOOLS = ("ptxas", "nvdisasm", "tritonhook")


def number(value: Any, unit: str = "") -> str:
    """Format a value: a number with thousands separators, a flag as "yes" or "no", a list as its items ("none" if
    empty), None as "not known"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def signed(value: int | float | None) -> str:
    """Format a difference: "+3", "-1,024", "0"; "" if unknown."""
    if value is None:
        return ""
    return "0" if value == 0 else f"{value:+,}" if isinstance(value, int) else f"{value:+,.4g}"


def size(value: int | float | None) -> str:
    """Format bytes in binary units: "512 B", "1.5 KiB", "3,728 MiB". Use GiB only from 10 GiB on, because smaller sizes
    would lose their MiB by rounding."""
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
    """Format a range of bytes: "2 KiB to 3 KiB", or one size if both are written alike."""
    sizes = dict.fromkeys((size(low), size(high)))
    return " to ".join(sizes)


def ratio(a: int | float | None, b: int | float | None) -> str:
    """Format b / a: "1.031x"; "" if a or b is unknown."""
    return f"{b / a:.3f}x" if a and b is not None else ""


def percent_of(a: int | float | None, b: int | float | None) -> str:
    """Format by how much b exceeds a: "+3.1%"; "" if a or b is unknown."""
    return f"{(b - a) / a * 100:+.1f}%" if a and b is not None else ""


def count(amount: int, what: str, several: str | None = None) -> str:
    """Format an amount with its noun: "1 block", "2 blocks". several: the plural, if it is not formed with -s."""
    return f"{amount:,} {what if amount == 1 else several or what + 's'}"


def grouped(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Group names that share a text, e.g. a reason: {"too old": "a, b and 3 more"}. entries: (name, text)."""
    groups: dict[str, dict[str, None]] = {}
    for name, text in entries:
        groups.setdefault(text, {})[name] = None
    return {text: listed(names) for text, names in groups.items()}


def both(a: Any, b: Any) -> str:
    """Format two values: "a" if they are equal, else "a → b"."""
    return number(a) if a == b else f"{number(a)} → {number(b)}"


def short(text: str, most: int = 80) -> str:
    """Shorten a text of more than `most` characters in its middle."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-most // 4 :]}"


def sentence(text: str) -> str:
    """Capitalise the first letter of a message. Leave it unchanged if the message is one word, or if its first word is
    a tool's name such as "ptxas" or has characters other than letters.

    A message must not begin with a name that users choose, because the name may look like an ordinary word.
    """
    first, _, rest = text.strip().partition(" ")
    plain = first.rstrip(",:;").replace("-", "").replace("'", "").isalpha() or first.isdecimal()
    is_name = not rest or first in _TOOLS or not plain
    return text if is_name else text[:1].upper() + text[1:]


def trigger(what: Trigger) -> str:
    """Format what makes ptxas use its other scheduler: "none", "name", "pragma", or "name and pragma"."""
    if what.pragma is None:
        return f"name; pragma {UNKNOWN}" if what.name else UNKNOWN
    return " and ".join(word for word, there in (("name", what.name), ("pragma", what.pragma)) if there) or "none"


def kernel_names(kernels: Iterable[str]) -> dict[str, str]:
    """Map kernel names to their C++ form: without parameters, unless two kernels would then share a name."""
    brief = {name: function_name(name) for name in set(kernels)}
    counts = Counter(brief.values())
    return {name: text if counts[text] == 1 else demangled(name) for name, text in brief.items()}


def mangled_note(kernels: Iterable[str]) -> tuple[str, ...]:
    """Note how many kernel names stay mangled because their C++ form is too long to show."""
    left = sum(map(is_left_mangled, dict.fromkeys(kernels)))
    return (f"{count(left, 'name')} shown mangled: too long to show in C++",) if left else ()


def spills(stores: int | None, loads: int | None) -> str:
    """Format bytes of spill stores and loads: "0", "72/68", or "not known"."""
    if stores is None or loads is None:
        return UNKNOWN
    return "0" if stores == loads == 0 else f"{number(stores)}/{number(loads)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested JSON values to rows (dotted name, text), e.g. ("options.num_warps", "4")."""
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
    """Format a duration: "820 us", "14 ms", "151 s"."""
    for limit, unit, size in ((1_000, "us", 1), (1_000_000, "ms", 1_000)):
        if microseconds < limit:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds / 1e6:,.1f} s"


class Tone(str, Enum):
    """How good or bad a result is. Renderers show it as a colour, so the text must state it too."""

    GOOD = "good"
    BAD = "bad"
    CHANGED = "changed"
    UNSURE = "unsure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under named columns.

    left: number of leading columns that hold text, not numbers. words: further columns that hold text.
    tones: one for each row, or empty.
    one_line: a terminal prints each row in one line; it shortens texts, then leaves out the last columns if need be.
    extra: columns that a terminal shows only on request.
    kept: columns that are never left out, such as the sort key.
    keys: for each row, the key of its kernel's page; or empty.
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
    """A result in brief: the whole output in a terminal, in Markdown and in a notebook, and the top of its HTML page.

    what: the kind of result, e.g. "Diff". subject: what was examined. verdict: the answer in one line. facts: sentences
    that support it. notes: how the result was obtained, and what is missing.
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
    """An HTML page. template: name of its template. parts: the template's variables. data: JSON values for the page's
    script."""

    summary: Summary
    template: str = "tables"
    parts: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] | None = None


# --- results --------------------------------------------------------------------------------------


T = TypeVar("T")
FORMAT = 1  # version of the document format
_PACKAGE = "tritonhook.report.results"


class Result(Fields, tag_field="kind"):
    """Base of all results. A subclass names its kind: `class Policy(Result, tag="policy")`.

    verbs: the verbs that print it, for the JSON reference; backquotes separate them, e.g. "ptxas install`, `uninstall".
    """

    verbs: ClassVar[str]

    def summary(self) -> Summary:
        """Summarise the result."""
        raise NotImplementedError

    def csv_table(self) -> Table | None:
        """Return the table that --csv prints; None if there is none."""
        return next(iter(self.summary().tables), None)

    def document(self) -> dict[str, Any]:
        """Convert the result to JSON values."""
        return {"format": FORMAT, **to_builtins(self)}


@lru_cache(maxsize=1)
def kinds() -> Mapping[str, type[Result]]:
    """Map each tag to its result class."""
    for _ in _loaded():
        pass
    return {tag_of(kind): kind for kind in sorted(Result.__subclasses__(), key=lambda kind: kind.verbs)}


def _loaded(tag: str = "") -> Iterator[type[Result]]:
    """Import the result modules one after the other, and yield the kinds loaded so far. Modules whose names are words
    of `tag` come first."""
    modules = [module.name for module in pkgutil.iter_modules(import_module(_PACKAGE).__path__)]
    for name in sorted(modules, key=lambda name: name not in tag.split()):
        import_module(f"{_PACKAGE}.{name}")
        yield from Result.__subclasses__()


def tag_of(kind: type[Result]) -> str:
    """Return the tag of a class, which is the `kind` of its documents."""
    return str(kind.__struct_config__.tag)


def kind_of(document: Mapping[str, Any]) -> type[Result]:
    """Return the class for a document's `kind`. Raises UsageError if the kind is missing or unknown."""
    name = document.get("kind")
    if not isinstance(name, str):
        raise UsageError(
            "not a result that tritonhook can show: it has no `kind`; give a capture folder, or a file that a verb "
            "wrote with --save or --json"
        )
    matching = next((kind for kind in _loaded(name) if tag_of(kind) == name), None)
    if matching is None:
        raise UsageError(
            f"a document of kind {short(name, 40)!r}, for which this version has no report; update tritonhook if a "
            "newer version wrote it"
        )
    return matching


def read_result(document: Mapping[str, Any]) -> Result:
    """Read a document as its result. Raises UsageError if it does not fit its kind's schema."""
    kind = kind_of(document)
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UsageError(f"its format is {version}, this version reads up to {FORMAT}; update tritonhook")
    if version != FORMAT:
        raise UsageError(f"damaged, or of another version: its format is {short(repr(version), 40)}, must be {FORMAT}")
    try:
        return as_schema(document, kind)
    except ValueError as error:
        raise UsageError(f"damaged, or of another version: {error}") from None


def read_saved(path: Path) -> Result:
    """Read a result that a verb wrote with --save or --json. Raises UsageError with a message that names the path."""
    remedy = "give a file that a verb wrote with --save or --json"
    try:
        document = read_json(read_given(path, MOST_JSON), Any)
        if not isinstance(document, dict):
            raise UsageError(f"JSON, but no result; {remedy}")
        return read_result(document)
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    except DocumentError as error:
        raise UsageError(f"{path}: no JSON, or only a part of it ({error}); {remedy}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def fitting(make: Callable[[], T]) -> T:
    """Call `make`, which summarises or draws a result that was read from a file. Raises UsageError for damage that the
    schema does not detect, e.g. a row that refers to an unlisted file, or a missing side."""
    try:
        return make()
    except (LookupError, ValueError, ArithmeticError, RecursionError) as error:
        raise UsageError(f"damaged: its parts do not fit together: {short(visible(repr(error)), 200)}") from None
