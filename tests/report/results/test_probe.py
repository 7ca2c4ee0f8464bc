"""The documents and summaries of a sweep, with cells of every kind. No tool is run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from documents import in_terminal
from summaries import kernel_summary

from tritonhook.cubin.summary import ImageSummary
from tritonhook.lab.name_probe import NameCell, NameVerdict, SetupKey
from tritonhook.ptxas.limits import Limits
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.report.result import Summary, read_result
from tritonhook.report.results.probe import Probe, SweptCell, gravest

SETUP = SetupKey("fma/loop", "12.8.93", "sm_90a", ("-v", "-O3"))


def assembled(name: str, code: str = "aa", registers: int = 32) -> Outcome:
    kernel = kernel_summary(name, code, 1024, registers)
    image = ImageSummary((kernel,), ((".text.{kernel}", 1024),), "ff", 4096)
    return Outcome(OutcomeKind.ASSEMBLED, "", 0, None, 0.01, 0.01, Limits(), image)


def failed(kind: OutcomeKind, message: str = "", signal: str | None = None) -> Outcome:
    return Outcome(kind, message, 255, signal, 0.01, 0.01, Limits())


SAME = NameCell(SETUP, "gemm_*", "gemm_k", "vwxyzv", assembled("gemm_k"), assembled("vwxyzv"))
CHANGED = NameCell(
    SETUP, "cutlass_*", "cutlass_k", "vwxyzvwxy", assembled("cutlass_k", "bb", 40), assembled("vwxyzvwxy"),
    draws=8, confirmed=True, other_scheduler=(True, False),
)  # fmt: skip
UNSTEADY = replace(CHANGED, confirmed=False)
CRASH = replace(CHANGED, named=failed(OutcomeKind.CRASHED, signal="SIGSEGV"), other_scheduler=(None, None))
NO_ANSWER = replace(
    SAME, named=failed(OutcomeKind.REJECTED, "no wgmma"), controlled=failed(OutcomeKind.REJECTED, "no wgmma")
)


def summary(cells: list[NameCell]) -> Summary:
    return read_result(json.loads(json.dumps(Probe.of(cells).document()))).summary()


@pytest.mark.parametrize(
    ("cell", "verdict", "differences", "letter"),
    [
        (SAME, NameVerdict.SAME, (), "."),
        (CHANGED, NameVerdict.CHANGED, ("code", "registers"), "D"),
        (UNSTEADY, NameVerdict.UNSTEADY, ("code", "registers"), "~"),
        (CRASH, NameVerdict.CHANGED, ("crash",), "X"),
        (
            replace(CRASH, named=CHANGED.named, controlled=CRASH.named),
            NameVerdict.CHANGED,
            ("crash under the control",),
            "D",
        ),
        (NO_ANSWER, NameVerdict.NO_ANSWER, (), "-"),
    ],
)
def test_a_cell_is_what_its_outcomes_say(
    cell: NameCell, verdict: NameVerdict, differences: tuple[str, ...], letter: str
) -> None:
    assert (cell.verdict, cell.differences, SweptCell.of(cell).sign) == (verdict, differences, letter)


def test_a_difference_that_was_not_confirmed_is_no_change() -> None:
    assert replace(CHANGED, confirmed=None).verdict is NameVerdict.UNSTEADY


def test_the_gravest_sign_stands_for_several() -> None:
    assert gravest([".", "D", "X"]) == "X" and gravest(["-", "."]) == "." and gravest([]) == ""


@pytest.mark.parametrize(
    ("name", "code", "same"),
    [(CHANGED, "bb", 1), (CHANGED, "cc", 0), (SAME, "bb", 0), (SAME, "aa", 1), (CHANGED, "aa", 0)],
)
def test_the_pragma_is_compared_with_the_names(name: NameCell, code: str, same: int) -> None:
    pragma = replace(CHANGED, template=".pragma", name="zvw", control="vwx")
    pragma = replace(pragma, named=assembled("zvw", code), controlled=assembled("vwx"))
    found = summary([SAME, name, pragma])
    assert f"the pragma has the same effect as the names in {same} of 1 setting" in found.facts


def test_an_unsteady_place_says_nothing_of_pragma_and_names() -> None:
    pragma = replace(UNSTEADY, template=".pragma")
    assert not [fact for fact in summary([SAME, CHANGED, pragma]).facts if "the pragma has" in fact]


def test_a_sweep_without_an_answer_changes_nothing_and_is_not_called_the_same() -> None:
    found = summary([NO_ANSWER])
    assert found.verdict == "nothing could be compared" and "nothing" not in in_terminal(found).partition("\n")[2]
    assert not found.tables


def test_document() -> None:
    document = json.loads(json.dumps(Probe.of([SAME, CHANGED, CRASH]).document()))
    assert document["summary"] == {
        "cells": 3, "cells_changed": 2, "cells_unsteady": 0, "cells_without_answer": 0, "crashes": 1,
    }  # fmt: skip
    changed = document["cells"][1]
    assert (changed["with_control"]["registers"], changed["with_name"]["registers"]) == (32, 40)
    assert changed["other_scheduler"] == {"name": True, "control": False}
    assert document["cells"][2]["with_name"] == {"kind": "crashed", "message": "", "signal": "SIGSEGV"}
