"""The ranges of known miscompilations are what was assembled; the machine that judges machine code."""

from __future__ import annotations

import json
from struct import pack

import pytest
from repository import ROOT

from benchmarks.lab.miscompiles import about, assembled, verdict
from benchmarks.lab.sass_machine import NotUnderstood, run
from tritonhook.ptx.miscompiles import MISCOMPILATIONS
from tritonhook.ptx.miscompiles.record import TARGETS, TRIED, Miscompilation, PtxasVerdict
from tritonhook.ptxas.discovery import available_ptxas

RESULT = json.loads((ROOT / "benchmarks" / "results" / "miscompiles.json").read_text())


def test_ranges_are_what_was_assembled() -> None:
    bugs = {bug.name: bug for bug in MISCOMPILATIONS}
    tried = [(one["bug"], one["ptxas"], one["target"]) for one in RESULT["samples"]]
    assert sorted(tried) == sorted((b, v, t) for b in bugs for v in TRIED for t in TARGETS)
    for one in RESULT["samples"]:
        assert one["example"] in ("right", "wrong", "refused") and one["near miss"] in ("right", "refused"), one
        if one["example"] != "refused":
            verdict = bugs[one["bug"]].verdict(one["ptxas"], one["target"])
            assert verdict is PtxasVerdict(one["example"]), one


def test_results_describe_the_bugs_as_they_are() -> None:
    assert RESULT["bugs"] == [about(bug) for bug in MISCOMPILATIONS]


@pytest.mark.parametrize("bug", MISCOMPILATIONS, ids=lambda bug: bug.name)
def test_ptxas_here_is_as_its_range_says(bug: Miscompilation) -> None:
    tools = [tool for tool in available_ptxas() if tool.version in TRIED]
    if not tools:
        pytest.skip("requires a ptxas that was tried")
    for tool in tools[:1] + tools[-1:]:
        codes = assembled(tool, "sm_90a", {"example": bug.example.lines, "near": bug.example.near})
        if codes:
            assert verdict(bug, 0, codes["example"], "sm_90a") == bug.verdict(tool.version, "sm_90a").value
            assert verdict(bug, 1, codes["near"], "sm_90a") == "right"


STORE = [("", "LDC.64", "R4,c[0x0][0x210]"), ("", "STG.E", "desc[UR4][R4.64],R7"), ("", "EXIT", "")]


@pytest.mark.parametrize(
    ("code", "stored"),
    [
        ([("", "IADD3", "R6,P0,R2,-R3,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x40),  # 5 - 7 borrows
        ([("", "IADD3", "R6,P0,R3,-R2,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),
        ([("", "IADD3", "R6,P0,R2,-R11,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # 5 - 0 does not
        ([("", "LEA", "RZ,P0,-R11,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # executed
        ([("", "LEA", "RZ,P0,-R2,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),
        ([("", "LEA", "RZ,P0,-R2,0x50,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # 80 - 80
        ([("", "LEA", "RZ,P0,-R9,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x40),  # borrows
        ([("", "MOV", "R8,0x38b8"), ("", "F2FP.F16.E4M3.UNPACK_B", "R7,R8")], 0x3C00BC00),  # 1 and -1
        ([("", "MOV", "R8,0x38380000"), ("", "F2FP.F16.E4M3.UNPACK_B", "R7,R8.H1")], 0x3C003C00),
        ([("", "FADD", "R7,R10,R10")], 0x40000000),
        (
            [*(("", "MOV", f"R{at},0x3c003c00") for at in range(20, 24)), ("", "HMMA.16816.F32", "R7,R20,R22,R10")],
            0x41880000,  # 16 products of 1, and 1
        ),
        (
            [
                *(("", "MOV", f"R{at},0x38383838") for at in range(20, 24)),
                ("", "QMMA.16832.F32.E4M3.E4M3", "R7,R20.ROW,R22.COL,R10"),
            ],
            0x42040000,  # 32 products of 1, and 1
        ),
        ([("", "LOP3.LUT", "R7,R2,0x3,RZ,0x3c,!PT")], 5 ^ 3),
        ([("", "LOP3.LUT", "P0,RZ,R2,0x2,RZ,0xc0,!PT"), ("@P0", "MOV", "R2,0x9"), ("", "MOV", "R7,R2")], 5),
        ([("", "PLOP3.LUT", "P0,PT,PT,PT,PT,0x8,0x0"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "SHF.L.W.U32.HI", "R7,R2,0x1,R3")], 14),
        ([("", "SHF.R.S32.HI", "R7,RZ,0x1,-0x8")], -4),
        ([("", "SHF.R.U32.HI", "R7,RZ,0x28,R3")], 0),
        ([("", "PRMT", "R7,R9,0x9910,RZ")], -0x8000),
        ([("", "IMAD.WIDE.U32", "R6,R10,R9,RZ")], 0x1FC0),
        ([("", "VIMNMX3", "R7,R2,R3,-0x1,!PT")], 7),
        ([("", "VIMNMX.S16x2", "R7,R9,R2,PT")], -0x8000 & 0xFFFF),
        ([("", "VIADD.16x2", "R7,R9,0x8001")], 1),
        ([("", "LEA.HI", "R7,R9,R2,RZ,0x1")], 5),
        ([("", "ISETP.GT.U32.AND", "P0,PT,RZ,-0x1,PT"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "FLO.U32", "R7,R2")], 2),
        ([("", "SGXT", "R7,R3,0x3")], -1),
        ([("", "HFMA2.MMA", "R7,-RZ,RZ,0,2.384185791015625e-07")], 4),
        ([("", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", "R7,R10,RZ,R3")], 0x73800),
    ],
)
def test_the_machine(code: list[tuple[str, str, str]], stored: int) -> None:
    registers = {"R2": 5, "R3": 7, "R9": 0x8000, "R10": 0x3F800000, "R11": 0}
    start = [("", "MOV", f"{name},{number:#x}") for name, number in registers.items()]
    (found,) = run([*start, *code, *STORE], "sm_90a", [bytes(4)])
    assert found == pack("<I", stored & 0xFFFF_FFFF)


TILES = [
    *(("", "MOV", f"R{number},0x40004000") for number in range(4, 8)),  # 2
    ("", "STS.128", "[RZ+0x80],R4"),
    *(("", "MOV", f"R{number},0x40404040") for number in range(4, 8)),  # 3
    ("", "STS.128", "[RZ+0x100],R4"),
    *(("", "UMOV", f"UR{number},{value:#x}") for number, value in enumerate((8, 0, 16, 0))),
    ("", "MOV", "R20,0x3f803f80"),  # 1
    ("", "MOV", "R22,0x3f803f80"),
]


@pytest.mark.parametrize(
    ("operands", "stored"),
    [("R7,R20,gdesc[UR0],RZ,!UPT", 16 * 1 * 3), ("R7,gdesc[UR0],RZ,!UPT,gsb0", 16 * 2 * 3)],
)
def test_the_machine_takes_the_second_pair_of_a_descriptor_for_b(operands: str, stored: float) -> None:
    (found,) = run([*TILES, ("", "HGMMA.64x8x16.F32.BF16", operands), *STORE], "sm_90a", [bytes(4)])
    assert found == pack("<f", stored)


def test_the_machine_shows_what_nothing_has_written() -> None:
    one, other = (run(STORE, "sm_90a", [bytes(4)], garbage)[0] for garbage in (0, 1))
    assert one != other


@pytest.mark.parametrize(
    "line",
    [
        ("", "LEA.HI", "RZ,P0,-R2,R3,RZ,0x4"),
        ("", "HMMA.16816.F16", "R7,R2,R3,R4"),
        ("", "F2FP.F16.E5M2.UNPACK_B", "R7,R2"),
        ("", "VIMNMX.S16x2", "R7,P0,P1,R2,R3,PT"),
        ("", "MOV", "R7,c[0x3][0x0]"),
        ("", "STG.E", "desc[UR4][R2.64],R7"),
        ("", "BRA", "0x0"),
        ("", "HGMMA.64x8x16.F32.BF16", "R7,R20,gdesc[UR2],RZ,!UPT"),  # no tile there
        ("", "HGMMA.64x8x16.F32.BF16", "R7,R20,gdesc[UR0],R8"),
        ("", "HGMMA.64x8x16.F32", "R7,R20,gdesc[UR0],RZ,!UPT"),
        ("", "HGMMA.64x8x16.F32.BF16", "R7,R20,gdesc[UR0].tnspB,RZ,!UPT"),
    ],
)
def test_the_machine_refuses_what_it_does_not_know(line: tuple[str, str, str]) -> None:
    with pytest.raises(NotUnderstood):
        run([*TILES, line, *STORE], "sm_90a", [bytes(4)])
