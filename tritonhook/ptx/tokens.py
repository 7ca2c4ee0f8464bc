"""Scanner for PTX text: comments and strings, directives without a semicolon, heads of functions, symbols.

Text is read as ptxas reads it: line breaks have no meaning, except that a line feed (not a CR) ends a `//` comment; a
string ends at the next quote. Each search takes time linear in the text, for any input. module.py splits the text into
statements.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

# PTX ISA, "Identifiers": followsym is [a-zA-Z0-9_$].
IDENTIFIER = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_NAME = rf"(?:{IDENTIFIER.pattern})"
# Comments and strings. An unclosed comment or string ends at the end of the text.
_OPAQUE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"]*"?', re.DOTALL)
# Directives that end without a semicolon, and the heads of entries and functions. The pattern ends after a directive's
# own operands, since another statement may follow on the same line. These operands are keywords and numbers, not
# symbols.
_DIRECTIVE = re.compile(
    rf"""\.(?:
      version \s+ (?P<version> \d+\.\d+ )
    | target \s+ (?P<target> \w+ ) (?P<options> (?: \s*,\s*\w+ )* )
    | address_size \s+ \d+
    | file \s+ \d+ (?: \s*,\s*\d+ \s*,\s*\d+ )?
    | loc \s+\d+ \s+\d+ \s+\d+
      (?: \s*,\s*function_name \s+[\w$%]+ (?: \s*\+\s*\d+ )? \s*,\s*inlined_at \s+\d+ \s+\d+ \s+\d+ )?
    | (?P<kind> entry | func ) (?![\w$])
      (?: \s*\.attribute\s*\( [^()]* (?: \([^()]*\) [^()]* )* \) )?
      (?: \s*\([^()]*\) )? \s* (?P<name> {_NAME} ) (?: \s*\( (?P<listed> [^()]* ) \) )?
    )""",
    re.VERBOSE | re.ASCII,
)
_WORD = re.compile(r"\.[\w$.%]*|[\w$%]+", re.ASCII)
# A dot that begins a modifier of an opcode; the elements of a vector (.x, .r, ...) are not modifiers.
_MODIFIER = re.compile(r"\.(?![xyzwrgba](?![\w$.]))", re.ASCII)
# Characters that can follow a symbol after an opening brace, or a label, but cannot follow an opcode.
_AFTER_SYMBOL = re.compile(r"\s*[,}+:]", re.ASCII)
_FOLLOWSYM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%")
_FEW = 64  # up to so many names, one pattern of all names is faster than a lookup of each token
_BLANKS = frozenset(" \t\n\r\f\v")


class Span(NamedTuple):
    """A piece of the module's text, and its start position."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Head(NamedTuple):
    """Head of an entry or a function: `.entry name(parameters)`. start, end: its range in the text.

    listed: the text between the parentheses; None without parentheses.
    """

    is_entry: bool
    name: str
    listed: str | None
    start: int
    end: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        words = (_WORD.findall(part.partition("[")[0]) for part in (self.listed or "").split(","))
        return tuple(word[-1] for word in words if word and IDENTIFIER.fullmatch(word[-1]))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Result of `scan`.

    code: the text with comments, strings and directives without a semicolon replaced by blanks; positions stay valid.
    version, target: the operands of the first `.version` and `.target`; None if there is none.
    options: options of `.target`, e.g. ("debug",). heads: the heads of entries and functions, in order.
    """

    code: str
    version: Span | None
    target: Span | None
    options: tuple[str, ...]
    heads: tuple[Head, ...]


def scan(text: str) -> Tokens:
    """Scan a text, which need not be PTX."""
    version: Span | None = None
    target: Span | None = None
    options: tuple[str, ...] = ()
    heads: list[Head] = []

    def note(match: re.Match[str]) -> str:
        nonlocal version, target, options
        if match["kind"]:
            heads.append(Head(match["kind"] == "entry", match["name"], match["listed"], *match.span()))
            return match[0]
        if match["version"] and version is None:
            version = Span(match["version"], match.start("version"))
        elif match["target"] and target is None:
            target = Span(match["target"], match.start("target"))
            options = tuple(_WORD.findall(match["options"]))
        return _blank(match)

    code = _DIRECTIVE.sub(note, _OPAQUE.sub(_blank, text))
    return Tokens(code, version, target, options, tuple(heads))


def symbol_uses(code: str, names: Collection[str]) -> Iterator[Span]:
    """Yield each use of these names as a symbol, in order. A use as directive, register (%), opcode or keyword does not
    count."""
    for start, end in _words(code, names):
        if not _is_opcode(code, start, end):
            yield Span(code[start:end], start)


def _words(code: str, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each token that is one of these names; parts of directives are omitted."""
    if not 0 < len(names) <= _FEW:
        yield from (match.span() for match in _WORD.finditer(code) if match[0] in names)
        return
    # Ten times as fast: the pattern begins with literal names. A name that contains another of the names is left out of
    # the pattern, which finds it anyway: parameters usually contain the name of their entry, and new names the old
    # name.
    within = [name for name in names if not any(other != name and other in name for other in names)]
    for match in re.finditer(rf"(?:{'|'.join(map(re.escape, within))})[\w$%]*", code, re.ASCII):
        start, end = match.span()
        while start > 0 and code[start - 1] in _FOLLOWSYM:
            start -= 1
        if code[start:end] in names and code[start - 1 : start] != ".":
            yield start, end


def _is_opcode(code: str, start: int, end: int) -> bool:
    """Return True if the token is an opcode or a modifier; kernels can have the same names. The token is one if a
    modifier follows it, if it follows "::" (`::bytes`), or if it begins an instruction, after labels and a guard."""
    before = _last(code, start)
    if _MODIFIER.match(code, end):  # but after the name of an entry or function, the dot begins the next directive
        return not code.endswith((".entry", ".func", ")"), 0, before + 1)
    if code[before] not in ";{}:" and not (code[before] in _FOLLOWSYM and _is_guard(code, before)):
        return False
    return _AFTER_SYMBOL.match(code, end) is None


def _is_guard(code: str, end: int) -> bool:
    """Return True if the token that ends here is the predicate of a guard, e.g. `@%p1` or `@!p`."""
    while end > 0 and code[end] in _FOLLOWSYM:
        end -= 1
    before = _last(code, end + 1)
    return code[_last(code, before) if code[before] == "!" else before] == "@"


def _last(code: str, end: int) -> int:
    """Find the last nonblank character before `end`. It exists, since the text begins with a directive."""
    while end > 0:
        end -= 1
        if code[end] not in _BLANKS:
            break
    return end


def _blank(match: re.Match[str]) -> str:
    return " " * (match.end() - match.start())
