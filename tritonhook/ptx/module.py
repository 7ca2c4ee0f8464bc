"""Ptx: the text of one PTX module: its entries, and the exact replacement of symbols.

Only identifiers are replaced. Comments, strings, opcodes and DWARF bytes stay as they are: the bytes of `.debug_str`
spell the name of the *source* function, which a rename does not change, and other offsets depend on their length.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tritonhook.errors import PtxError

# PTX ISA, "Identifiers": followsym is [a-zA-Z0-9_$].
IDENTIFIER = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)
_FOLLOWSYM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$")
# A comment or a string. An unclosed block comment ends with the text, an unclosed string with its line.
OPAQUE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"?', re.DOTALL)
# No `.*?` here: a row of comments could then be split in exponentially many ways.
_GAP = r"(?:\s|//[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*"
_NAME = r"([A-Za-z][\w$]*|[_$%][\w$]+)"
_ENTRY_NAME = re.compile(rf"{_GAP}{_NAME}", re.DOTALL | re.ASCII)
_FUNC_NAME = re.compile(rf"{_GAP}(?:\([^)]*\){_GAP})?{_NAME}", re.DOTALL | re.ASCII)
_OPENING = re.compile(rf"{_GAP}\(", re.DOTALL)
_PARAM_NAME = re.compile(r"([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\]\s*)?(?:,|\Z)", re.ASCII)
_VERSION = re.compile(rf"{_GAP}(\d+\.\d+)", re.DOTALL)
_TARGET = re.compile(rf"{_GAP}(\w+)", re.DOTALL | re.ASCII)
_VECTOR_ELEMENT = re.compile(r"\.[xyzwrgba](?![\w$.])", re.ASCII)

# Opcodes without a `.type`. ptxas accepts kernels with these names (Triton kernels called `ret` exist), so that the
# instruction `ret;` must be told from a use of the symbol `ret`.
_BARE_OPCODES = frozenset({"bra", "brkpt", "call", "exit", "pmevent", "ret", "trap"})
# Identifiers that PTX predefines; all others of that kind start with %.
_PREDEFINED = frozenset({"WARP_SZ"})
# Directives whose operands are keywords, not symbols, e.g. `.target sm_90a, debug`.
_KEYWORD_LINES = (".target", ".version", ".address_size", ".loc", ".file", ".pragma")


@dataclass(frozen=True, slots=True)
class Ptx:
    """One PTX module.

    text: the module as ptxas reads it.
    version, target: of the `.version` and `.target` directives, e.g. "8.7" and "sm_90a".
    entries: names of the `.entry` functions in order of appearance, also of those only declared, each once.
    functions: names of the `.func` functions.
    Raises PtxError if the text has no `.version` or no `.target` directive.
    """

    text: str
    version: str = field(init=False)
    target: str = field(init=False)
    entries: tuple[str, ...] = field(init=False)
    functions: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        opaque = _Opaque(self.text)
        for name, value in (
            ("version", _directive(opaque, ".version", _VERSION)),
            ("target", _directive(opaque, ".target", _TARGET)),
            ("entries", _declared(opaque, ".entry", _ENTRY_NAME)),
            ("functions", _declared(opaque, ".func", _FUNC_NAME)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "input") -> Ptx:
        """Decode UTF-8 PTX; drop the NUL that some compilers append. `source` names it in errors. Raises PtxError."""
        if data[:4] == b"\x7fELF":
            raise PtxError(f"{source}: an ELF image, not PTX; give the .ptx file, or use `tritonhook diff` on cubins")
        try:
            return cls(data.rstrip(b"\0").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise PtxError(f"{source}: not PTX: byte {error.start} is not UTF-8 text") from None
        except PtxError as error:
            raise PtxError(f"{source}: {error}") from None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def only_entry(self, entry: str | None = None) -> str:
        """The entry named, or the only one. Raises PtxError if there is none, or several and no name."""
        if entry is not None:
            if entry not in self.entries:
                raise PtxError(f"no entry {entry!r}; the module has: {', '.join(self.entries) or 'none'}")
            return entry
        if len(self.entries) != 1:
            names = ", ".join(self.entries)
            raise PtxError(f"{len(self.entries)} entries ({names}); name one with --entry" if names else "no .entry")
        return self.entries[0]

    def parameters(self, entry: str) -> tuple[str, ...]:
        """Names of an entry's `.param` symbols, in order."""
        opaque = _Opaque(self.text)
        for position in _positions(opaque, ".entry"):
            name = _ENTRY_NAME.match(self.text, position + len(".entry"))
            if name and name[1] == entry and (opening := _OPENING.match(self.text, name.end())):
                closing = opaque.next_in_code(")", opening.end())
                bare = OPAQUE.sub(" ", self.text[opening.end() : closing])
                return tuple(match[1] for part in bare.split(",") if (match := _PARAM_NAME.search(part.strip())))
        return ()

    def uses(self, symbol: str) -> int:
        """Count how often `symbol` occurs as an identifier."""
        return sum(1 for _ in _symbol_positions(_Opaque(self.text), symbol))

    def substitute(self, names: Mapping[str, str]) -> Ptx:
        """Return the module with symbols replaced, token for token.

        names: old symbol -> new symbol. Raises PtxError if an old symbol does not occur, a new one is
        not a PTX identifier, is given twice, or is already taken.
        """
        changes = {old: new for old, new in names.items() if old != new}
        if not changes:
            return self
        opaque = _Opaque(self.text)
        _check_new_names(opaque, changes)
        edits: list[tuple[int, str, str]] = []
        for old, new in changes.items():
            positions = list(_symbol_positions(opaque, old))
            if not positions:
                raise PtxError(f"no symbol {old!r} in the module; entries: {', '.join(self.entries) or 'none'}")
            edits.extend((position, old, new) for position in positions)
        return Ptx(_apply(self.text, sorted(edits)))

    def with_directives(self, version: str, target: str) -> Ptx:
        """Return the module with other values of `.version` and `.target`; nothing else changes."""
        opaque = _Opaque(self.text)
        edits = [_value(opaque, ".version", _VERSION), _value(opaque, ".target", _TARGET)]
        new = (version, target)
        return Ptx(_apply(self.text, sorted((m.start(1), m[1], value) for m, value in zip(edits, new, strict=True))))

    def rename_entries(self, names: Mapping[str, str]) -> Ptx:
        """Rename entries together with their `{entry}_param_{n}` symbols, which compilers derive from the name."""
        return self.substitute(self.entry_changes(names))

    def entry_changes(self, names: Mapping[str, str]) -> dict[str, str]:
        """Every symbol that `rename_entries` replaces, with its new name."""
        functions = {*self.entries, *self.functions}
        changes: dict[str, str] = {}
        for old, new in names.items():
            self.only_entry(old)
            changes[old] = new
            for parameter in self.parameters(old):
                if parameter.startswith(f"{old}_param_") and parameter not in functions:
                    changes[parameter] = new + parameter[len(old) :]
        return {old: new for old, new in changes.items() if old != new}


def _apply(text: str, edits: list[tuple[int, str, str]]) -> str:
    pieces: list[str] = []
    done = 0
    for position, old, new in edits:
        pieces += (text[done:position], new)
        done = position + len(old)
    pieces.append(text[done:])
    return "".join(pieces)


def _check_new_names(opaque: _Opaque, changes: Mapping[str, str]) -> None:
    seen: set[str] = set()
    for old, new in changes.items():
        if not IDENTIFIER.fullmatch(new) or new.startswith("%"):
            raise PtxError(f"{new!r} is not a PTX identifier: letters, digits, _ and $, not starting with a digit")
        if new in _PREDEFINED:
            raise PtxError(f"{new!r} is predefined in PTX; choose another name")
        if new in seen:
            raise PtxError(f"two symbols would both become {new!r}; give each its own name")
        seen.add(new)
        if new not in changes and next(_symbol_positions(opaque, new), None) is not None:
            raise PtxError(f"cannot rename {old!r} to {new!r}: the module already has a symbol of that name")


def _directive(opaque: _Opaque, directive: str, value: re.Pattern[str]) -> str:
    return _value(opaque, directive, value)[1]


def _value(opaque: _Opaque, directive: str, value: re.Pattern[str]) -> re.Match[str]:
    for position in _positions(opaque, directive):
        if match := value.match(opaque.text, position + len(directive)):
            return match
    raise PtxError(f"not PTX: no {directive} directive in the text ({len(opaque.text):,} characters)")


def _declared(opaque: _Opaque, directive: str, name: re.Pattern[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for position in _positions(opaque, directive):
        if match := name.match(opaque.text, position + len(directive)):
            found[match[1]] = None
    return tuple(found)


def _positions(opaque: _Opaque, word: str) -> Iterator[int]:
    """Where `word` stands as a whole token in code, i.e. outside comments and strings."""
    text = opaque.text
    position = text.find(word)
    while position >= 0:
        end = position + len(word)
        whole = text[end : end + 1] not in _FOLLOWSYM and (position == 0 or text[position - 1] not in _FOLLOWSYM)
        if whole and position not in opaque:
            yield position
        position = text.find(word, end)


def _symbol_positions(opaque: _Opaque, symbol: str) -> Iterator[int]:
    """Where `symbol` is used as an identifier: not a directive, register, opcode or keyword."""
    text = opaque.text
    for position in _positions(opaque, symbol):
        end = position + len(symbol)
        if text[position - 1 : position] in (".", "%", "@"):
            continue
        if text[end : end + 1] == "." and not _VECTOR_ELEMENT.match(text, end):
            continue  # an opcode with its modifiers
        line = text[text.rfind("\n", 0, position) + 1 : position]
        if line.rpartition(";")[2].lstrip().startswith(_KEYWORD_LINES):
            continue
        if symbol in _BARE_OPCODES and _starts_statement(opaque, position):
            continue
        yield position


def _starts_statement(opaque: _Opaque, position: int) -> bool:
    """Whether the token at `position` opens an instruction, with or without a guard predicate."""
    start = max(opaque.last_in_code(mark, position) for mark in ";{}")
    code = OPAQUE.sub(" ", opaque.text[start + 1 : position])
    lines = [line.strip() for line in code.splitlines()]
    statement = " ".join(line for line in lines if line and not line.startswith(_KEYWORD_LINES))
    return re.fullmatch(r"(?:[\w$]+:\s*)*(?:@!?%?[\w$]+\s*)?", statement) is not None


class _Opaque:
    """The comments and strings of a text: `position in opaque` tells whether a position is inside of one.

    Line comments and strings end with their line, so that only a text with block comments is scanned as a whole, and
    only when the first position is asked for.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._spans: list[tuple[int, int]] | None = None
        self._has_blocks: bool | None = None

    def __contains__(self, position: int) -> bool:
        if self._has_blocks is None:
            self._has_blocks = "/*" in self.text
        return self._in_spans(position) if self._has_blocks else self._in_line(position)

    def next_in_code(self, mark: str, start: int) -> int:
        """Where `mark` comes next outside comments and strings; the end of the text if nowhere."""
        position = self.text.find(mark, start)
        while position >= 0 and position in self:
            position = self.text.find(mark, position + 1)
        return position if position >= 0 else len(self.text)

    def last_in_code(self, mark: str, end: int) -> int:
        """Where `mark` came last before `end`, outside comments and strings; -1 if nowhere."""
        position = self.text.rfind(mark, 0, end)
        while position >= 0 and position in self:
            position = self.text.rfind(mark, 0, position)
        return position

    def _in_spans(self, position: int) -> bool:
        if self._spans is None:
            self._spans = [match.span() for match in OPAQUE.finditer(self.text)]
        nearest = bisect_right(self._spans, (position, len(self.text))) - 1
        return nearest >= 0 and position < self._spans[nearest][1]

    def _in_line(self, position: int) -> bool:
        start = self.text.rfind("\n", 0, position) + 1
        before = self.text[start:position]
        if "//" not in before and '"' not in before:
            return False
        end = self.text.find("\n", position)
        line = self.text[start : end if end >= 0 else None]
        return any(match.start() <= position - start < match.end() for match in OPAQUE.finditer(line))
