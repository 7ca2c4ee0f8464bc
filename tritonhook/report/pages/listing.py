"""Code listings of one kernel, or of two side by side, as data for the page's script. The data include the ranges of
rows that can be folded, and where instructions have moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from tritonhook.compare.alignment import Pair, align, align_texts
from tritonhook.compare.diff import LoopDelta, LoopSummary
from tritonhook.cubin.sass import CLASSES, Sass, opcode_class
from tritonhook.report.results.capture import CodeFields

_CONTEXT = 3  # equal rows that stay visible around a change
_SHORTEST_FOLD = 6  # rows
_BEYOND = -1  # means None in the script's flat arrays

# First row, end row (exclusive), "loop" or "equal", title, number of rows whose instructions differ or have moved.
Segment = tuple[int, int, str, str, int]


def sass_listing(a: CodeFields, b: CodeFields, loops: Sequence[LoopDelta]) -> dict[str, Any]:
    """Make the listing of two kernels' SASS, side by side. loops: matched loops; each becomes a range that can be
    folded."""
    a_sass, b_sass = a.sass(), b.sass()
    alignment = align(a_sass, b_sass)
    left = _loop_numbers(a_sass, [pair.a for pair in loops])
    right = _loop_numbers(b_sass, [pair.b for pair in loops])
    numbers = [_of_pair(row, left, right) for row in alignment.rows]
    changed = [_differs(row, a_sass, b_sass) for row in alignment.rows]
    return {
        "sides": [_side(a), _side(b)],
        **_classes(a_sass, b_sass),
        "rows": _flat(alignment.rows),
        "moved": [value for pair in sorted(alignment.moved_to.items()) for value in pair],
        "folds": list(_folds(alignment.rows, numbers, changed, [_places(pair) for pair in loops])),
    }


def single_listing(code: CodeFields) -> dict[str, Any]:
    """Make the listing of one kernel's SASS. Its innermost loops can be folded."""
    sass = code.sass()
    starts = {i: n for n, loop in enumerate(sass.innermost_loops) for i in loop.instructions}
    rows = [Pair(i, None, True) for i in range(len(sass.instructions))]
    numbers = list(map(starts.get, range(len(rows))))
    places = [f"a 0x{sass.instructions[loop.instructions[0]].offset:04x}" for loop in sass.innermost_loops]
    return {
        "sides": [_side(code)],
        **_classes(sass),
        "rows": _flat(rows),
        "moved": [],
        "folds": [fold for fold in _folds(rows, numbers, [True] * len(rows), places) if fold[2] == "loop"],
    }


def text_listing(a: str, b: str | None = None, names: Sequence[str] = ("", "")) -> dict[str, Any]:
    """Make the listing of a text such as PTX, or of two texts side by side. A line of b that equals the line of a
    beside it is written as None.

    names: the kernel's name on each side; lines that differ only in it count as equal.
    """
    left = a.rstrip("\0").splitlines()
    if b is None:
        return {"sides": [left], "rows": _flat([Pair(i, None, True) for i in range(len(left))]), "folds": []}
    right = b.rstrip("\0").splitlines()
    plain = [
        [line.replace(name, "\0") if name else line for line in lines]
        for lines, name in zip((left, right), names, strict=True)
    ]
    rows = align_texts(*plain)
    beside = {row.b: row.a for row in rows if row.in_place}
    changed = [not row.in_place for row in rows]
    return {
        "sides": [
            left,
            [None if (i := beside.get(j)) is not None and left[i] == line else line for j, line in enumerate(right)],
        ],
        "rows": _flat(rows),
        "folds": list(_folds(rows, [None] * len(rows), changed, ())),
    }


def _side(code: CodeFields) -> dict[str, Any]:
    """Convert the code of one side: for each instruction its text, control bits, file index (-1: unknown), source line,
    and PTX line (0: unknown)."""
    return {
        "files": code.files,
        "sources": code.sources or [],
        "code": [[row.text, row.control, *(row.source or (_BEYOND, 0)), row.ptx or 0] for row in code.instructions],
    }


def _classes(*sides: Sass) -> dict[str, Any]:
    names = sorted({i.base_opcode for side in sides for i in side.instructions})
    return {"classes": {name: CLASSES.index(opcode_class(name)) for name in names}, "class_names": list(CLASSES)}


def _flat(rows: Sequence[Pair]) -> list[int]:
    """Flatten rows to three numbers each: index in a, index in b, and 1 if the pair is in the same order on both sides,
    else 0."""
    return [
        value
        for row in rows
        for value in (_BEYOND if row.a is None else row.a, _BEYOND if row.b is None else row.b, int(row.in_place))
    ]


def _loop_numbers(sass: Sass, loops: Sequence[LoopSummary | None]) -> dict[int, int]:
    """Map the index of each instruction in an innermost loop to the index of this loop in `loops`. A loop is recognised
    by the offset of its header."""
    by_offset = {loop.offset: number for number, loop in enumerate(loops) if loop is not None}
    numbers = {}
    for loop in sass.innermost_loops:
        number = by_offset.get(sass.instructions[sass.blocks[loop.header].first].offset)
        if number is not None:
            numbers.update(dict.fromkeys(loop.instructions, number))
    return numbers


def _of_pair(row: Pair, left: Mapping[int, int], right: Mapping[int, int]) -> int | None:
    number = left.get(row.a) if row.a is not None else None
    return number if number is not None else right.get(row.b) if row.b is not None else None


def _differs(row: Pair, a: Sass, b: Sass) -> bool:
    if row.a is None or row.b is None or not row.in_place:
        return True
    return a.instructions[row.a][1:] != b.instructions[row.b][1:]


def _folds(
    rows: Sequence[Pair], numbers: Sequence[int | None], changed: Sequence[bool], places: Sequence[str]
) -> Iterator[Segment]:
    """Yield ranges of rows that can be folded: each loop, and equal rows outside of loops. numbers: for each row the
    number of its loop, or None. places: for each loop its offsets, as text."""
    unequal = [not row.in_place for row in rows]
    for first, end, number in _runs(numbers):
        if number is None:
            yield from _equal_folds(first, end, changed)
        elif end - first >= _SHORTEST_FOLD:
            yield first, end, "loop", f"loop {number + 1} · {places[number]}", sum(unequal[first:end])


def _equal_folds(first: int, end: int, changed: Sequence[bool]) -> Iterator[Segment]:
    for start, stop, differs in _runs(changed[first:end]):
        low = first + start + (_CONTEXT if first + start > 0 else 0)
        high = first + stop - (_CONTEXT if first + stop < len(changed) else 0)
        if not differs and high - low >= _SHORTEST_FOLD:
            yield low, high, "equal", "", 0


def _runs(values: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    start = 0
    for value, run in groupby(values):
        end = start + len(list(run))
        yield start, end, value
        start = end


def _places(pair: LoopDelta) -> str:
    """Format the offsets of a loop pair: "a 0x0120, b 0x0140"."""
    return ", ".join(f"{side} 0x{loop.offset:04x}" for side, loop in (("a", pair.a), ("b", pair.b)) if loop)
