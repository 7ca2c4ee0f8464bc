"""PTX that some versions of ptxas miscompile: it is found, a near miss is not, and `show` and `diff` warn of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bug_examples import EXAMPLES, ptx_of
from documents import in_terminal
from ptx_checks import Case, cases

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.cli import main
from tritonhook.ptx.miscompiles import MISCOMPILATIONS, findings, note_of, places, warnings_of
from tritonhook.ptx.miscompiles.record import TRIED, Miscompilation, PtxasVerdict, Range
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.report.results.capture import CapturedOne

BUGS = {bug.name: bug for bug in MISCOMPILATIONS}
# Without its guard, what reads the statement makes the bug; the results of matrices are no values of their own.
# Guarded, `abs.f32` of a `set` is assembled rightly.
NOT_UNDER_A_GUARD = {
    *("wgmma-shared-descriptor", "fp8-mma-in-place", "packed-add-one-half", "product-low-bits", "set-as-integer")
}
ROTATION = BUGS["shift-sub-rotate-64"]


def module(lines: str, target: str = "sm_90a") -> Ptx:
    return Ptx(ptx_of(lines, target, "8.7"))


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=BUGS)
def test_the_example_is_found_once_and_the_near_miss_is_not(bug: Miscompilation) -> None:
    (place,) = places(Ptx(ptx_of(EXAMPLES[bug.name].lines, "sm_90a", "8.7")))
    assert place.bug is bug and place.function == "k"
    assert places(Ptx(ptx_of(EXAMPLES[bug.name].near, "sm_90a", "8.7"))) == ()


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=BUGS)
def test_the_example_is_not_found_in_a_comment_and_found_under_a_guard(bug: Miscompilation) -> None:
    text = ptx_of(EXAMPLES[bug.name].lines, "sm_90a", "8.7")
    lines = text.splitlines()
    (place,) = places(Ptx(text))
    line = lines[place.line - 1]
    for number, changed in enumerate((f"// {line}", line if line.startswith("@") else f"@%p1 {line}")):
        again = places(Ptx("\n".join([*lines[: place.line - 1], changed, *lines[place.line :]])))
        assert bool(again) == (number == 1 and bug.name not in NOT_UNDER_A_GUARD)
    twice = text.replace(".entry k(", ".entry other(") + text[text.index(".visible") :]
    assert [place.function for place in places(Ptx(twice))] == ["other", "k"]


@pytest.mark.parametrize("case", cases("miscompiles", rows=True), ids=lambda case: case.name)
def test_a_pattern_is_met_up_to_its_edge(case: Case) -> None:
    found = [place.bug.name for place in places(module(case.ptx))]
    assert found == list(case.checks.values())


@pytest.mark.parametrize("case", cases("miscompiles_lines"), ids=lambda case: case.name)
def test_the_statement_that_goes_wrong_is_named(case: Case) -> None:
    case.compare({place.line - 7: place.bug.name for place in places(module(case.ptx))})


def test_each_bug_has_its_rows() -> None:
    named = {
        name
        for case in (*cases("miscompiles", rows=True), *cases("miscompiles_lines"))
        for name in case.checks.values()
    }
    assert named == BUGS.keys()


def test_a_range_says_what_was_not_tried() -> None:
    one = Range(("sm_90a",), "12.6.85", "12.9.86")
    said = {
        version: one.verdict(version) for version in ("12.5.82", "12.6.20", "12.6.85", "12.8.61", "13.0.48", "13.0.88")
    }
    wrong, right, unknown = PtxasVerdict.WRONG, PtxasVerdict.RIGHT, PtxasVerdict.NOT_KNOWN
    assert list(said.values()) == [right, unknown, wrong, wrong, unknown, right]
    always = Range(("sm_90a",), TRIED[0], TRIED[-1])
    assert [always.verdict(version) for version in ("11.0.1", TRIED[0], TRIED[-1], "14.0.1")] == [
        unknown,
        wrong,
        wrong,
        unknown,
    ]


def test_a_target_that_was_not_tried_is_like_its_generation() -> None:
    bug = replace(
        ROTATION, ranges=(Range(("sm_90a",), "12.0.140", "13.2.86"), Range(("sm_80", "sm_86"), "12.8.93", "12.8.93"))
    )
    said = {target: bug.verdict("12.9.86", target) for target in ("sm_90", "sm_90a", "sm_87", "sm_80", "sm_100a")}
    assert [verdict is PtxasVerdict.WRONG for verdict in said.values()] == [True, True, False, False, False]
    assert bug.verdict("12.8.93", "sm_87") is PtxasVerdict.WRONG


def test_only_versions_that_go_wrong_are_warned_of() -> None:
    ptx = ptx_of(EXAMPLES["fp8-pair-twice"].lines, "sm_90a", "8.7")
    warned = ("12.5.82", "12.6.85", "12.8.93", "12.9.86", "13.0.88", "13.5.37", None)
    assert [bool(warnings_of(ptx, version)) for version in warned] == [False, True, True, True, False, False, False]
    (sentence,) = warnings_of(ptx, "12.9.86")
    assert sentence.startswith("ptxas 12.9.86 miscompiles k, line 10: it writes garbage")
    assert "fp8-pair-twice" in sentence
    (sentence,) = warnings_of(ptx, "12.6.20")
    assert sentence.startswith("ptxas 12.6.20 may miscompile")


def test_code_without_optimisation_is_not_warned_of() -> None:
    ptx = ptx_of(EXAMPLES["fp8-pair-twice"].lines, "sm_90a", "8.7")
    assert warnings_of(ptx, "12.9.86", "-O1") and not warnings_of(ptx, "12.9.86", "-O0")
    assert [one.verdict for one in findings(ptx, "12.9.86", "-O0")] == [PtxasVerdict.RIGHT]
    assert [one.verdict for one in findings(ptx, None, "-O0")] == [PtxasVerdict.NOT_KNOWN]
    assert note_of([(ptx, "12.9.86", "-O0")]) == []
    assert warnings_of(ptx_of(EXAMPLES["fp8-mma-in-place"].lines, "sm_90a", "8.4"), "12.4.131", "-O0"), (
        "wrong at -O0, too"
    )
    (note,) = note_of([(ptx, "12.9.86", "-O0"), (ptx, "12.9.86", "-O3")])
    assert "fp8-pair-twice (1)" in note


def test_diff_says_it_of_the_side_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    example = EXAMPLES["fp8-pair-twice"]
    wrong = next(
        (tool.version for tool in available_ptxas() if tool.version.startswith(("12.6", "12.8", "12.9"))), None
    )
    if wrong is None:
        pytest.skip("requires ptxas 12.6 to 12.9")
    sides = [tmp_path / name for name in ("right.ptx", "wrong.ptx")]
    sides[0].write_text(ptx_of(example.near, "sm_90a", "8.4"))
    sides[1].write_text(ptx_of(example.lines, "sm_90a", "8.4"))
    assert main(["diff", *map(str, sides), "--ptxas", wrong, "--json"]) == 1
    notes = json.loads(capsys.readouterr().out)["notes"]
    (note,) = [note for note in notes if "garbage" in note]
    assert "wrong.ptx" in note and f"ptxas {wrong} miscompiles" in note


def test_show_says_it() -> None:
    text = ptx_of(EXAMPLES["fp8-pair-twice"].lines, "sm_90a", "8.4")
    old, new = (
        Capture("k", "0" * 64, "sm_90a", {Stage.PTX: text}, Assembler(version=version))
        for version in ("12.8.93", "13.0.88")
    )
    (sentence,) = CapturedOne.of(old).warnings or ()
    assert "12.8.93 miscompiles" in sentence and CapturedOne.of(new).warnings == ()
    flat = replace(old, assembler=Assembler(version="12.8.93", arguments=("--opt-level", "0", "--gpu-name=sm_90a")))
    assert CapturedOne.of(flat).warnings == ()
    for artifacts in ({}, {Stage.PTX: "no PTX"}):
        unread = Capture("k", "0" * 64, "sm_90a", artifacts, Assembler(version="12.8.93"))
        assert CapturedOne.of(unread).warnings == ()
    shown = in_terminal(CapturedOne.of(old).summary())
    assert "- warning: " in shown and "garbage" in shown
