"""PTX that some versions of ptxas miscompile: it is found, and `show` and `diff` warn of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from documents import in_terminal

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.cli import main
from tritonhook.ptx.miscompiles import DuplicatedPair, duplicated_pairs, known_wrong
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.discovery import available_ptxas
from tritonhook.report.documents.captures import capture_document
from tritonhook.report.summaries.captures import capture_summary

CVT = "cvt.rn.satfinite.e4m3x2.f32"


def module(*lines: str) -> Ptx:
    body = "\n".join(lines)
    return Ptx(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .f32 a)\n{\n"
        ".reg .b64 p; .reg .b32 r; .reg .b16 h, g; .reg .f32 x, y;\n"
        "ld.param.u64 p, [out]; ld.param.f32 x, [a]; add.f32 y, x, 0f3F800000;\n"
        f"{body}\nst.global.b32 [p], r;\nret;\n}}\n"
    )


WRONG = module(f"{CVT} h, x, y;", "mov.b32 r, {h, h};")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((f"{CVT} h, x, y;", "mov.b32 r, {h, h};"), True),
        ((f"{CVT} h, 0f3F800000, 0f3F800000;", "mov.b32 \tr, { h,h };"), True),
        ((f"{CVT} h, x, y;", f"{CVT} g, x, y;", "mov.b32 r, {h, g};"), True),
        ((f"{CVT.replace('e4m3', 'e5m2')} h, x, y;", "mov.b32 r, {h, h};"), True),
        ((f"{CVT} h, x, y;", f"{CVT} g, y, x;", "mov.b32 r, {h, g};"), False),
        ((f"{CVT} h, x, y;", "mov.f32 x, y;", f"{CVT} g, x, y;", "mov.b32 r, {h, g};"), False),
        ((f"{CVT} h, x, y;", "mov.b16 h, 0;", "mov.b32 r, {h, h};"), False),
        ((f"// {CVT} h, x, y;", "mov.b16 h, 0;", "mov.b32 r, {h, h};"), False),
        (("cvt.rn.f16.f32 h, x;", "mov.b32 r, {h, h};"), False),
        (("mov.b16 h, 0; mov.b32 r, {h, h};",), False),
    ],
)
def test_a_pair_in_both_halves_is_found(lines: tuple[str, ...], found: bool) -> None:
    ptx = module(*lines)
    assert duplicated_pairs(ptx) == ((DuplicatedPair("k", 7 + len(lines), "r"),) if found else ())


def test_only_versions_that_go_wrong_are_warned_of() -> None:
    warned = ("12.5.82", "12.6.85", "12.8.93", "12.9.86", "13.0.88", "13.5.37", None)
    assert [bool(known_wrong(WRONG, version)) for version in warned] == [False, True, True, True, False, False, False]
    (sentence,) = known_wrong(WRONG, "12.9.86")
    assert sentence.startswith("ptxas 12.9.86 may make garbage of the fp8 pair in both halves of r (k, line 9):")


def test_diff_says_it_of_the_side_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    tools = {tool.version: tool for tool in available_ptxas()}
    wrong = next((version for version in tools if known_wrong(WRONG, version)), None)
    if wrong is None:
        pytest.skip("requires ptxas 12.6 to 12.9")
    sides = [tmp_path / name for name in ("right.ptx", "wrong.ptx")]
    sides[0].write_text(module(f"{CVT} h, x, y;", f"{CVT} g, y, x;", "mov.b32 r, {h, g};").text)
    sides[1].write_text(WRONG.text)
    assert main(["diff", *map(str, sides), "--ptxas", wrong, "--json"]) == 1
    notes = json.loads(capsys.readouterr().out)["notes"]
    (note,) = [note for note in notes if "garbage" in note]
    assert "wrong.ptx" in note and f"ptxas {wrong} may" in note


def test_show_says_it() -> None:
    old, new = (
        Capture("k", "0" * 64, "sm_90a", {Stage.PTX: WRONG.text}, Assembler(version=version))
        for version in ("12.8.93", "13.0.88")
    )
    (sentence,) = capture_document(old)["warnings"]
    assert "12.8.93 may make garbage" in sentence and capture_document(new)["warnings"] == []
    for artifacts in ({}, {Stage.PTX: "no PTX"}):
        unread = Capture("k", "0" * 64, "sm_90a", artifacts, Assembler(version="12.8.93"))
        assert capture_document(unread)["warnings"] == []
    shown = in_terminal(capture_summary(capture_document(old)))
    assert "- warning: " in shown and "may make garbage" in shown
