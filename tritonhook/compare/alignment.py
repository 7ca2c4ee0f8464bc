"""Two instruction sequences side by side: which stand beside each other, and where a moved one went.

The counts are those of diff.SassDiff; this says which instructions they are of.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from rapidfuzz.distance import Indel

from tritonhook.cubin.sass import Sass


class Pair(NamedTuple):
    """One row: indices into a and b; None: nothing stands there on that side.

    in_place: both are the same instruction with registers and branch targets erased. Without it the two only share
    a row, and each is moved (its index is in Alignment.moved_...) or on its side only.
    """

    a: int | None
    b: int | None
    in_place: bool


@dataclass(frozen=True, slots=True)
class Alignment:
    """rows cover both sides completely, in order. moved_to: from an index in a to its place in b."""

    rows: tuple[Pair, ...]
    moved_to: Mapping[int, int]

    @property
    def moved_from(self) -> dict[int, int]:
        return {b: a for a, b in self.moved_to.items()}


def align(a: Sass, b: Sass) -> Alignment:
    """Equal shapes that the shortest edit script leaves over are moves, paired in order."""
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
    """Two sequences of texts in rows; equal ones beside each other as far as their order allows."""
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
        else:  # insertions and deletions that touch share rows
            left.extend(range(op.src_start, op.src_end))
            right.extend(range(op.dest_start, op.dest_end))
    flush()
    return tuple(rows)
