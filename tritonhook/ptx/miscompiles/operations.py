"""Where values come from: each statement of a function with the statements that made what it reads, and its readers.

Read in the order of the text: a register holds what the last statement above wrote. Branches are not followed, and a
guarded statement, which may not write, makes a value of its own. Everything is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import NO_RESULT, Statement, split_operands, statements

_NAME = re.compile(r"[A-Za-z_$%][\w$%]*", re.ASCII)
_NUMBER = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,40}|\d{1,40})U?$", re.ASCII)
_OCTAL = re.compile(r"0[0-7]+")
_GUARD_CHARACTERS = 200  # before an opcode
_NO_RESULT = NO_RESULT | {"mbarrier", "multimem", "tcgen05", "wgmma"}


@dataclass(frozen=True, slots=True)
class Part:
    """A value: what an operation writes. index: which of its results, 0 without braces."""

    operation: Operation
    index: int


Source = Part | int | str  # a value, a number, or what no statement of the function has made


@dataclass(slots=True, eq=False)
class Operation:
    """One statement and what it reads. sources: of each operand behind the result, the first name of an address.

    guarded: whether a predicate decides if it writes. readers: the operations that read a result, and which one.
    """

    statement: Statement
    guarded: bool
    results: int = 0
    sources: tuple[Source, ...] = ()
    readers: list[tuple[int, Operation]] = field(default_factory=list)

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
    code, function = ptx.tokens.code, ""
    found: list[Operation] = []
    held: dict[str, Part] = {}
    for statement in statements(ptx):
        if statement.function != function:
            if found:
                yield found
            function, found, held = statement.function, [], {}
        if function and statement.opcode and not statement.opcode.startswith("."):
            found.append(_operation(statement, code, held))
    if found:
        yield found


def _operation(statement: Statement, code: str, held: dict[str, Part]) -> Operation:
    made = Operation(statement, _is_guarded(code, statement.position))
    operands = statement.operands
    writes = statement.opcode.partition(".")[0] not in _NO_RESULT
    read = operands[1:] if writes else operands
    made.sources = tuple(_source(text, held) for operand in read for text in pieces(operand))
    for source in made.sources:
        if isinstance(source, Part):
            source.operation.readers.append((source.index, made))
    if writes and operands:
        targets = [name for piece in pieces(operands[0]) for name in piece.split("|")]
        made.results = len(targets)
        for index, name in enumerate(targets):
            held[name.strip()] = Part(made, index)
    return made


def _is_guarded(code: str, position: int) -> bool:
    """Whether there is a predicate between the end of the statement before and this opcode."""
    before = code[max(0, position - _GUARD_CHARACTERS) : position]
    return "@" in before[max(map(before.rfind, ";{}")) + 1 :]


def pieces(operand: str) -> Sequence[str]:
    """An operand, or the elements of a vector in braces."""
    return split_operands(operand[1:-1]) if operand[:1] == "{" and operand[-1:] == "}" else (operand,)


def _source(text: str, held: dict[str, Part]) -> Source:
    if (part := held.get(text)) is not None:
        return part
    if match := _NUMBER.match(text):
        sign, digits = match.groups()
        base = 16 if digits[:2] in ("0x", "0X") else 8 if _OCTAL.fullmatch(digits) else 10
        return int(sign + digits, base)
    name = _NAME.search(text)
    return held.get(name[0], name[0]) if name else text
