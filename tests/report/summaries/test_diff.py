"""What the summary of a diff, and of a kernel under two names, says."""

from __future__ import annotations

import pytest
from documents import golden

from tests.compare.test_diff import compare
from tritonhook.report.documents.diff import diff_document
from tritonhook.report.summaries.diff import diff_summary
from tritonhook.report.summaries.names import names_summary
from tritonhook.report.summary import Summary, Table, Tone


def table(summary: Summary, title: str) -> Table:
    (found,) = (t for t in summary.tables if t.title.startswith(title))
    return found


def rows(summary: Summary, title: str) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in table(summary, title).rows}


def test_a_diff_has_every_figure_of_the_comparison() -> None:
    found = compare("sm_100a.tcgen05.plain", "sm_100a.tcgen05.cutlass")
    summary = diff_summary(diff_document(found))
    code, s = rows(summary, "Code"), found.sass
    assert code["instructions"] == (str(s.a_instructions), str(s.b_instructions))
    assert code["in the same order"] == (str(s.in_place),) * 2
    assert code["of these, equal in every letter"] == (str(s.identical),) * 2
    assert code["moved"] == (str(s.moved),) * 2
    assert code["only on this side"] == (str(s.removed), str(s.added))
    assert code["yield bits"] == (str(s.a_yield_bits), str(s.b_yield_bits))
    assert code["stall cycles, static"] == (str(s.a_stall_cycles), str(s.b_stall_cycles))
    assert code["its records in .nv.capmerc"] == ("0", "78")
    assert code["ptxas's other scheduler"] == ("not taken", "taken")
    sections = rows(summary, "Sections")
    assert set(sections) == {d.role for d in found.sections if d.changed} | {"the whole file"}
    assert sections[".nv.capmerc.text.{kernel}"] == ("246", "1,510", "6.138x")
    assert sections["the whole file"][:2] == (f"{len(found.a.data):,}", f"{len(found.b.data):,}")
    opcodes = {name: (str(a), str(b), f"{b - a:+}") for name, (a, b) in s.opcodes.items() if a != b}
    assert rows(summary, "Opcodes") == opcodes
    assert table(summary, "Innermost loops").rows == (("0xd0", "14 → 15", "9 → 15", "64 → 67"),)


def test_marks_of_loops_stand_only_where_they_tell_the_scheduler() -> None:
    """Records decide where an image has them: then a loop of short blocks would say "no" beside "taken"."""
    for name, column in (("sm_100a.tcgen05", None), ("sm_90a.exp", "other scheduler's mark")):
        summary = diff_summary(diff_document(compare(f"{name}.plain", f"{name}.cutlass")))
        code, loops = rows(summary, "Code"), table(summary, "Innermost loops")
        assert ("its records in .nv.capmerc" in code) != ("loops with its mark" in code) == (column is not None)
        assert (column in loops.columns) == (column is not None)
        assert code["ptxas's other scheduler"] == ("not taken", "taken")
        if column is not None:
            assert code["loops with its mark"] == ("0", "1")
            assert [row[-1] for row in loops.rows] == ["no → yes"]


def test_equal_code_has_no_tables_of_differences() -> None:
    summary = diff_summary(diff_document(compare("sm_90a.exp.plain", "sm_90a.exp.plain")))
    assert (summary.verdict, summary.tone) == ("same code", Tone.GOOD)
    assert [t.title for t in summary.tables] == ["Sides", "Resources"]


def test_of_many_loops_the_largest_that_differ_are_shown() -> None:
    document = golden("diff")
    (pair,) = document["sass"]["loops"]
    changed = [{"a": pair["a"] | {"instructions": 10 + n}, "b": None} for n in range(20)]
    document["sass"]["loops"] = [*changed, {"a": pair["a"], "b": pair["a"]}]
    found = table(diff_summary(document), "Innermost loops")
    assert found.title.endswith("(20 of 21), the 12 largest")
    assert [row[1] for row in found.rows] == [f"{29 - n} → absent" for n in range(12)]


# --- one kernel under two names ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neutral", "difference", "said"),
    [
        (True, None, "the code of the name without the trigger, byte for byte"),
        (False, "different code: 3 of 9 only in a", "this ordinary name other code too: different code: 3 of 9"),
        (None, None, "not assembled"),
    ],
)
def test_the_control_is_told(neutral: bool | None, difference: str | None, said: str) -> None:
    document = golden("names") | {"control_is_neutral": neutral, "control_diff": difference}
    (note,) = (n for n in names_summary(document).notes if n.startswith("control "))
    assert document["control"]["kernel"] in note and said in note


def test_names_that_all_change_the_code_are_not_called_the_same() -> None:
    """The two names of equal length have one code, and the kernel's own name has another."""
    document = golden("names") | {"control_is_neutral": False, "control_diff": "different code: 3 of 9 only in a"}
    document["diff"] |= {"verdict": "same code", "summary": "same code: 20 instructions"}
    summary = names_summary(document)
    assert "same" not in summary.verdict and summary.tone is Tone.UNSURE
    assert all("changes nothing" not in fact for fact in summary.facts)
    assert any(f"{document['original']['kernel']} has another: different code: 3 of 9" in f for f in summary.facts)


def test_an_unsteady_ptxas_is_told_with_its_codes() -> None:
    document = golden("names") | {"runs": 8, "codes_seen": {"original": 1, "renamed": 3, "control": 2}}
    (fact,) = (f for f in names_summary(document).facts if "not deterministic" in f)
    names = [document[side]["kernel"] for side in ("original", "renamed", "control")]
    assert f"8 runs gave codes: 1 for {names[0]}, 3 for {names[1]}, 2 for {names[2]}" in fact
    assert "none of them common to all" in fact


def test_a_crash_is_told_with_the_command_that_repeats_it() -> None:
    document = golden("names") | {"diff": None}
    document["renamed"] |= {"file_bytes": None, "crash": {"summary": "ptxas died", "command": "ptxas -v k.ptx"}}
    summary = names_summary(document)
    assert (summary.verdict, summary.tone) == ("ptxas crashes under the renamed name", Tone.BAD)
    assert summary.facts == (f"under the name {document['renamed']['kernel']}: ptxas died",)
    assert "repeat the crash with: ptxas -v k.ptx" in summary.notes
