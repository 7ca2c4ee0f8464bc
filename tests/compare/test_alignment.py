"""Aligning two sequences: rows cover both, and there are as many moves as diff_sass counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare.test_diff import code, compare
from tritonhook.compare.alignment import Pair, align, align_texts
from tritonhook.compare.diff import diff_sass

WORDS = st.lists(st.sampled_from(["MOV", "FFMA", "IADD3", "BAR", "LDG"]), min_size=1, max_size=30)


@given(WORDS, WORDS)
def test_the_rows_cover_both_sides_and_the_counts_are_the_diffs(a: list[str], b: list[str]) -> None:
    left, right = code(*a), code(*b)
    alignment, counted = align(left, right), diff_sass(left, right)
    assert [row.a for row in alignment.rows if row.a is not None] == list(range(len(a)))
    assert [row.b for row in alignment.rows if row.b is not None] == list(range(len(b)))
    assert sum(row.in_place for row in alignment.rows) == counted.in_place
    assert len(alignment.moved_to) == len(set(alignment.moved_to.values())) == counted.moved
    assert all(a[i] == b[j] for i, j in alignment.moved_to.items())
    assert all(a[row.a] == b[row.b] for row in alignment.rows if row.in_place)
    places = [row.a for row in alignment.rows if row.in_place]
    assert not set(places) & set(alignment.moved_to)


def test_a_moved_instruction_knows_where_it_went() -> None:
    alignment = align(code("MOV", "FFMA", "LDG", "BAR"), code("LDG", "MOV", "FFMA", "BAR"))
    assert alignment.moved_to == {2: 0}
    assert [row for row in alignment.rows if not row.in_place] == [Pair(None, 0, False), Pair(2, None, False)]


def test_equal_instructions_that_moved_are_paired_in_order() -> None:
    assert align(code("NOP", "NOP", "BAR", "BAR", "BAR"), code("BAR", "BAR", "BAR", "NOP", "NOP")).moved_to == {
        0: 3,
        1: 4,
    }


def test_what_differs_in_one_place_shares_a_row() -> None:
    rows = align_texts(["same", "old", "end"], ["same", "new", "end"])
    assert rows == (Pair(0, 0, True), Pair(1, 1, False), Pair(2, 2, True))


@pytest.mark.parametrize(
    "pair", [("sm_80.exp.plain", "sm_80.exp.cutlass"), ("sm_100a.tcgen05.plain", "sm_100a.tcgen05.cutlass")]
)
def test_golden_pairs_align_as_the_diff_says(pair: tuple[str, str]) -> None:
    d = compare(*pair)
    alignment = align(d.a_sass, d.b_sass)
    only_a = sum(row.a is not None and not row.in_place and row.a not in alignment.moved_to for row in alignment.rows)
    assert (len(alignment.moved_to), only_a) == (d.sass.moved, d.sass.removed)
