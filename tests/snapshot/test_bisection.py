"""The search for the version that changed a kernel first, over made-up histories."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from tests.snapshot.test_changes import facts
from tritonhook.snapshot.bisection import ON, Search, TriedVersion, bisect, value_of
from tritonhook.snapshot.facts import KernelFacts

VERSIONS = tuple(f"13.{minor}.0" for minor in range(32))


def search(on: str = "registers") -> Search:
    return Search(facts().identity, on, VERSIONS)


def with_registers(*registers: int) -> tuple[KernelFacts, ...]:
    return tuple(facts(code=str(many), registers=many) for many in registers)


def run(
    history: dict[int, Sequence[int]], at_hand: Collection[str] = (), all_versions: bool = False
) -> tuple[Search, list[str]]:
    """Search a history: the registers of each code from this version on; none: not assembled. Returns the versions
    that were tried as well."""
    asked: list[str] = []

    def tried(wanted: Sequence[tuple[int, str]]) -> list[TriedVersion]:
        asked.extend(version for _, version in wanted)
        return [made(version) for _, version in wanted]

    def made(version: str) -> TriedVersion:
        registers = history[max(at for at in history if at <= VERSIONS.index(version))]
        return TriedVersion(version, with_registers(*registers), "" if registers else f"ptxas {version}: unsupported")

    (found,) = bisect([search()], tried, at_hand, all_versions)
    assert len(asked) == len(set(asked))
    return found, asked


@pytest.mark.parametrize("first", [1, 2, 15, 30, 31])
def test_the_first_version_with_a_change_is_found_in_few_tries(first: int) -> None:
    found, asked = run({0: [64], first: [80]})
    assert (found.first, found.before) == (VERSIONS[first], VERSIONS[first - 1])
    assert (found.between, found.returned, found.problem) == ((), (), None)
    assert len(asked) <= 2 + 5


def test_versions_at_hand_are_tried_first() -> None:
    found, asked = run({0: [64], 20: [80]}, at_hand=[VERSIONS[n] for n in (3, 19, 20)])
    assert found.first == VERSIONS[20]
    assert asked == [VERSIONS[n] for n in (0, 31, 3, 19, 20)]


def test_nothing_is_searched_where_both_ends_do_the_same() -> None:
    found, asked = run({0: [64], 5: [80], 6: [64]}, at_hand=VERSIONS)
    assert (found.first, found.before, found.problem, asked) == (None, None, None, [VERSIONS[0], VERSIONS[31]])


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (
            {0: [], 4: [64]},
            "the good version cannot be compared: ptxas 13.0.0: unsupported; give a newer one as --good",
        ),
        (
            {0: [64], 4: []},
            "the bad version cannot be compared: ptxas 13.31.0: unsupported; give an older one as --bad",
        ),
    ],
)
def test_an_end_that_is_not_assembled_is_a_problem(history: dict[int, Sequence[int]], said: str) -> None:
    found, asked = run(history, at_hand=VERSIONS)
    assert (found.problem, found.first, len(asked)) == (said, None, 2)


def test_versions_that_are_not_assembled_are_left_out_and_named() -> None:
    found, _ = run({0: [64], 10: [], 13: [80]})
    assert (found.before, found.first, found.between) == (VERSIONS[9], VERSIONS[13], VERSIONS[10:13])


def test_one_of_several_codes_is_no_change() -> None:
    assert run({0: [64, 72], 5: [72], 9: [72, 80], 12: [80]})[0].first == VERSIONS[12]


def test_a_history_that_goes_back_is_said() -> None:
    history = {0: [64], 4: [80], 6: [64], 20: [96]}
    found, _ = run(history, at_hand=[VERSIONS[n] for n in (4, 10)])
    assert (found.before, found.first, found.returned) == (VERSIONS[3], VERSIONS[4], (VERSIONS[10],))
    every, asked = run(history, all_versions=True)
    assert (every.first, every.returned) == (VERSIONS[4], VERSIONS[6:20])
    assert asked == list(VERSIONS)


def test_what_is_looked_at() -> None:
    one = facts(spill_stores=4, spill_loads=8, stack=16, shared=32, loop_instructions=5)
    values = {on: value_of(one, on) for on in ON}
    assert values == {
        "spills": (4, 8),
        "stack": 16,
        "registers": 64,
        "shared": 32,
        "instructions": 100,
        "loop_instructions": 5,
        "code": "1",
    }
    assert value_of(facts(spill_loads=None), "spills") is None
    unknown = TriedVersion(VERSIONS[0], (replace(one, figures={}),))
    assert search("stack").with_tried(unknown).problem == (
        "the good version cannot be compared: ptxas 13.0.0: stack is not known; give a newer one as --good"
    )
