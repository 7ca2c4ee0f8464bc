"""What is dead goes, what an effect needs stays, and a read of an unwritten register is seen on every path."""

from __future__ import annotations

import pytest
from ptx_modules import HEADER, kernel

from tritonhook.ptx.dataflow import cleaned, flow_of, read_unwritten
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Function, Item, read_program

REGISTERS = ".reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;\n"


def function(body: str) -> Function:
    (found,) = read_program(Ptx(HEADER + kernel("k", REGISTERS + body))).functions
    return found


def left(body: str) -> list[str]:
    return [item.opcode or item.label for item in cleaned(function(body).items)]


@pytest.mark.parametrize(
    ("body", "opcodes"),
    [
        ("mov.u32 %r1, 1; add.u32 %r2, %r1, 1; ret;", ["ret"]),
        (
            "mov.u64 %rd1, 0; mov.u32 %r1, 1; st.global.b32 [%rd1], %r1; ret;",
            ["mov.u64", "mov.u32", "st.global.b32", "ret"],
        ),
        # a counter that only counts itself
        ("mov.u32 %r1, 1; L: add.u32 %r1, %r1, 1; bra L;", ["L0", "bra"]),
        ("bra A; mov.u64 %rd1, 0; st.global.b32 [%rd1], 1; A: ret;", ["ret"]),
        ("mov.u32 %r1, 1; setp.eq.u32 %p1, %r1, 1; @%p1 bra A; A: B: ret;", ["ret"]),
        (
            "mov.u32 %r1, 1; setp.eq.u32 %p1, %r1, 1; @%p1 bra A; bar.sync 0; A: ret;",
            ["mov.u32", "setp.eq.u32", "bra", "bar.sync", "L0", "ret"],
        ),
        ("atom.global.add.u32 %r1, [%rd1], 1; ret;", ["atom.global.add.u32", "ret"]),
        (".shared .b32 a; .shared .b32 b; st.shared.b32 [a], 1; ret;", [".shared", "st.shared.b32", "ret"]),
        (
            ".local .b32 a; .param .b32 b; .global .b32 c; .const .b32 d; .shared .b32 e; st.shared.b32 [e], 1; ret;",
            [".shared", "st.shared.b32", "ret"],
        ),
        (
            ".local .align 16 .b8 a[64]; .global .b32 c[2] = {1, 2}; .const .b32 d = 5; "
            "ld.global.b32 %r1, [c+4]; ld.const.b32 %r2, [d]; st.local.v2.b32 [a+8], {%r1, %r2}; ret;",
            [".local", ".global", ".const", "ld.global.b32", "ld.const.b32", "st.local.v2.b32", "ret"],
        ),
        ("bra A; .shared .b32 a; A: st.shared.b32 [a], 1; ret;", ["bra", ".shared", "L0", "st.shared.b32", "ret"]),
        (
            "mov.u32 %r1, 1; st.shared.b32 [0], %r1; mov.u32 %r2, 2; st.shared.b32 [4], %r2; bra A; A: ret;",
            ["mov.u32", "st.shared.b32", "mov.u32", "st.shared.b32", "ret"],
        ),
        ("ret.uni; st.shared.b32 [0], 1;", ["ret.uni"]),
        ("exit; st.shared.b32 [0], 1;", ["exit"]),
        ("trap; st.shared.b32 [0], 1;", ["trap"]),
        ("brkpt; ret; st.shared.b32 [0], 1;", ["brkpt", "ret"]),
    ],
)
def test_what_is_dead_goes(body: str, opcodes: list[str]) -> None:
    assert left(body) == opcodes


@pytest.mark.parametrize(
    ("body", "readers"),
    [
        ("add.u32 %r1, %r2, 1; ret;", ["add"]),
        ("mov.u32 %r2, 0; add.u32 %r1, %r2, 1; ret;", []),
        ("mov.u32 %r2, 0; setp.eq.u32 %p1, %r2, 0; @%p1 mov.u32 %r3, 1; mov.u32 %r4, %r3; ret;", ["mov"]),
        ("mov.u32 %r2, 0; setp.eq.u32 %p1, %r2, 0; @%p1 bra A; mov.u32 %r3, 1; A: mov.u32 %r4, %r3; ret;", ["mov"]),
        (
            "mov.u32 %r2, 0; setp.eq.u32 %p1, %r2, 0; mov.u32 %r3, 2; @%p1 bra A; mov.u32 %r3, 1; A: mov.u32 %r4, %r3;",
            [],
        ),
        ("bra A; B: mov.u32 %r4, %r3; ret; A: mov.u32 %r3, 1; bra B;", []),
        ("bra A; B: mov.u32 %r4, %r3; ret; A: bra B;", ["mov"]),
        (
            "mov.u32 %r1, 0; L: add.u32 %r1, %r1, %r2; mov.u32 %r2, 1; setp.eq.u32 %p1, %r1, 9; @%p1 bra L; ret;",
            ["add"],
        ),
        ("mad.lo.u32 %r1, %r2, 1, 1; sub.u32 %r1, %r2, 1; ret;", ["mad", "sub"]),
        ("bra.uni A; B: mov.u32 %r4, %r3; ret; A: bra.uni B;", ["mov"]),
    ],
)
def test_reads_before_writes_are_seen(body: str, readers: list[str]) -> None:
    assert sorted(opcode for _, opcode in read_unwritten(function(body))) == readers


@pytest.mark.parametrize(
    ("item", "writes", "reads", "has_effect"),
    [
        (Item("ld.global.v2.b32", ("{%r0, %r1}", "[%rd0+8]"), "@%p0"), {"%r0", "%r1"}, {"%rd0", "%p0"}, False),
        (Item("st.global.b32", ("[%rd0]", "%r1")), set(), {"%rd0", "%r1"}, True),
        (Item("setp.lt.s32", ("%p0|%p1", "%r0", "%r1")), {"%p0", "%p1"}, {"%r0", "%r1"}, False),
        (Item("wgmma.mma_async.sync", ("{%r0}", "%rd0", "%rd1", "%p0")), {"%r0"}, {"%r0", "%rd0", "%rd1", "%p0"}, True),
        (Item("wgmma.mma_async.sync", ("{%r0}", "%rd0", "%rd1", "0")), {"%r0"}, {"%rd0", "%rd1"}, True),
        (Item("mov.u32", ("%r0", "%tid.x")), {"%r0"}, set(), False),
        (Item("mbarrier.arrive.shared.b64", ("_", "[%r0]")), set(), {"%r0"}, True),
    ],
)
def test_what_an_item_writes_and_reads(item: Item, writes: set[str], reads: set[str], has_effect: bool) -> None:
    assert flow_of(item)[:3] == (writes, reads, has_effect)
