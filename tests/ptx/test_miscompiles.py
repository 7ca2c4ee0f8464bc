"""PTX that some versions of ptxas miscompile: it is found, a near miss is not, and `show` and `diff` warn of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from documents import in_terminal

from tritonhook._util.versions import version_key
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.cli import main
from tritonhook.ptx.miscompiles import MISCOMPILATIONS, findings, note_of, places, warnings_of
from tritonhook.ptx.miscompiles.record import TARGETS, TRIED, Miscompilation, PtxasVerdict, Range
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.report.results.capture import CapturedOne

BUGS = {bug.name: bug for bug in MISCOMPILATIONS}
# Without its guard, what reads the statement makes the bug; the results of matrices are no values of their own.
NOT_UNDER_A_GUARD = {"wgmma-shared-descriptor", "fp8-mma-in-place", "packed-add-one-half", "product-low-bits"}
CVT = "cvt.rn.satfinite.e4m3x2.f32"
ROTATION = BUGS["shift-sub-rotate-64"]
WGMMA = "wgmma-shared-descriptor"
FP8_MMA = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
TWO_TILES = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f4, %f5, %f6, %f7}}, {}, 0, 1, 1, 0, 0;"
ONE_TILE = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %d0, 0, 1, 1, 0;"
)


def module(lines: str, target: str = "sm_90a") -> Ptx:
    return Ptx(ROTATION.example.ptx(target, "8.7", lines))


def found(lines: str) -> list[tuple[str, str, int]]:
    return [(place.bug.name, place.function, place.line) for place in places(module(lines))]


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=BUGS)
def test_the_example_is_found_once_and_the_near_miss_is_not(bug: Miscompilation) -> None:
    (place,) = places(Ptx(bug.example.ptx("sm_90a", "8.7")))
    assert place.bug is bug and place.function == "k"
    assert places(Ptx(bug.example.ptx("sm_90a", "8.7", bug.example.near))) == ()


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=BUGS)
def test_the_example_is_not_found_in_a_comment_and_found_under_a_guard(bug: Miscompilation) -> None:
    text = bug.example.ptx("sm_90a", "8.7")
    lines = text.splitlines()
    (place,) = places(Ptx(text))
    for number, changed in enumerate((f"// {lines[place.line - 1]}", f"@%p1 {lines[place.line - 1]}")):
        again = places(Ptx("\n".join([*lines[: place.line - 1], changed, *lines[place.line :]])))
        assert bool(again) == (number == 1 and bug.name not in NOT_UNDER_A_GUARD)
    twice = text.replace(".entry k(", ".entry other(") + text[text.index(".visible") :]
    assert [place.function for place in places(Ptx(twice))] == ["other", "k"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, 0f3F800000, 0f3F800000;\nmov.b32 \t%r0, { %h0,%h0 };", "fp8-pair-twice"),
        ("cvt.rn.satfinite.e5m2x2.f32 %h0, %f0, %f1;\nmov.b32 %r0, {%h0, %h0};", "fp8-pair-twice"),
        (f"{CVT} %h0, %f0, %f1; {CVT} %h1, %f0, %f1;\nmov.b32 %r0, {{%h0, %h1}};", "fp8-pair-twice"),
        (f"{CVT} %h0, %f0, %f1; mov.f32 %f0, %f2; {CVT} %h1, %f0, %f1; mov.b32 %r0, {{%h0, %h1}};", None),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; mov.b16 %h0, 0;\nmov.b32 %r0, {%h0, %h0};", None),
        ("cvt.rn.f16.f32 %h0, %f0; mov.b16 %h1, %h0; // e4m3x2.f32\nmov.b32 %r0, {%h0, %h0};", None),
        ("shl.b64 %d1, %d0, 63; shr.b64 %d2, %d0, 1;\nsub.u64 %d3, %d2, %d1;", "shift-sub-rotate-64"),
        ("mov.u32 %r0, 8; shl.b64 %d1, %d0, %r0; shr.u64 %d2, %d0, 0x38;\nsub.u64 %d3, %d1, %d2;", ROTATION.name),
        ("shl.b64 %d1, %d0, 16; shr.u64 %d2, %d0, 56;\nsub.u64 %d3, %d1, %d2;", None),
        ("shl.b64 %d1, %d0, 8; shr.s64 %d2, %d0, 57;\nsub.u64 %d3, %d1, %d2;", None),
        ("shl.b64 %d1, %d0, 8; mov.b64 %d0, %d4; shr.u64 %d2, %d0, 56;\nsub.u64 %d3, %d1, %d2;", None),
        ("shl.b64 %d1, %d0, 8; shr.u64 %d2, %d4, 56;\nsub.u64 %d3, %d1, %d2;", None),
        ("mov.b32 %r1, 3;\nadd.u16x2 %r2, %r0, %r1; st.global.b16 [%out], %r2;", "packed-add-one-half"),
        ("add.u16x2 %r2, %r0, %r1; st.global.b16 [%out], %r2;", None),
        ("neg.s32 %r2, %r0; min.s32 %r3, %r0, %r2;\nmin.s32 %r4, %r1, %r3;", "greatest-of-three"),
        ("neg.s32 %r2, %r1; max.s32 %r3, %r0, %r2; max.s32 %r4, %r3, %r1;", None),
        ("neg.s32 %r2, %r0; max.u32 %r3, %r0, %r2; max.s32 %r4, %r3, %r1;", None),
        ("neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; max.s32 %r4, %r3, %r1; st.global.b32 [%out], %r3;", None),
        ("mad.lo.s32 %r1, %r0, 4, 2; mad.lo.s32 %r2, %r5, 2, 1;\nmul.lo.u32 %r3, %r1, %r2; and.b32 %r4, %r3, 3;",
         "product-low-bits"),
        ("mad.lo.s32 %r1, %r0, 4, 2; mul.lo.u32 %r3, %r1, %r1; st.global.b32 [%out], %r3;", None),
        ("shl.b32 %r1, %r0, 3; add.s32 %r1, %r1, 24; mul.lo.u32 %r3, %r1, %r1; and.b32 %r4, %r3, 3;", None),
        ("shl.b32 %r1, %r0, 1; or.b32 %r1, %r1, 1; mul.lo.u32 %r3, %r1, %r1; and.b32 %r4, %r3, 3;", None),
        ("or.b32 %r1, %r0, 1; or.b32 %r2, %r5, 1;\nmul.lo.s32 %r3, %r1, %r2; and.b32 %r4, %r3, 1;", "product-low-bits"),
        ("or.b32 %r1, %r0, 1;\nmad.lo.s32 %r3, %r1, %r1, 2; and.b32 %r4, %r3, 1;", "product-low-bits"),
        ("or.b32 %r1, %r0, 1;\nmul.lo.s32 %r3, %r1, %r1; shl.b32 %r3, %r3, 2; and.b32 %r4, %r3, 7;",
         "product-low-bits"),
        ("or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r3, %r3, 2; and.b32 %r4, %r3, 15;", None),
        ("or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r3, %r3, 2; st.global.b32 [%out], %r3;", None),
        ("or.b32 %r1, %r0, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 1;", None),
        ("bfe.s32 %r1, %r0, 40, 0;", None),
        ("bfi.b32 %r2, %r0, %r1, 1, 32;", "bit-field-too-long"),
        ("bfi.b32 %r2, %r0, %r1, 30, 225;", "bit-field-too-long"),
        ("bfi.b32 %r2, %r0, %r1, 257, 288;", "bit-field-too-long"),
        ("bfi.b32 %r2, %r0, %r1, 1, 31; bfi.b32 %r2, %r0, %r1, 32, 32; bfi.b32 %r2, %r0, %r1, 256, 32;", None),
        ("bfi.b32 %r2, %r0, %r1, 1, 256; bfi.b32 %r2, %r0, %r1, %r3, 32; bfi.b32 %r2, %r0, %r1, 1, %r3;", None),
        ("bfe.u32 %r1, %r0, 40, 9; bfi.b32 %r2, %r0, %r1, 0, 32;", None),
        ("lop3.b32 %r2, %r1, %r1, %r0, 66;\nxor.b32 %r3, %r2, %r0;", "lop3-repeated-operand"),
        ("lop3.b32 %r2, %r1, %r1, %r0, 215;\nand.b32 %r3, %r2, %r0;", "lop3-repeated-operand"),
        ("lop3.b32 %r2, %r1, %r1, %r0, 66;\nor.b32 %r3, %r0, %r2;", "lop3-repeated-operand"),
        ("lop3.b32 %r2, %r1, %r1, %r0, 66; add.s32 %r3, %r2, %r0; %r0;", None),
        ("lop3.b32 %r2, %r1, %r0, %r1, 208; xor.b32 %r3, %r2, %r4;", None),
        ("neg.s16 %h1, %h0;\nmul.wide.s16 %r1, %h1, 3;", "negated-16-bits"),
        ("sub.s16 %h1, 0, %h0;\nsetp.gt.s16 %p0, %h1, 0;", "negated-16-bits"),
        ("sub.s16 %h1, %h2, %h0; cvt.s32.s16 %r1, %h1;", None),
        (f"add.s64 %d0, %d4, 8; mov.b64 %d2, %d0; {TWO_TILES.format('%d2, %d1')}\n{ONE_TILE}", WGMMA),
        (f"add.s64 %d0, %d4, 8;\n{ONE_TILE} {TWO_TILES.format('%d0, %d1')}", WGMMA),
        (f"add.s64 %d0, %d4, 8; {TWO_TILES.format('%d1, %d0')} {ONE_TILE}", None),
        (f"add.s64 %d0, %d4, 8; {TWO_TILES.format('%d0, %d1')} add.s64 %d0, %d4, 9; {ONE_TILE}", None),
        (f"add.s64 %d0, %d4, 8; @%p0 {TWO_TILES.format('%d0, %d1')} {ONE_TILE}", None),
        (f"add.s64 %d0, %d4, 8; {ONE_TILE} {ONE_TILE}", None),
        (f"{ONE_TILE} {TWO_TILES.format('%d0, %d1')}", None),
        (f"{FP8_MMA} {{%r0,%r1,%r2,%r3}}, {{%r4,%r4,%r4,%r4}}, {{%r5,%r5}}, {{ %r0, %r1, %r2, %r3 }};",
         "fp8-mma-in-place"),
        (f"{FP8_MMA.replace('e4m3', 'e5m2')} {{%r0}}, {{%r4}}, {{%r5}}, {{%r0}};", "fp8-mma-in-place"),
        (f"{FP8_MMA} {{%r0,%r1,%r2,%r3}}, {{%r4,%r4,%r4,%r4}}, {{%r5,%r5}}, {{%r1,%r0,%r2,%r3}};", None),
        (f"{FP8_MMA.replace('e4m3', 'bf16')} {{%r0}}, {{%r4}}, {{%r5}}, {{%r0}}; // e4m3", None),
        ("cnot.b32 %r1, %r0; mov.b32 %r2, %r1; shl.b32 %r3, %r2, 4;\nsub.cc.s32 %r4, %r5, %r3;", "borrow-after-cnot"),
        ("cnot.b32 %r1, %r0; shl.b32 %r3, %r1, 4; sub.s32 %r4, %r5, %r3; // sub.cc", None),
        ("cnot.b32 %r1, %r0; add.s32 %r1, %r1, 7; shl.b32 %r3, %r1, 4; sub.cc.s32 %r4, %r5, %r3;", None),
    ],
)  # fmt: skip
def test_other_ways_to_write_it(lines: str, name: str | None) -> None:
    assert found(lines) == ([(name, "k", 8 + lines.count("\n"))] if name else [])


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


def test_ranges_name_versions_and_targets_that_were_tried() -> None:
    assert list(TRIED) == sorted(TRIED, key=version_key)
    for bug in MISCOMPILATIONS:
        assert bug.ranges
        targets = [target for one in bug.ranges for target in one.targets]
        assert len(targets) == len(set(targets)) and set(targets) <= set(TARGETS)
        assert {version for one in bug.ranges for version in (one.first, one.last)} <= set(TRIED)


def test_only_versions_that_go_wrong_are_warned_of() -> None:
    ptx = BUGS["fp8-pair-twice"].example.ptx("sm_90a", "8.7")
    warned = ("12.5.82", "12.6.85", "12.8.93", "12.9.86", "13.0.88", "13.5.37", None)
    assert [bool(warnings_of(ptx, version)) for version in warned] == [False, True, True, True, False, False, False]
    (sentence,) = warnings_of(ptx, "12.9.86")
    assert sentence.startswith("ptxas 12.9.86 miscompiles k, line 10: it writes garbage")
    assert "fp8-pair-twice" in sentence
    (sentence,) = warnings_of(ptx, "12.6.20")
    assert sentence.startswith("ptxas 12.6.20 was not tried")


def test_code_without_optimisation_is_not_warned_of() -> None:
    ptx = BUGS["fp8-pair-twice"].example.ptx("sm_90a", "8.7")
    assert warnings_of(ptx, "12.9.86", "-O1") and not warnings_of(ptx, "12.9.86", "-O0")
    assert [one.verdict for one in findings(ptx, "12.9.86", "-O0")] == [PtxasVerdict.RIGHT]
    assert [one.verdict for one in findings(ptx, None, "-O0")] == [PtxasVerdict.NOT_KNOWN]
    assert note_of([(ptx, "12.9.86", "-O0")]) == []
    assert warnings_of(BUGS["fp8-mma-in-place"].example.ptx("sm_90a", "8.4"), "12.4.131", "-O0"), "wrong at -O0, too"
    (note,) = note_of([(ptx, "12.9.86", "-O0"), (ptx, "12.9.86", "-O3")])
    assert "fp8-pair-twice (1)" in note


def test_diff_says_it_of_the_side_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    example = BUGS["fp8-pair-twice"].example
    wrong = next(
        (tool.version for tool in available_ptxas() if tool.version.startswith(("12.6", "12.8", "12.9"))), None
    )
    if wrong is None:
        pytest.skip("requires ptxas 12.6 to 12.9")
    sides = [tmp_path / name for name in ("right.ptx", "wrong.ptx")]
    sides[0].write_text(example.ptx("sm_90a", "8.4", example.near))
    sides[1].write_text(example.ptx("sm_90a", "8.4"))
    assert main(["diff", *map(str, sides), "--ptxas", wrong, "--json"]) == 1
    notes = json.loads(capsys.readouterr().out)["notes"]
    (note,) = [note for note in notes if "garbage" in note]
    assert "wrong.ptx" in note and f"ptxas {wrong} miscompiles" in note


def test_show_says_it() -> None:
    text = BUGS["fp8-pair-twice"].example.ptx("sm_90a", "8.4")
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


def test_each_of_two_equal_statements_is_a_place() -> None:
    product = "or.b32 %r1, %r0, 1;\nmul.lo.s32 %r3, %r1, %r1;\nmad.lo.s32 %r4, %r1, %r1, 0;\nand.b32 %r5, %r4, 1;"
    assert found(product) == [("product-low-bits", "k", 9), ("product-low-bits", "k", 10)]
