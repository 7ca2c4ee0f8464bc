"""Known miscompilations: find PTX that some versions of ptxas assemble wrongly. Pure; runs no ptxas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import Statement, line_numbers, statements

# Seen in 12.6.85, 12.8.93 and 12.9.86, not in 12.5.82 and 13.0.88: benchmarks/lab/ptxas_fp8_pairs.py.
_FIRST_WRONG, _FIRST_RIGHT = (12, 6), (13, 0)
_PAIRS = ("e4m3x2", "e5m2x2")


@dataclass(frozen=True, slots=True)
class DuplicatedPair:
    """A converted pair of fp8 numbers that is written into both halves of a register, unchanged in between."""

    function: str
    line: int
    register: str


def duplicated_pairs(ptx: Ptx) -> tuple[DuplicatedPair, ...]:
    """Find duplicated pairs in all functions, in order. Two conversions of equal operands are one pair, as in ptxas."""
    return tuple(_duplicated(ptx))


def known_wrong(ptx: Ptx, ptxas: str | None) -> list[str]:
    """A warning for each statement that this version of ptxas may miscompile; none if the version is not known."""
    if ptxas is None or not _FIRST_WRONG <= version_key(ptxas) < _FIRST_RIGHT:
        return []
    return [
        f"ptxas {ptxas} may make garbage of the fp8 pair in both halves of {place.register} ({place.function}, line "
        f"{place.line}): assemble with 13.0 or newer, or make the pair as integers; see docs/explanation/fp8-pairs.md"
        for place in duplicated_pairs(ptx)
    ]


def _duplicated(ptx: Ptx) -> Iterator[DuplicatedPair]:
    if not any(pair in ptx.text for pair in _PAIRS):
        return
    line = line_numbers(ptx)
    made: dict[str, tuple[str, ...]] = {}  # register of the result: opcode and operands of its conversion
    read: dict[str, set[str]] = {}  # source of conversions: their results
    function = ""
    for statement in statements(ptx):
        if statement.function != function:
            function, made, read = statement.function, {}, {}
        target = statement.operands[0] if statement.operands else ""
        if statement.opcode == "mov.b32" and _same_pair(statement, made):
            yield DuplicatedPair(function, line(statement.position), target)
        for name in {target, *read.pop(target, ())}:  # a conversion whose source is overwritten is forgotten too
            made.pop(name, None)
        if statement.parts[0] == "cvt" and statement.parts[-1] == "f32" and statement.parts[-2] in _PAIRS:
            made[target] = (statement.opcode, *statement.operands[1:])
            for source in statement.operands[1:]:
                read.setdefault(source, set()).add(target)


def _same_pair(statement: Statement, made: dict[str, tuple[str, ...]]) -> bool:
    halves = statement.operands[-1].strip("{} ").split(",")
    if len(statement.operands) != 2 or len(halves) != 2:
        return False
    first, second = (made.get(half.strip()) for half in halves)
    return first is not None and first == second
