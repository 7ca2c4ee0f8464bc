"""Delta debugging: what can be taken away is taken away, whatever belongs together, and no candidate is asked twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from tritonhook._util.reduction import Asked, removable


def left_of(count: int, holds: Callable[[frozenset[int]], bool]) -> tuple[set[int], int]:
    """The units that stay, and how many sets were asked for. holds: whether the units that stay have the effect."""
    everything = frozenset(range(count))
    asked = Asked[frozenset[int]](lambda sets: [holds(everything - removed) for removed in sets])
    return set(everything - removable(range(count), asked)), asked.tried


@pytest.mark.parametrize(
    "needed", [(), (0,), (99,), (3, 4, 5), (0, 50, 99), (1, 2, 30, 31, 32, 60, 97), tuple(range(0, 100, 9))]
)
def test_what_is_needed_stays_and_nothing_else(needed: tuple[int, ...]) -> None:
    left, tried = left_of(100, lambda units: units >= set(needed))
    assert left == set(needed)
    assert tried < 100 + 20 * len(needed)


def test_of_two_parts_one_stays() -> None:
    left, _ = left_of(40, lambda units: bool(units & {7, 31}))
    assert left in ({7}, {31})


def test_units_that_only_go_together_go_as_neighbours() -> None:
    left, _ = left_of(64, lambda units: (units & {8, 9, 10, 11}) in (set(), {8, 9, 10, 11}) and 40 in units)
    assert left == {40}


@pytest.mark.parametrize("seed", range(20))
def test_no_single_unit_more_can_go(seed: int) -> None:
    draw = random.Random(seed)
    clauses = [{draw.randrange(30) for _ in range(draw.randint(1, 4))} for _ in range(8)]

    def holds(units: Sequence[int]) -> bool:
        return all(clause & set(units) for clause in clauses)

    left, _ = left_of(30, holds)
    assert holds(left)
    assert not any(holds(left - {unit}) for unit in left)


def test_a_candidate_is_asked_for_once() -> None:
    seen: list[str] = []

    def ask(words: Sequence[str]) -> list[bool]:
        seen.extend(words)
        return [word.isupper() for word in words]

    asked = Asked(ask)
    assert asked(["a", "B", "a"]) == [False, True, False]
    assert asked(["B", "C"]) == [True, True]
    assert seen == ["a", "B", "C"] and asked.tried == 3


def test_what_can_go_only_after_others_goes_too() -> None:
    """A chain in another order than the units': each can go when the one before it in the chain is gone."""
    chain = [7 * step % 31 for step in range(31)]

    def holds(units: frozenset[int]) -> bool:
        gone = [link not in units for link in chain]
        return 31 in units and gone == sorted(gone, reverse=True)

    assert left_of(32, holds)[0] == {31}
