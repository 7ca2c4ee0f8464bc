"""Align two instruction sequences side by side, and find where moved instructions went.

diff.SassDiff has the counts; this module lists the instructions.
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
    """One row: indices into a and b; None: that side has no instruction in this row.

    in_place: both are the same instruction with registers and branch targets erased. If not, the two only share a row:
    each has moved (see Alignment.moved_to) or exists on its side only.
    """

    a: int | None
    b: int | None
    in_place: bool


@dataclass(frozen=True, slots=True, repr=False)
class Alignment(Brief):
    """Two aligned sequences. rows: cover both sides completely, in order. moved_to: index in a -> index in b."""

    rows: tuple[Pair, ...]
    moved_to: Mapping[int, int]


def align(a: Sass, b: Sass) -> Alignment:
    """Align two kernels by the shortest edit script. Equal shapes that it leaves over have moved; they are paired in
    order."""
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
    """Align two sequences of texts: equal ones share a row as far as their order allows."""
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
        else:  # adjoining insertions and deletions share rows
            left.extend(range(op.src_start, op.src_end))
            right.extend(range(op.dest_start, op.dest_end))
    flush()
    return tuple(rows)
