"""Ptx: the text of one PTX module. Lists its entries, splits it into statements (without comments and strings), and
replaces symbols exactly."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook._util.versions import version_key
from tritonhook.errors import PtxError, listed
from tritonhook.ptx.linkage_names import linkage_edits, linkage_names
from tritonhook.ptx.tokens import IDENTIFIER, Head, Span, Tokens, scan, symbol_uses

_LABELS = re.compile(r"\s*(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*", re.ASCII)
_HEAD = re.compile(rf"{_LABELS.pattern}(?:@\s*(?P<guard>!?\s*[\w$%]+)\s+)?(?P<opcode>[a-z_.][\w.:]*)", re.ASCII)
_MARK = re.compile(r"[;{}]")
_DEPTH = {"{": 1, "}": -1, ";": 0}
_SEPARATOR = re.compile(r"[\[{(\]}),]")
_MOST_BRACES = 3_000  # nesting depth; ptxas 12.8 to 13.5 already run out of memory with fewer braces


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A block in braces: its number in the module, and the enclosing block. Its registers hide registers of the same
    name in outer blocks."""

    number: int
    outer: Scope | None = None

    @property
    def numbers(self) -> Iterator[int]:
        """The numbers of this block and of the enclosing blocks, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope.number
            scope = scope.outer


MODULE = Scope(0)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: an instruction, or a directive such as `.reg`, whose opcode starts with a dot. The opcode is "" if
    the statement cannot be parsed.

    operands: texts between commas; a list in braces or brackets is one operand.
    position: offset of the opcode in the module's text.
    function: the entry or function that contains the statement; "" at module level.
    scope: the innermost block; MODULE outside functions.
    guard: the predicate that decides whether the statement is executed, with its "!"; "" without one.
    is_labelled: True if a label precedes the statement.
    """

    opcode: str
    operands: tuple[str, ...]
    position: int
    function: str
    scope: Scope
    guard: str = ""
    is_labelled: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode split at dots: "cp.async.bulk" gives ("cp", "async", "bulk"); "::" does not split."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an entry or function. header: the text before its `{`, with parameters and directives such as
    `.reqntid`. begin: the position after its `{`."""

    header: str
    begin: int


def line_numbers(ptx: Ptx) -> Callable[[int], int]:
    """Make a function that converts a position in the text to a line number, from 1."""
    ends = [match.start() for match in re.finditer("\n", ptx.text)]
    return lambda position: bisect_left(ends, position) + 1


def bodies(ptx: Ptx) -> dict[str, Body]:
    """Map each entry and function to its body; those that are only declared are omitted."""
    code = ptx.tokens.code
    return {head.name: Body(code[start:end], end + 1) for start, end, _, head in pieces(ptx) if head is not None}


def statements(ptx: Ptx) -> Iterator[Statement]:
    """Yield each statement in order. The initialiser of a variable is part of its `.global` or `.shared` statement."""
    code, function, blocks, scope, label = ptx.tokens.code, "", 0, MODULE, False
    for start, end, mark, head in pieces(ptx):
        if mark == "{":
            blocks += 1
            if scope is MODULE:
                function = head.name if head else ""
            else:
                label = label or ":" in code[start:end]
            scope = Scope(blocks, scope)
            continue
        if _LABELS.fullmatch(code, start, end) is None:
            yield _statement(code, start, end, function, scope, label)
            label = False
        else:
            label = label or ":" in code[start:end]
        if mark == "}":
            scope = scope.outer or MODULE
            function = "" if scope is MODULE else function


def _statement(code: str, start: int, end: int, function: str, scope: Scope, label: bool) -> Statement:
    match = _HEAD.match(code, start, end)
    if match is None:
        return Statement("", (), end - len(code[start:end].lstrip()), function, scope)
    operands, at = tuple(split_operands(code[match.end() : end])), match.start("opcode")
    label = label or ":" in code[start:at]
    return Statement(match["opcode"], operands, at, function, scope, match["guard"] or "", label)


def recursive_entries(ptx: Ptx) -> tuple[str, ...]:
    """Find entries whose stack size has no bound in the text: they can reach a cycle of direct calls, or an `alloca`.
    Indirect calls are not followed."""
    if "call" not in ptx.text and "alloca" not in ptx.text:
        return ()
    calls: TopologicalSorter[str] = TopologicalSorter(direct_calls(ptx))
    for entry in ptx.entries:
        calls.add(entry)
    for item in statements(ptx):
        if item.parts[0] == "alloca":
            calls.add(item.function, item.function)  # unbounded, like a function that calls itself
    bounded: set[str] = set()  # functions that reach no cycle; the sorter yields them even if there is a cycle
    with suppress(CycleError):
        calls.prepare()
    while ready := calls.get_ready():
        bounded.update(ready)
        calls.done(*ready)
    return tuple(entry for entry in ptx.entries if entry not in bounded)


def direct_calls(ptx: Ptx) -> dict[str, set[str]]:
    """Map each entry and function to the functions that it calls directly; omit those without calls."""
    functions, calls = set(ptx.functions), dict[str, set[str]]()
    for item in statements(ptx):
        if item.parts[0] == "call" and item.function:
            names = {name for operand in item.operands for name in re.findall(r"[\w$]+", operand)}
            calls.setdefault(item.function, set()).update(names & functions)
    return calls


def reaching(ptx: Ptx, functions: Iterable[str]) -> set[str]:
    """Find all entries and functions that reach one of `functions` by direct calls, and these functions themselves."""
    callers: dict[str, list[str]] = {}
    for caller, called in direct_calls(ptx).items():
        for name in called:
            callers.setdefault(name, []).append(caller)
    reached, waiting = set[str](), list(functions)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += callers.get(name, ())
    return reached


def stackless_entries(ptx: Ptx) -> frozenset[str]:
    """List the entries that need no stack, since they have no variable in local memory and no call."""
    if not any(word in ptx.tokens.code for word in (".local", "call", "alloca")):
        return frozenset(ptx.entries)
    asking = {
        item.function
        for item in statements(ptx)
        if item.opcode in (".local", "") or item.parts[0] in ("call", "alloca")
    }
    return frozenset() if "" in asking else frozenset(ptx.entries) - asking


def split_operands(text: str) -> list[str]:
    """Split operands at commas outside brackets."""
    operands, depth, last = [], 0, 0
    for match in _SEPARATOR.finditer(text):
        mark = match[0]
        if mark in "[{(":
            depth += 1
        elif mark != ",":
            depth -= 1
        elif depth == 0:
            operands.append(text[last : match.start()].strip())
            last = match.end()
    tail = text[last:].strip()
    return [*operands, tail] if tail else operands


def pieces(ptx: Ptx) -> Iterator[tuple[int, int, str, Head | None]]:
    """Split the code after each `;`, after each `{` that opens a block, and after each `}` that closes one. Yields
    start, end and last character of each piece, and the head of the function if the piece ends with the `{` of its
    body.

    Braces of a vector operand or an initialiser do not split. `.section` directives are omitted.
    """
    code, heads = ptx.tokens.code, iter(ptx.tokens.heads)
    head = next(heads, None)
    start = depth = inside = 0
    operand = section = False  # whether the statement contains braces, and whether it is a `.section`
    for match in _MARK.finditer(code):
        mark, at = match[0], match.start()
        if inside:
            inside += _DEPTH[mark]
            if inside == 0 and section:
                start, operand, section = at + 1, False, False
            continue
        token = None
        if mark == "{":
            while depth == 0 and head is not None and head.end <= at:
                token, head = head if head.start >= start else None, next(heads, None)
            before = "" if operand or token else code[start:at].strip()
            if token is None and (operand or (before and not before.endswith(":"))):
                inside, operand, section = 1, True, section or before.startswith(".section")
                continue
        yield start, at, mark, token
        depth = max(0, depth + _DEPTH[mark])
        if depth > _MOST_BRACES:
            raise PtxError(f"braces are nested more than {_MOST_BRACES:,} deep; ptxas cannot read such a module either")
        start, operand, section = at + 1, False, False


# --- a module -------------------------------------------------------------------------------------


# The only predefined PTX identifier that does not start with %.
_PREDEFINED = frozenset({"WARP_SZ"})
_REPORT = "please report this error with the module"
_RUNS = {".py": "tritonhook run", ".cu": "tritonhook run -- nvcc"}  # remedy if the user passes a program, not PTX


@dataclass(frozen=True, slots=True, repr=False)
class Ptx(Brief):
    """One PTX module.

    text: the module as ptxas reads it.
    version, target: operands of the `.version` and `.target` directives, e.g. "8.7" and "sm_90a".
    entries: names of the `.entry` functions in order of appearance, each once; also entries that are only declared.
    functions: names of the `.func` functions, likewise.
    tokens: the positions of these names and of other tokens in the text.
    Raises PtxError if the text has no `.version` or no `.target` directive.
    """

    _shown: ClassVar[tuple[str, ...]] = ("version", "target", "entries")

    text: str
    version: str = field(init=False)
    target: str = field(init=False)
    entries: tuple[str, ...] = field(init=False)
    functions: tuple[str, ...] = field(init=False)
    tokens: Tokens = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tokens = scan(self.text)
        for name, value in (
            ("tokens", tokens),
            ("version", self._operand(".version", tokens.version).text),
            ("target", self._operand(".target", tokens.target).text),
            ("entries", tuple(dict.fromkeys(head.name for head in tokens.heads if head.is_entry))),
            ("functions", tuple(dict.fromkeys(head.name for head in tokens.heads if not head.is_entry))),
        ):
            object.__setattr__(self, name, value)

    def _operand(self, directive: str, span: Span | None) -> Span:
        if span is None:
            raise PtxError(f"not PTX: no {directive} directive in the text ({len(self.text):,} characters)")
        return span

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "input") -> Ptx:
        """Decode UTF-8 PTX; drop the NUL that some compilers append. source: name of the input, for messages. Raises
        PtxError."""
        if data[:4] == b"\x7fELF":
            raise PtxError(f"{source}: an ELF image, not PTX; give the .ptx file, or use `tritonhook diff` on cubins")
        try:
            return cls(data.rstrip(b"\0").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise PtxError(f"{source}: not PTX: byte {error.start} is not UTF-8 text") from None
        except PtxError as error:
            run = _RUNS.get(PurePath(source).suffix)
            remedy = f"; capture what it compiles: `{run} {source}`" if run else ""
            raise PtxError(f"{source}: {error}{remedy}") from None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def only_entry(self, entry: str | None = None) -> str:
        """Return `entry` if the module has it; for None, return the module's only entry. Raises PtxError if there is no
        such entry, or if `entry` is None and the module has several."""
        if entry is not None:
            if entry not in self.entries:
                raise PtxError(f"no entry {entry!r}; the module has: {listed(self.entries)}")
            return entry
        if len(self.entries) != 1:
            names = listed(self.entries) if self.entries else ""
            raise PtxError(f"{len(self.entries)} entries ({names}); name one with --entry" if names else "no .entry")
        return self.entries[0]

    def parameters(self, entry: str) -> tuple[str, ...]:
        """List the names of an entry's `.param` symbols, in order."""
        return self._parameters().get(entry, ())

    def _parameters(self) -> dict[str, tuple[str, ...]]:
        """List the parameters of each entry, from its first parameter list."""
        parameters: dict[str, tuple[str, ...]] = {}
        for head in self.tokens.heads:
            if head.is_entry and head.listed is not None:
                parameters.setdefault(head.name, head.parameters)
        return parameters

    def uses(self, *symbols: str) -> int:
        """Count how often these symbols occur as identifiers."""
        return sum(1 for _ in symbol_uses(self.tokens.code, frozenset(symbols)))

    def substitute(self, names: Mapping[str, str]) -> Ptx:
        """Return the module with symbols replaced, token for token.

        names: old symbol -> new symbol.
        Raises PtxError in these cases: an old symbol does not occur; a new symbol is not a PTX identifier, is the new
        name of two symbols, or already exists in the module; the result does not have the requested names.
        """
        changes = {old: new for old, new in names.items() if old != new}
        if not changes:
            return self
        uses = list(symbol_uses(self.tokens.code, {*changes, *changes.values()}))
        counts = Counter(span.text for span in uses)
        self._check_new_names(changes, counts)
        edits = [(span, changes[span.text]) for span in uses if span.text in changes]
        renamed = edited(self, [*edits, *linkage_edits(self.tokens, changes)])
        self._check_renamed(renamed, changes, counts)
        return renamed

    def with_directives(self, version: str, target: str | None = None) -> Ptx:
        """Return the module with this `.version` and, if `target` is not None, this `.target`. Options of the target,
        such as ", debug", stay."""
        changes = (self.tokens.version, version), (self.tokens.target, target)
        return edited(self, ((span, new) for span, new in changes if span is not None and new is not None))

    def rename_entries(self, names: Mapping[str, str]) -> Ptx:
        """Rename entries together with their `{entry}_param_{n}` symbols, which compilers derive from the name."""
        return self.substitute(self.entry_changes(names))

    def entry_changes(self, names: Mapping[str, str]) -> dict[str, str]:
        """Map each symbol that `rename_entries` replaces to its new name. Raises PtxError if an old name is not an
        entry."""
        entries = set(self.entries)
        functions = {*entries, *self.functions}
        parameters = self._parameters()
        changes: dict[str, str] = {}
        for old, new in names.items():
            if old not in entries:
                self.only_entry(old)  # raises the error that lists the module's entries
            changes[old] = new
            for parameter in parameters.get(old, ()):
                if parameter.startswith(f"{old}_param_") and parameter not in functions:
                    changes[parameter] = new + parameter[len(old) :]
        return {old: new for old, new in changes.items() if old != new}

    def _check_new_names(self, changes: Mapping[str, str], counts: Mapping[str, int]) -> None:
        seen: set[str] = set()
        for old, new in changes.items():
            if not IDENTIFIER.fullmatch(new) or new.startswith("%"):
                raise PtxError(f"{new!r} is not a PTX identifier: letters, digits, _ and $, not starting with a digit")
            if new in _PREDEFINED:
                raise PtxError(f"{new!r} is predefined in PTX; choose another name")
            if new in seen:
                raise PtxError(f"two symbols would both become {new!r}; give each its own name")
            seen.add(new)
            if new not in changes and counts.get(new):
                raise PtxError(f"cannot rename {old!r} to {new!r}: the module already has a symbol of that name")
            if not counts.get(old):
                raise PtxError(f"no symbol {old!r} in the module; entries: {listed(self.entries)}")

    def _check_renamed(self, renamed: Ptx, changes: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """Check that each entry has its new name and that each use was replaced. Raises PtxError."""
        for before, after in ((self.entries, renamed.entries), (self.functions, renamed.functions)):
            wanted = tuple(changes.get(name, name) for name in before)
            if wanted != after:
                missing = next((name for name in wanted if name not in after), "another order")
                raise PtxError(f"the rename failed, and nothing was written: the result lacks {missing!r}; {_REPORT}")
        spelled = [changes.get(name, name) for name in linkage_names(self.tokens)]
        if spelled != linkage_names(renamed.tokens):
            raise PtxError(f"the rename failed, and nothing was written: wrong names in the debug bytes; {_REPORT}")
        left = Counter(span.text for span in symbol_uses(renamed.tokens.code, {*changes, *changes.values()}))
        expected = Counter({new: counts[old] for old, new in changes.items()})
        for name in (*changes, *changes.values()):
            if left[name] != expected[name]:
                raise PtxError(
                    f"the rename failed, and nothing was written: the result has {left[name]} uses of {name!r}, "
                    f"not {expected[name]}; {_REPORT}"
                )


def edited(ptx: Ptx, edits: Iterable[tuple[Span, str]]) -> Ptx:
    """Return the module with these spans of its text replaced; the same object if the text does not change."""
    pieces: list[str] = []
    done = 0
    for span, new in sorted(edits, key=lambda edit: edit[0].start):
        pieces += (ptx.text[done : span.start], new)
        done = span.end
    text = "".join([*pieces, ptx.text[done:]])
    return ptx if text == ptx.text else Ptx(text)


# --- change a PTX module's architecture and PTX version -------------------------------------------


# The PTX ISA version that introduced each target (PTX ISA, "PTX Module Directives: .target" and "Release Notes").
FIRST_VERSION = {
    **{"sm_75": "6.3", "sm_80": "7.0", "sm_86": "7.1", "sm_87": "7.4", "sm_88": "9.0", "sm_89": "7.8"},
    **{"sm_90": "7.8", "sm_90a": "8.0"},
    **{"sm_100": "8.6", "sm_100a": "8.6", "sm_100f": "8.8", "sm_101": "8.6", "sm_101a": "8.6", "sm_101f": "8.8"},
    **{"sm_103": "8.8", "sm_103a": "8.8", "sm_103f": "8.8", "sm_110": "9.0", "sm_110a": "9.0", "sm_110f": "9.0"},
    **{"sm_120": "8.7", "sm_120a": "8.7", "sm_120f": "8.8", "sm_121": "8.8", "sm_121a": "8.8", "sm_121f": "8.8"},
}


def version_for(own: str, arch: str, newest: str | None = None) -> str:
    """Choose the PTX version for a module on `arch`: the newer of its own version and the first version that supports
    `arch`, but at most `newest`, the newest version that ptxas reads."""
    wanted = max(own, FIRST_VERSION.get(arch, own), key=version_key)
    return wanted if newest is None else min(wanted, newest, key=version_key)


def newest_version(ptxas: str) -> str:
    """Look up the newest PTX ISA version that a ptxas reads, e.g. "8.7" for "12.8.93".

    PTX ISA, "Release Notes": ptxas 11.x reads up to PTX ISA 7.x, 12.x up to 8.x if x is at most 5, and 13.x up to 9.x.
    From 12.6 on, 12.x reads up to 8.(x - 1), e.g. 12.6 up to 8.5.
    """
    major, minor = (int(part) for part in ptxas.split(".")[:2])
    return f"{major - 4}.{minor - 1 if major == 12 and minor > 5 else minor}"


def lowered_for(ptx: Ptx, ptxas: str) -> Ptx:
    """Return the module with its `.version` lowered to the newest that this version of ptxas reads, if necessary."""
    return ptx.with_directives(min(ptx.version, newest_version(ptxas), key=version_key))
