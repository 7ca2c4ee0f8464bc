"""Where values come from: each statement of a function with the statements that made what it reads, and its readers.

Read in the order of the text: a register holds what the last statement above wrote. Branches are not followed, and a
guarded statement, which may not write, makes a value of its own. Everything is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from tritonhook.ptx.access import NAME, access, elements
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import Statement, statements

_NUMBER = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,40}|\d{1,40})U?$", re.ASCII)
_OCTAL = re.compile(r"0[0-7]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A value: what an operation writes. index: which of its results, 0 without braces."""

    operation: Operation
    index: int


Source = Part | int | str  # a value, a number, or what no statement of the function has made


@dataclass(slots=True, eq=False)
class Operation:
    """One statement and what it reads. sources: of each operand that it reads, the first name of an address.

    readers: the operations that read a result, and which one.
    """

    statement: Statement
    results: int = 0
    sources: tuple[Source, ...] = ()
    readers: list[tuple[int, Operation]] = field(default_factory=list)

    @property
    def guarded(self) -> bool:
        """Whether a predicate decides if it writes."""
        return self.statement.guard != ""

    def is_a(self, name: str, *types: str) -> bool:
        """Whether this is the instruction, without a guard, and of one of these types: its last part."""
        parts = self.statement.parts
        return parts[0] == name and not self.guarded and (not types or parts[-1] in types)

    def source(self, index: int) -> Source | None:
        return self.sources[index] if index < len(self.sources) else None

    def number(self, index: int) -> int | None:
        """The number that this operand is, also through a `mov`; None if it is not known."""
        found = behind_moves(self.source(index))
        return found if isinstance(found, int) else None

    def made_by(self, index: int) -> Operation | None:
        """The operation whose only result this operand is; None if no statement made it."""
        found = behind_moves(self.source(index))
        return found.operation if isinstance(found, Part) and found.operation.results == 1 else None

    def operands(self, name: str, *types: str) -> Iterator[tuple[Operation, int]]:
        """Each operand that such an operation made, and where it stands."""
        for index in range(len(self.sources)):
            made = self.made_by(index)
            if made is not None and made.is_a(name, *types):
                yield made, index


def behind_moves(source: Source | None) -> Source | None:
    """The value that moves from register to register have copied."""
    while isinstance(source, Part):
        operation = source.operation
        if not operation.is_a("mov") or operation.results != 1 or len(operation.sources) != 1:
            return source
        source = operation.sources[0]
    return source


def operations(ptx: Ptx) -> Iterator[list[Operation]]:
    """Yield the operations of each function, in order."""
    for function, body in groupby(statements(ptx), key=attrgetter("function")):
        held: dict[str, Part] = {}
        if function:
            yield [_operation(item, held) for item in body if not item.opcode.startswith(".")]


def _operation(statement: Statement, held: dict[str, Part]) -> Operation:
    made = Operation(statement)
    result, sources = access(statement.opcode, statement.operands)
    made.sources = tuple(_source(text, held) for operand in sources for text in elements(operand))
    for source in made.sources:
        if isinstance(source, Part):
            source.operation.readers.append((source.index, made))
    targets = [name.strip() for text in elements(result) for name in text.split("|") if name]
    made.results = len(targets)
    for index, name in enumerate(targets):
        held[name] = Part(made, index)
    return made


def _source(text: str, held: dict[str, Part]) -> Source:
    if (part := held.get(text)) is not None:
        return part
    if match := _NUMBER.match(text):
        sign, digits = match.groups()
        base = 16 if digits[:2] in ("0x", "0X") else 8 if _OCTAL.fullmatch(digits) else 10
        return int(sign + digits, base)
    name = NAME.search(text)
    return held.get(name[0], name[0]) if name else text
