"""Align two instruction sequences for a side-by-side listing, and find the new positions of moved instructions.

diff.SassDiff has only the counts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from rapidfuzz.distance import Indel

from tritonhook._display import Brief
from tritonhook.cubin.sass import Sass


class Pair(NamedTuple):
    """One row of the listing. a, b: index of the instruction on each side; None: no instruction of that side.

    in_place: True if both are the same instruction, apart from registers and branch targets. If False, the two
    instructions are unrelated: each has moved (see Alignment.moved_to) or exists only on its side.
    """

    a: int | None
    b: int | None
    in_place: bool


@dataclass(frozen=True, slots=True, repr=False)
class Alignment(Brief):
    """Two aligned sequences. rows: all instructions of both sides, in order. moved_to: for each moved instruction, its
    index in a -> its index in b."""

    rows: tuple[Pair, ...]
    moved_to: Mapping[int, int]


def align(a: Sass, b: Sass) -> Alignment:
    """Align two kernels by the shortest edit script of their instructions' shapes (registers and branch targets
    erased). Equal shapes among the remaining instructions count as moved, and are paired in order."""
    a_shapes, b_shapes = ([i.shape for i in side.instructions] for side in (a, b))
    rows = align_texts(a_shapes, b_shapes)
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for row in rows:
        if not row.in_place and row.b is not None:
            waiting[b_shapes[row.b]].append(row.b)
    moved = {}
    for row in rows:
        if not row.in_place and row.a is not None and (places := waiting.get(a_shapes[row.a])):
            moved[row.a] = places.popleft()
    return Alignment(rows, moved)


def align_texts(a: Sequence[str], b: Sequence[str]) -> tuple[Pair, ...]:
    """Align two sequences of texts by the shortest edit script; equal texts that it matches share a row."""
    rows: list[Pair] = []
    left: list[int] = []
    right: list[int] = []

    def flush() -> None:
        rows.extend(Pair(i, j, False) for i, j in zip_longest(left, right))
        left.clear()
        right.clear()

    for op in Indel.opcodes(a, b):
        if op.tag == "equal":
            flush()
            span = zip(range(op.src_start, op.src_end), range(op.dest_start, op.dest_end), strict=True)
            rows.extend(Pair(i, j, True) for i, j in span)
        else:  # adjacent insertions and deletions share rows
            left.extend(range(op.src_start, op.src_end))
            right.extend(range(op.dest_start, op.dest_end))
    flush()
    return tuple(rows)
