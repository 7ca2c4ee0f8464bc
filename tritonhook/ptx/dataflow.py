"""Data flow in PTX: which statement writes a value, and which statements read it.

* `access`, `names_of`: the operands that a statement writes and reads;
* `Declarations`: the scope to which a register name belongs;
* `operations`: the statement that produced each operand;
* `settle`: run an analysis until nothing changes, also around loops;
* `cleaned`, `read_unwritten`: dead code, and registers that are read before they are written.

These functions do not evaluate values; cta_loads.py and verify/ do. All functions take time linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

from tritonhook.ptx.module import Ptx, Statement, split_operands, statements
from tritonhook.ptx.program import LABEL, REGISTER, VARIABLES, Function, Item

NAME = re.compile(r"[A-Za-z_$%][\w$%]*", re.ASCII)
# Instructions without a result operand. (In other instructions, the first operand is the result unless it is an address
# in brackets.) Two exceptions do write their first operand: `bar.red`, and a call whose first operand is in
# parentheses.
_NO_RESULT = (
    *("bar.", "barrier.", "bra", "brx", "call", "cp.", "nanosleep", "pmevent", "setmaxnreg", "stackrestore"),
    *("tcgen05.dealloc", "wgmma.wait_group"),
)

_NUMBER = re.compile(r"([-+]?)(?:(0[xX][0-9a-fA-F]+|0[bB][01]+|[1-9]\d*)|0([0-7]*))U?", re.ASCII)
_MOST_DIGITS = 70  # characters of the longest integer: 64 binary digits, sign and prefix
_TOO_LARGE = 1 << 64  # represents every longer integer
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_COUNTED = re.compile(r"([\w$%]+)<(\d+)>", re.ASCII)
# Instructions with an effect besides their result. An instruction without a result always has an effect.
_EFFECTS = frozenset(
    {"alloca", "atom", "bar", "barrier", "call", "mbarrier", "multimem", "stacksave", "tcgen05", "wgmma"}
)
_ENDS = frozenset({"ret", "exit", "trap"})


class MemoryAccess(NamedTuple):
    """The operands that an instruction writes and reads. result: the operand that it writes, or "". sources: the
    operands that it reads, including addresses in brackets."""

    result: str
    sources: Sequence[str]


def access(opcode: str, operands: Sequence[str]) -> MemoryAccess:
    """Split an instruction's operands into its result and its sources. An address in brackets is never the result."""
    first = operands[0] if operands else ""
    is_written = first.startswith("(") or ".red." in opcode
    if first.startswith("[") or (opcode.startswith(_NO_RESULT) and not is_written):
        return MemoryAccess("", operands)
    adds = opcode.startswith("wgmma") and operands[3:4] != ("0",)  # it accumulates: the result is also a source
    return MemoryAccess(first, operands if adds else operands[1:])


def elements(operand: str) -> Sequence[str]:
    """Split a list in braces or parentheses into its elements; any other operand stays whole."""
    return split_operands(operand[1:-1]) if operand[:1] + operand[-1:] in ("{}", "()") else (operand,)


class StatementNames(NamedTuple):
    """The names in a statement. reads: names outside brackets, and the guard. addresses: names within brackets."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    addresses: tuple[str, ...]


def names_of(opcode: str, operands: Sequence[str], guard: str = "") -> StatementNames:
    """List the names that an instruction writes and reads."""
    result, sources = access(opcode, operands)
    inside = (text for operand in operands for text in _BRACKETS.findall(operand))
    outside = (_BRACKETS.sub(" ", operand) for operand in (*sources, guard))
    groups = ([result], outside, inside)
    return StatementNames(*(tuple(name for text in texts for name in NAME.findall(text)) for texts in groups))


def number(text: str) -> int | None:
    """Parse a PTX integer; a leading 0 means octal. None if the text is not an integer."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, digits, octal = match.groups()
    if len(text) > _MOST_DIGITS:
        return _TOO_LARGE
    return int(sign + (digits or f"0o{octal or 0}"), 0)


Name = TypeVar("Name")


def settle(count: int, readers: Mapping[Name, Iterable[int]], judge: Callable[[int], Iterable[Name]]) -> None:
    """Analyse each of `count` steps, and then again each step that reads a changed name, until nothing changes. judge:
    analyses a step and returns the names whose state has changed. readers: the steps that read a name."""
    waiting, queued = deque(range(count)), bytearray(b"\1" * count)
    while waiting:
        step = waiting.popleft()
        queued[step] = 0
        for name in judge(step):
            for reader in readers.get(name, ()):
                if not queued[reader]:
                    queued[reader] = 1
                    waiting.append(reader)


def places_of(names: Iterable[Iterable[Name]]) -> dict[Name, list[int]]:
    """Map each name to the numbers of the steps that contain it. names: the names of each step, in order."""
    places: dict[Name, list[int]] = {}
    for step, several in enumerate(names):
        for name in several:
            places.setdefault(name, []).append(step)
    return places


# --- the scope of a register name ----------------------------------------------------------------


class Declarations:
    """Declared names: registers by scope, and variables by memory space."""

    def __init__(self, others: Iterable[str] = ()) -> None:
        # Position of each register's declaration: before it, the name belongs to an outer scope.
        self.registers: dict[tuple[int, str], int] = {}
        # Declarations such as `%r<8>`: scope and stem -> number of registers and position.
        self.counted: dict[tuple[int, str], tuple[int, int]] = {}
        self.shared: set[str] = set()
        self.others = set(others)  # names of variables outside shared memory

    def add(self, item: Statement) -> None:
        if not item.opcode.startswith("."):
            return
        if item.parts[1:2] == ("reg",):
            for name in item.operands:
                word = name.split()[-1] if name.split() else ""
                if match := _COUNTED.fullmatch(word):
                    self.counted[item.scope.number, match[1]] = _count(match[2]), item.position
                else:
                    self.registers[item.scope.number, word] = item.position
            return
        shared = "shared" in item.parts or (item.operands and re.search(r"\.shared\b(?!::)", item.operands[0]))
        for name in item.operands:
            words = name.partition("=")[0].partition("[")[0].split()
            (self.shared if shared else self.others).update(words[-1:])

    def register(self, scope: int, name: str, before: int) -> bool:
        """Return True if this scope declares the register before this position."""
        if self.registers.get((scope, name), before) < before:
            return True
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        count, position = self.counted.get((scope, stem), (0, 0))
        return digits != "" and position < before and _count(digits) < count


def _count(digits: str) -> int:
    """Parse the digits of a register's name or of a register count; more than _MOST_DIGITS become _TOO_LARGE."""
    return _TOO_LARGE if len(digits) > _MOST_DIGITS else int(digits)


# --- the statement that produces a value ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A value that an operation writes. index: its position among the results in braces; 0 for a single result."""

    operation: Operation
    index: int


Source = Part | int | str  # a value, a constant, or a name that no statement of the function has written


@dataclass(slots=True, eq=False)
class Operation:
    """The operation of a statement; some statements make several operations. name, type: parts of the opcode, e.g.
    "mul.lo" and "s32".

    sources: the source of each operand that it reads; for an address, the source of the first name in it.
    readers: the operations that read its results, each with the index of the result.
    """

    statement: Statement
    name: str
    type: str
    sources: tuple[Source, ...]
    results: int = 1
    readers: list[tuple[int, Operation]] = field(default_factory=list)

    def is_a(self, name: str, *types: str) -> bool:
        """Return True if the operation has this name and, if types are given, one of these types."""
        return self.name == name and (not types or self.type in types)

    def source(self, index: int) -> Source | None:
        return self.sources[index] if index < len(self.sources) else None

    def number(self, index: int) -> int | None:
        """Return an operand's constant value; None if it is not constant."""
        source = self.source(index)
        return source if isinstance(source, int) else None

    def made_by(self, index: int) -> Operation | None:
        """Return the operation whose only result is this operand; None if there is no such operation."""
        return only_maker(self.source(index))

    def operands(self, name: str, *types: str) -> Iterator[tuple[Operation, int]]:
        """Find the operands that an operation with this name and type produced. Yields that operation and the operand's
        index."""
        for index in range(len(self.sources)):
            made = self.made_by(index)
            if made is not None and made.is_a(name, *types):
                yield made, index


def only_maker(source: Source | None) -> Operation | None:
    """Return the operation whose only result is this source; None if there is no such operation."""
    return source.operation if isinstance(source, Part) and source.operation.results == 1 else None


class Chain:
    """The operations of one function, in the order of the text, linked by the values that they read.

    A register has the value of the last statement above that writes it. Branches are not followed: after a label, the
    value of a register that is written more than once is unknown. A guarded statement, which may not be executed,
    produces a new value.
    """

    def __init__(self, body: Sequence[Statement]) -> None:
        self.held: dict[str, tuple[int, Source]] = {}  # register -> number of labels above its write, and its value
        self.operations: list[Operation] = []
        self.labels = 0
        steps = [(item, *access(item.opcode, item.operands)) for item in body if not item.opcode.startswith(".")]
        written = Counter(name for _, result, _ in steps for name in NAME.findall(result))
        self.changing = {name for name, times in written.items() if times > 1}
        for item, result, operands in steps:
            self.labels += item.is_labelled
            self.add(item, [name.strip() for text in elements(result) for name in text.split("|") if name], operands)

    def add(self, statement: Statement, targets: Sequence[str], operands: Sequence[str]) -> None:
        sources = tuple(self.source(text) for operand in operands for text in elements(operand))
        name, _, type_ = statement.opcode.rpartition(".")
        operation = Operation(statement, name or type_, type_ if name else "", sources, len(targets))
        for target, value in zip(targets, self.values(operation, targets), strict=True):
            self.held[target] = self.labels, value

    def values(self, operation: Operation, targets: Sequence[str]) -> Sequence[Source]:
        """Add the operation, and return the value of each of its targets."""
        self.keep(operation)
        return [Part(operation, index) for index in range(len(targets))]

    def keep(self, operation: Operation) -> None:
        """Append an operation, and register it as a reader of its sources."""
        for source in operation.sources:
            if isinstance(source, Part):
                source.operation.readers.append((source.index, operation))
        self.operations.append(operation)

    def source(self, text: str) -> Source:
        """Look up the value of an operand; for an address, the value of the first name in it."""
        if (constant := number(text)) is not None:
            return constant
        name = text if text in self.held else match[0] if (match := NAME.search(text)) else text
        labels, value = self.held.get(name, (0, name))
        return f"{name} behind label {self.labels}" if labels < self.labels and name in self.changing else value


def operations(ptx: Ptx, chain: Callable[[Sequence[Statement]], Chain] = Chain) -> Iterator[list[Operation]]:
    """Yield the operations of each function, in order."""
    for function, body in groupby(statements(ptx), key=attrgetter("function")):
        if function:
            yield chain(tuple(body)).operations


# --- dead code, and registers that are never written ---------------------------------------------


class Flow(NamedTuple):
    """The registers that an item writes and reads. has_effect: it does more than write its results. is_guarded: it may
    not be executed."""

    writes: frozenset[str]
    reads: frozenset[str]
    has_effect: bool
    is_guarded: bool


@functools.lru_cache(maxsize=1 << 16)
def flow_of(item: Item) -> Flow:
    """Compute the registers that an item writes and reads, and its effect."""
    base = item.opcode.partition(".")[0]
    if not base:
        return Flow(frozenset(), frozenset(), False, False)
    names = names_of(item.opcode, item.operands, item.guard)
    writes, reads = (
        frozenset(filter(REGISTER.fullmatch, few)) for few in (names.writes, names.reads + names.addresses)
    )
    return Flow(writes, reads, base in _EFFECTS or not writes, bool(item.guard))


def is_branch(item: Item) -> bool:
    return item.opcode.partition(".")[0] in ("bra", "brx")


def target(item: Item) -> str | None:
    """Return the label of a `bra`; None for other items, also for `brx`, which has several labels."""
    return item.operands[0] if item.opcode.startswith("bra") and item.operands else None


def may_end(items: Sequence[Item], start: int) -> bool:
    """Return True if execution from items[start] can leave the function. Calls and branch tables count as exits."""
    labels = {item.label: number for number, item in enumerate(items) if item.label}
    seen, left = set[int](), [start]
    while left:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        item = items[number] if number < len(items) else None
        if item is None or item.opcode.partition(".")[0] in ("ret", "exit", "trap", "call", "brx"):
            return True
        to = target(item)
        if to is not None:
            left.append(labels[to])
        if to is None or item.guard:
            left.append(number + 1)
    return False


def cleaned(items: Iterable[Item]) -> tuple[Item, ...]:
    """Remove dead code: unreachable items, and items without an effect whose results are unused or used by such items
    only."""
    kept = list(items)
    while True:
        count = len(kept)
        kept = _live(_without_jumps_to_next(_reached(kept)))
        if len(kept) == count:
            return tuple(kept)


def _reached(items: Sequence[Item]) -> list[Item]:
    """Remove unreachable items: those between a jump and the next label that is used."""
    used = {name for item in items if not item.label for operand in item.operands for name in LABEL.findall(operand)}
    kept: list[Item] = []
    reached = True
    for item in items:
        if item.label:
            if item.label not in used:
                continue
            reached = True
        if reached or item.opcode.startswith("."):
            kept.append(item)
        if not item.label and not item.guard and _leaves(item):
            reached = False
    return kept


def _leaves(item: Item) -> bool:
    base = item.opcode.partition(".")[0]
    return base in _ENDS or is_branch(item)


def _without_jumps_to_next(items: Sequence[Item]) -> list[Item]:
    kept: list[Item] = []
    following: set[str] = set()  # labels directly after the item, without an instruction between
    for item in reversed(items):
        if item.label:
            following.add(item.label)
        elif target(item) in following:
            continue
        else:
            following = set()
        kept.append(item)
    return kept[::-1]


def _live(items: Sequence[Item]) -> list[Item]:
    """Remove items without an effect whose results are unused or used by such items only, also around loops. Also
    remove declarations of unused names."""
    flows = [flow_of(item) for item in items]
    needed: set[str] = set()

    def is_alive(flow: Flow) -> bool:
        return flow.has_effect or not needed.isdisjoint(flow.writes)

    def judge(step: int) -> Iterable[str]:
        new = flows[step].reads - needed if is_alive(flows[step]) else ()
        needed.update(new)
        return new

    settle(len(flows), places_of(flow.writes for flow in flows), judge)
    kept = [
        item
        for item, flow in zip(items, flows, strict=True)
        if item.label or item.opcode.startswith(".") or is_alive(flow)
    ]
    if not any(map(_declares, kept)):
        return kept
    used = {word for item in kept if not _declares(item) for text in item.operands for word in NAME.findall(text)}
    return [item for item in kept if not _declares(item) or _declared(item) in used]


def _declares(item: Item) -> bool:
    return item.opcode in VARIABLES


def _declared(item: Item) -> str:
    return item.operands[0].partition("[")[0].partition("=")[0].split()[-1]


def read_unwritten(function: Function) -> frozenset[tuple[str, str]]:
    """Find registers that some path reads before it writes them, so that their value is undefined. Returns pairs: the
    register, and the opcode that reads it, without modifiers."""
    items = function.items
    places = {item.label: number for number, item in enumerate(items) if item.label}
    every = frozenset(name for item in items for name in flow_of(item).writes)
    written: dict[int, frozenset[str]] = {0: frozenset()}  # item -> registers written on every path to it so far
    unwritten: set[tuple[str, str]] = set()
    waiting = [0]
    while waiting:
        number = waiting.pop()
        state = written[number]
        while number < len(items):
            item = items[number]
            flow = flow_of(item)
            unwritten |= {(name, item.opcode.partition(".")[0]) for name in flow.reads - state}
            if flow.writes and not flow.is_guarded:
                state = state | flow.writes
            targets = [places[name] for operand in item.operands for name in LABEL.findall(operand) if name in places]
            for place in targets if is_branch(item) else ():
                if place not in written or not written[place] <= state:
                    written[place] = written.get(place, every) & state
                    waiting.append(place)
            if not item.label and not item.guard and _leaves(item):
                break
            number += 1
            if number < len(items) and items[number].label:
                if number in written and written[number] <= state:
                    break
                written[number] = state = written.get(number, every) & state
    return frozenset(unwritten)
