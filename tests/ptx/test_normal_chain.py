"""Values of PTX that are equal however they are spelled, and those that are not."""

from __future__ import annotations

import pytest

from tritonhook.ptx.miscompiles.normal import NormalChain
from tritonhook.ptx.module import Ptx, statements

MODULE = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{{
{}
}}
"""
TIMES_12 = "mul.lo.u32 %r3, %r1, 12;"
TWO_SHIFTS = "shl.b32 %r3, %r1, 4; shl.b32 %r4, %r2, 2; or.b32 %r5, %r3, %r4;"
NEITHER = "not.b32 %r3, %r1; not.b32 %r4, %r2;"


def are_equal(lines: str, one: str = "%r8", other: str = "%r9") -> bool:
    body = [item for item in statements(Ptx(MODULE.format(lines))) if item.function]
    chain = NormalChain(body)
    return chain.source(one) == chain.source(other)


@pytest.mark.parametrize(
    "lines",
    [
        "add.u32 %r8, %r1, %r1; shl.b32 %r9, %r1, 1;",
        f"{TIMES_12} add.u32 %r8, %r3, 3; or.b32 %r9, %r3, 3;",
        f"{TWO_SHIFTS} add.u32 %r8, %r5, 3; or.b32 %r9, %r5, 3;",
        "cvt.u32.u16 %r3, %rs1; add.u32 %r8, %r3, 0x10000; or.b32 %r9, %r3, 0x10000;",
        "neg.s32 %r3, %r2; sub.s32 %r8, %r1, %r3; add.s32 %r9, %r1, %r2;",
        "add.s32 %r3, %r1, 5; add.s32 %r8, %r3, 6; add.s32 %r9, %r1, 11;",
        f"{NEITHER} and.b32 %r5, %r3, %r4; not.b32 %r8, %r5; or.b32 %r9, %r1, %r2;",
        f"{NEITHER} or.b32 %r5, %r3, %r4; not.b32 %r8, %r5; and.b32 %r9, %r1, %r2;",
        "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r8, %r1, %r2, %p1; min.s32 %r9, %r1, %r2;",
        "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r8, %r2, %r1, %p1; max.s32 %r9, %r1, %r2;",
        "set.lt.u32.s32 %r8, %r1, %r2; setp.lt.s32 %p1, %r1, %r2; selp.b32 %r9, -1, 0, %p1;",
    ],
)
def test_two_spellings_of_a_value_are_equal(lines: str) -> None:
    assert are_equal(lines)


@pytest.mark.parametrize(
    "lines",
    [
        f"{TIMES_12} add.u32 %r8, %r3, 16; or.b32 %r9, %r3, 16;",
        f"{TWO_SHIFTS} add.u32 %r8, %r5, 12; or.b32 %r9, %r5, 12;",
        "cvt.u32.u16 %r3, %rs1; add.u32 %r8, %r3, 0x8000; or.b32 %r9, %r3, 0x8000;",
        "cvt.s32.s16 %r3, %rs1; add.s32 %r8, %r3, 0x10000; or.b32 %r9, %r3, 0x10000;",
        "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r8, %r1, %r2, %p1; min.u32 %r9, %r1, %r2;",
        "lop3.b32 %r8, %r1, %r2, %r3, 0xC8; and.b32 %r9, %r1, %r2;",
    ],
)
def test_values_that_differ_for_some_bits_are_not(lines: str) -> None:
    assert not are_equal(lines)


def test_the_second_result_of_a_comparison_is_its_opposite() -> None:
    lines = "setp.lt.s32 %p1|%p2, %r1, %r2; setp.ge.s32 %p3, %r1, %r2;"
    assert are_equal(lines, "%p2", "%p3") and not are_equal(lines, "%p1", "%p3")
