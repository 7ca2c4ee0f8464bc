"""A diff as a result: what its summary says, and that its code survives saving."""

from __future__ import annotations

import json

import pytest
from documents import diff_with_code

from tests.compare.test_diff import compare
from tritonhook.errors import UsageError
from tritonhook.report.result import Summary, Table, Tone, read_result
from tritonhook.report.results.diff import Diff


def table(summary: Summary, title: str) -> Table:
    (found,) = (t for t in summary.tables if t.title.startswith(title))
    return found


def rows(summary: Summary, title: str) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table(summary, title).rows}


def test_marks_of_loops_stand_only_where_they_tell_the_scheduler() -> None:
    """Records decide where an image has them: then a loop of short blocks would say "no" beside "taken"."""
    for name, column in (("sm_100a.tcgen05", None), ("sm_90a.exp", "other scheduler's mark")):
        summary = Diff.of(compare(f"{name}.plain", f"{name}.cutlass")).summary()
        code, loops = rows(summary, "Code"), table(summary, "Innermost loops")
        assert ("its records in .nv.capmerc" in code) != ("loops that it has scheduled" in code) == (column is not None)
        assert (column in loops.columns) == (column is not None)
        assert code["ptxas's other scheduler"] == ("not taken", "taken")
        if column is not None:
            assert code["loops that it has scheduled"] == ("0", "1")
            assert [row[-1] for row in loops.rows] == ["no → yes"]


def test_equal_code_has_no_tables_of_differences() -> None:
    summary = Diff.of(compare("sm_90a.exp.plain", "sm_90a.exp.plain")).summary()
    assert (summary.verdict, summary.tone) == ("same code", Tone.GOOD)
    assert [t.title for t in summary.tables] == ["Sides", "Resources"]


def test_code_survives_saving() -> None:
    saved = diff_with_code()
    assert json.loads(json.dumps(read_result(saved).document())) == saved


def test_a_line_of_a_file_that_is_not_listed_is_damage() -> None:
    damaged = diff_with_code()
    damaged["code"]["a"]["instructions"][0][4] = [1, 3]
    with pytest.raises(UsageError, match=r"damaged, or of another version: code\.a: a source line names a file"):
        read_result(damaged)
