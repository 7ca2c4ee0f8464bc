"""Split a PTX module into statements: opcode, operands, function and position of each, without comments and strings.

What an instruction computes is not known here. Positions are positions in the module's text, so that a caller can
replace a token in place. Everything is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.tokens import Head

_LABELS = re.compile(r"\s*(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*", re.ASCII)
_HEAD = re.compile(rf"{_LABELS.pattern}(?:@\s*(?P<guard>!?\s*[\w$%]+)\s+)?(?P<opcode>[a-z_.][\w.:]*)", re.ASCII)
_MARK = re.compile(r"[;{}]")
_DEPTH = {"{": 1, "}": -1, ";": 0}
_SEPARATOR = re.compile(r"[\[{(\]}),]")
_MOST_BRACES = 3_000  # open at once; ptxas 12.8 to 13.5 run out of memory below 3,000


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A block of braces, by its number in the module, and the block around it. The registers that it declares hide
    those of outer blocks."""

    number: int
    outer: Scope | None = None

    @property
    def numbers(self) -> Iterator[int]:
        """The numbers of this block and of those around it, from the inside to the outside."""
        scope: Scope | None = self
        while scope is not None:
            yield scope.number
            scope = scope.outer


MODULE = Scope(0)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: an instruction, or a directive such as `.reg`, whose opcode starts with a dot. A statement that
    cannot be read has the opcode "".

    operands: texts between commas; braces and brackets stay together.
    position: where the opcode starts in the module's text.
    function: the entry or function that it belongs to, "" at module level.
    scope: the innermost open block; MODULE outside of functions.
    guard: the predicate that decides whether it is done, with its "!"; "" for none.
    is_labelled: whether a label stands before it.
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
        """The opcode and its qualifiers: "cp.async.bulk" gives ("cp", "async", "bulk"); "::" stays within one."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an entry or function. header: the text before it: parameters and directives such as `.reqntid`.
    begin: the position behind its `{`."""

    header: str
    begin: int


def line_numbers(ptx: Ptx) -> Callable[[int], int]:
    """A function that gives the number of the line, from 1, of a position."""
    ends = [match.start() for match in re.finditer("\n", ptx.text)]
    return lambda position: bisect_left(ends, position) + 1


def bodies(ptx: Ptx) -> dict[str, Body]:
    """The body of each entry and function. A declaration has none."""
    code = ptx.tokens.code
    return {head.name: Body(code[start:end], end + 1) for start, end, _, head in pieces(ptx) if head is not None}


def statements(ptx: Ptx) -> Iterator[Statement]:
    """Yield every statement in order. Initialisers of variables belong to their `.global` or `.shared` statement."""
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
    """Entries that can reach a cycle of direct calls, or an `alloca`: the text gives no bound of their stack.
    Indirect calls are not followed."""
    if "call" not in ptx.text and "alloca" not in ptx.text:
        return ()
    calls: TopologicalSorter[str] = TopologicalSorter(direct_calls(ptx))
    for entry in ptx.entries:
        calls.add(entry)
    for item in statements(ptx):
        if item.parts[0] == "alloca":
            calls.add(item.function, item.function)  # has no bound, as a function that calls itself
    bounded: set[str] = set()  # functions that reach no cycle; the sorter gives them in spite of one
    with suppress(CycleError):
        calls.prepare()
    while ready := calls.get_ready():
        bounded.update(ready)
        calls.done(*ready)
    return tuple(entry for entry in ptx.entries if entry not in bounded)


def direct_calls(ptx: Ptx) -> dict[str, set[str]]:
    """The functions that each entry and function calls directly; without those that call none."""
    functions, calls = set(ptx.functions), dict[str, set[str]]()
    for item in statements(ptx):
        if item.parts[0] == "call" and item.function:
            names = {name for operand in item.operands for name in re.findall(r"[\w$]+", operand)}
            calls.setdefault(item.function, set()).update(names & functions)
    return calls


def reaching(ptx: Ptx, functions: Iterable[str]) -> set[str]:
    """These functions, and all entries and functions that reach one of them by direct calls."""
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
    """The entries that ask for no stack: they have no variables in local memory, and call nothing."""
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
    """Cut the code into pieces that end with `;`, with `{` that opens a block, or with `}` that closes one. Yields
    where each starts and ends, that mark, and the head of the function whose body the mark opens.

    Other braces belong to their statement: those of a vector operand or an initialiser. A `.section` is left out.
    """
    code, heads = ptx.tokens.code, iter(ptx.tokens.heads)
    head = next(heads, None)
    start = depth = inside = 0
    operand = section = False  # whether the statement has braces of its own, and is a `.section`
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
            raise PtxError(f"more than {_MOST_BRACES:,} braces are open at once; ptxas cannot read that either")
        start, operand, section = at + 1, False, False
