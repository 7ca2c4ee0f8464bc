"""What a probe's reports say of cells of every kind. No tool is run."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from tritonhook.cubin.summary import ImageSummary, KernelSummary
from tritonhook.lab.minimise import Trigger
from tritonhook.lab.name_probe import Cell, NameVerdict, SetupKey
from tritonhook.lab.outcome import Outcome, OutcomeKind
from tritonhook.ptxas.limits import Limits
from tritonhook.report.probe import (
    headline,
    probe_document,
    render_probe,
    render_triggers,
    sign,
    triggers_document,
)

SETUP = SetupKey("fma/loop", "12.8.93", "sm_90a", ("-v", "-O3"))


def assembled(name: str, code: str = "aa", registers: int = 32) -> Outcome:
    kernel = KernelSummary(name, code, 1024, registers, 0, 0, 0, 0, None, ())
    image = ImageSummary((kernel,), ((".text.{kernel}", 1024),), "ff", 4096)
    return Outcome(OutcomeKind.ASSEMBLED, "", 0, None, 0.01, 0.01, Limits(), image)


def failed(kind: OutcomeKind, message: str = "", signal: str | None = None) -> Outcome:
    return Outcome(kind, message, 255, signal, 0.01, 0.01, Limits())


SAME = Cell(SETUP, "gemm_*", "gemm_k", "vwxyzv", assembled("gemm_k"), assembled("vwxyzv"))
CHANGED = Cell(
    SETUP, "cutlass_*", "cutlass_k", "vwxyzvwxy", assembled("cutlass_k", "bb", 40), assembled("vwxyzvwxy"),
    draws=8, confirmed=True, other_scheduler=(True, False),
)  # fmt: skip
UNSTEADY = replace(CHANGED, confirmed=False)
CRASH = replace(CHANGED, named=failed(OutcomeKind.CRASHED, signal="SIGSEGV"), other_scheduler=(None, None))
NO_ANSWER = replace(
    SAME, named=failed(OutcomeKind.REJECTED, "no wgmma"), controlled=failed(OutcomeKind.REJECTED, "no wgmma")
)


def text(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(renderable)
    return console.file.getvalue()


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
    cell: Cell, verdict: NameVerdict, differences: tuple[str, ...], letter: str
) -> None:
    assert (cell.verdict, cell.differences, sign([cell])) == (verdict, differences, letter)


def test_a_difference_that_nobody_confirmed_is_no_change() -> None:
    assert replace(CHANGED, confirmed=None).verdict is NameVerdict.UNSTEADY


def test_the_gravest_sign_stands_for_several() -> None:
    assert sign([SAME, CHANGED, CRASH]) == "X" and sign([NO_ANSWER, SAME]) == "." and sign([]) == " "


def test_render() -> None:
    cells = [SAME, CHANGED, CRASH, NO_ANSWER, UNSTEADY]
    assert headline(cells) == "5 cells, 4 compared: the name changes 2 (1 crashes), 1 unsteady"
    shown = text(render_probe(cells))
    for part in (
        "without any effect: gemm_*",
        "fma/loop",
        "-O3",
        "taken in 1,",
        "no answer in 1 cells: rejected: no wgmma",
    ):
        assert part in shown, part
    assert "nothing" not in text(render_probe([NO_ANSWER]))


def test_document() -> None:
    document = json.loads(json.dumps(probe_document([SAME, CHANGED, CRASH])))
    assert document["summary"] == {
        "cells": 3, "cells_changed": 2, "cells_unsteady": 0, "cells_without_answer": 0, "crashes": 1,
    }  # fmt: skip
    changed = document["cells"][1]
    assert (changed["with_control"]["registers"], changed["with_name"]["registers"]) == (32, 40)
    assert changed["other_scheduler"] == {"name": True, "control": False}
    assert document["cells"][2]["with_name"] == {"kind": "crashed", "message": "", "signal": "SIGSEGV"}


def test_triggers() -> None:
    trigger = Trigger("x_gemm", 2, "gemm", (True,) * 4, (True,) * 4, {"at its start": False, "at its end": True}, 20)
    found = {SETUP: trigger, replace(SETUP, arch="sm_80"): None}
    shown = text(render_triggers(found, [NO_ANSWER], "x_*"))
    assert "fma/loop, sm_90a, ptxas 12.8.93 -O3: minimal trigger: `gemm`, case-sensitive, only at its end" in shown
    assert "at its start: no, at its end: yes" in shown and "x_* changes nothing" in shown
    assert "no answer in 1 cells: rejected: no wgmma" in shown
    document = triggers_document(found, [NO_ANSWER], "x_*")
    assert [cell["verdict"] for cell in document["without_answer"]] == ["no answer"]
    first, second = document["triggers"]
    assert (first["trigger"], second["trigger"]) == ("gemm", None)
