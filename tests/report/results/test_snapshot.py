"""Kernels before and after as a result: what it says of kernels whose code changed and whose figures did not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.snapshot.test_changes import facts
from tritonhook.report.result import Tone, read_result
from tritonhook.report.results.snapshot import KernelChanges
from tritonhook.snapshot.changes import compare

EQUAL = "1 kernel with other code, but equal figures"


def facts_of(*figures: dict[str, int | None]) -> tuple[str, ...]:
    """The facts of a kernel whose code changed. figures: before and after."""
    old, new = (replace(facts(code=str(n)), figures=facts(**given).figures) for n, given in enumerate(figures))
    return KernelChanges.of("a", "b", compare([old], [new]), {}).summary().facts


def test_other_code_with_equal_figures_is_told_from_other_figures() -> None:
    assert EQUAL in facts_of({}, {})
    assert EQUAL not in facts_of({}, {"registers": 65})


def test_figures_that_are_not_known_are_not_equal() -> None:
    assert EQUAL not in facts_of({"stack": None}, {"stack": None})


def test_launch_bounds_are_shown_where_they_differ() -> None:
    same = facts("same")
    changed = [replace(facts("k"), launch_bounds=own) for own in (("maxntid 256 1 1", "explicitcluster"), ())]
    gone = replace(facts("gone"), launch_bounds=("maxntid 64 1 1",))
    changes = compare([same, changed[0], gone], [replace(same, codes=("2",)), changed[1]])
    table = KernelChanges.of("a", "b", changes, {}).summary().tables[0]
    column = table.columns.index("launch bounds")
    assert {row[0]: row[column] for row in table.rows} == {
        "k": "explicitcluster, maxntid 256 1 1 → none",
        "same": "",
    }
    without = KernelChanges.of("a", "b", compare([same, gone], [replace(same, codes=("2",))]), {}).summary()
    assert "launch bounds" not in without.tables[0].columns


def test_other_parameters_of_the_same_code_have_a_column() -> None:
    old = replace(facts(), loaded={"parameters": "1" * 16, "data": "2" * 16})
    new = replace(old, loaded={"parameters": "3" * 16, "data": "4" * 16})
    result = KernelChanges.of("a", "b", compare([old], [new]), {})
    (table,) = result.summary().tables
    assert dict(zip(table.columns, table.rows[0], strict=True))["also other"] == "parameters, data"
    assert read_result(result.document()) == result
    (same,) = KernelChanges.of("a", "b", compare([old], [replace(new, codes=("2",))]), {}).summary().tables
    assert "parameters" in same.rows[0]
    assert "loaded_changed" not in KernelChanges.of("a", "b", compare([old], [old]), {}).document()["kernels"][0]


@pytest.mark.parametrize(("registers", "tone"), [(64, Tone.CHANGED), (60, Tone.CHANGED), (80, Tone.BAD)])
def test_more_registers_are_bad_news_and_other_code_is_news(registers: int, tone: Tone) -> None:
    changes = compare([facts()], [facts(code="2", registers=registers)])
    assert KernelChanges.of("a", "b", changes, {}).summary().tone is tone
