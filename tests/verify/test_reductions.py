"""Each way to make a case smaller: what it finds in a case, and exactly what is left without some of that."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from ptx_modules import HEADER

from tritonhook.capture.launches.record import Buffer, Launch, Packed, Pointer, Scalar
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import read_program
from tritonhook.verify import reductions
from tritonhook.verify.reductions import Parts, Reduction

KERNEL = """.visible .entry k(.param .u64 a)
{
 .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %rs<9>; .reg .b8 %rb<4>;
"""
MADE = {"constant": reductions._constant, "literal": reductions._literal_to}


def named(name: str, *argument: Any) -> Reduction:
    if argument:
        return MADE[name](*argument)
    return next(one for one in (*reductions.COARSE, *reductions.FINE, *reductions.LAST) if one.name == name)


def parts_of(body: str) -> Parts:
    return Parts(read_program(Ptx(f"{HEADER}{KERNEL}{body}\n}}\n")), "k")


def lines(parts: Parts) -> str:
    return " ".join(item.text.strip() for item in parts.items)


# Statements before and after: <gone>, <before => after>. units: what may be taken away; chosen: what is, of these.
@pytest.mark.parametrize(
    ("name", "units", "chosen", "text"),
    [
        (
            ("statements with an effect",), [3, 6, 7, 8], [0, 1],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; <st.global.b32 [%rd0], %r0;> "
            "atom.add.global.u32 %r1, [%rd0], 1; L0: <bar.sync 0;> @%p0 bra L0; ret; <ret;>",
        ),
        (
            ("statements with an effect",), [3], [0],
            "<ld.param.u64 %rd0, [a];> <mov.u32 %r0, %tid.x;> <setp.lt.u32 %p0, %r0, 7;> <st.global.b32 [%rd0], %r0;>",
        ),
        (
            ("results",), [0, 1, 2, 3], [3],
            "ld.param.u64 %rd0, [a]; <mov.u32 %r0, %tid.x;> <setp.lt.u32 %p0, %r0, 7;> <add.s32 %r1, %r0, 1;> "
            "st.global.b32 [%rd0], %r1; ret;",
        ),
        (
            ("guards of jumps",), [3, 7], [0],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; <@%p0 bra L0;> <@%p0 st.global.b32 "
            "[%rd0], 1;> <bra L1;> <L0:> @!%p0 bra L1; st.global.b32 [%rd0], 2; L1: ret;",
        ),
        (
            ("guards",), [4, 5], [1],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; @%p0 bra L0; @%p0 st.global.b32 "
            "[%rd0], 1; <@!%p0 st.global.b32 [%rd0], 2; => st.global.b32 [%rd0], 2;> L0: ret;",
        ),
        (
            ("pragmas",), [3, 5], [0],
            'ld.param.u64 %rd0, [a]; <mov.u32 %r0, %tid.x;> <setp.lt.u32 %p0, %r0, 7;> <.pragma "nounroll";> '
            'st.global.b32 [%rd0], 2; .pragma "used"; ret;',
        ),
        (
            ("constant", 0), [1, 2, 4, 5, 7, 12], [0, 1, 2, 4],
            "ld.param.u64 %rd0, [a]; <mov.u32 %r0, %tid.x; => mov.b32 %r0, 0;> <setp.lt.u32 %p0, %r0, 7; => mov.pred "
            "%p0, 0;> mov.b32 %r1, 5; <mov.b32 {%rs0, %rs1}, %r0; => mov.b16 %rs0, 0; "
            "mov.b16 %rs1, 0;> add.s32 %r2, %r0, %r1; @%p0 "
            "add.s64 %rd1, %rd0, 4; <cvt.u64.u32 %rd2, %r2; => mov.b64 %rd2, 0;> cvt.u8.u32 %rb0, %r0; "
            "st.global.v2.b16 [%rd1], {%rs0, %rs1}; st.global.b64 [%rd0], %rd2; st.global.b8 [%rd0], %rb0; mov.u32 "
            "%r3, %r2; mov.b32 %r4, 0xF; movmatrix.sync.aligned.m8n8.trans.b16 %r5, 7; st.global.v2.b32 [%rd0], {%r3, "
            "%r5}; st.global.b32 [%rd0], %r4; ret;",
        ),
        (
            ("constant", 2), [1, 4], [1],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; mov.b32 {%rs0, %rs1}, %r0; <@%p0 "
            "add.s32 %r1, %r0, %r0; => @%p0 mov.b32 %r1, 0x3F800000;> cvt.u64.u32 %rd1, %r1; st.global.v2.b16 [%rd0], "
            "{%rs0, %rs1}; st.global.b64 [%rd0], %rd1; ret;",
        ),
        (
            ("constant", 1), [1, 2, 3], [1, 2],
            "ld.param.u64 %rd0, [a]; <mov.u32 %r0, %tid.x; => mov.pred %p0, 1;> <setp.lt.u32 %p0, %r0, 7; => @%p0 "
            "mov.pred %p1, 1;> <@%p0 setp.lt.u32 %p1|%p2, %r0, 3; => @%p0 mov.pred %p2, 1;> @%p1 st.global.b64 [%rd0], "
            "1; @%p2 st.global.b64 [%rd0], 2; ret;",
        ),
        (
            ("results to one of their sources",), [(3, "%r0"), (4, "%rd0"), (5, "%r0"), (5, "%r1"), (7, "%rd2"), (7,
            "%rd0"), (10, "%r4"), (10, "%r5"), (11, "%rd1")], [2, 3, 5],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; <add.s32 %r1, %r0, %r0;> add.s64 "
            "%rd1, %rd0, %rd0; <@%p0 mad.lo.s32 %r2, %r0, %r1, %r2; => @%p0 mov.b32 %r2, %r0;> <cvt.u64.u32 %rd2, "
            "%r2;> <mul.lo.s64 %rd3, %rd2, %rd0; => mov.b64 %rd3, %rd0;> mov.u32 %r3, %r2; mov.b64 {%r4, %r5}, %rd3; "
            "selp.b32 %r6, %r4, %r5, %p0; add.s64 %rd4, %rd3, %rd1; st.global.v2.b32 [%rd4], {%r6, %r3}; ret;",
        ),
        (
            ("copies",), [1, 3, 6], [1, 2],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; <mov.u32 %r1, %r0;> @%p0 mov.u32 "
            "%r2, %r0; mov.b64 {%r3, %r4}, %rd0; <mov.u32 %r5, %r1;> mov.u32 %r6, 7; <add.s32 %r6, %r6, %r5; => "
            "add.s32 %r6, %r6, %r0;> mov.u32 %r7, %r6; <mov.b64 %rd1, {%r0, %r1}; => mov.b64 %rd1, {%r0, %r0};> "
            "st.global.v2.b32 [%rd1], {%r3, %r4}; <st.global.v4.b32 [%rd0+4], {%r2, %r5, %r6, %r7}; => "
            "st.global.v4.b32 [%rd0+4], {%r2, %r0, %r6, %r7};> ret;",
        ),
        (
            ("copies",), [1, 5, 6], [1, 2],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; <bra L0;> L0: <mov.u32 %r1, %r2; => "
            "st.global.b32 [%rd0], %r2;> <mov.u32 %r2, %r1;> <st.global.b32 [%rd0], %r1;> @%p0 bra L0; ret;",
        ),
        (
            ("vectors to one element",), [(3, 0), (3, 1), (4, 0), (4, 1), (4, 2), (4, 3), (6, 0), (6, 1), (8, 0), (8,
            1), (9, 0), (9, 1)], [1, 5, 6],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; <setp.lt.u32 %p0, %r0, 7;> <ld.global.v2.b32 {%r1, %r2}, "
            "[%rd0]; => ld.global.b32 %r2, [%rd0];> <ld.v4.b32 {%r3, %r4, %r5, %r6}, [%rd0];> tex.1d.v4.s32.s32 {%r7, "
            "%r8, %r9, %r10}, [%rd0, {%r0}]; <st.global.v2 [%rd0], {%r1, %r6}; => st.global [%rd0], %r1;> "
            "st.global.b32 [%rd0], %r2; st.global.v2.b32 [%rd0], {%r3, %r4}; st.global.v2.b32 [%rd0], {%r5, %r7}; ret;",
        ),
        (
            ("literal", "0"), [(2, 2, 0), (4, 2, 0), (6, 2, 0), (6, 3, 0), (7, 1, 6), (8, 1, 6), (9, 1, 0), (10, 2,
            0)], [0, 1, 2, 4, 5, 6, 7],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; <setp.lt.u32 %p0, %r0, 7; => setp.lt.u32 %p0, %r0, 0;> L0: "
            "<add.s32 %r1, %r0, -12; => add.s32 %r1, %r0, 0;> add.s32 %r2, %r1, 0x0; <mad.lo.s32 %r3, %r2, 1, 0XfFU; "
            "=> mad.lo.s32 %r3, %r2, 0, 0XfFU;> <st.global.v2.b32 [%rd0+16], {%r3, 9}; => st.global.v2.b32 [%rd0+16], "
            "{%r3, 0};> <ld.global.f32 %r4, [%rd0+8]; => ld.global.f32 %r4, [%rd0+0];> <mov.f32 %r5, 0F3f800000; => "
            "mov.f32 %r5, 0F00000000;> <add.f64 %rd1, %rd0, 0d3FF0000000000000; => add.f64 %rd1, %rd0, "
            "0d0000000000000000;> add.f64 %rd2, %rd1, 0d0000000000000000; add.f32 %r6, %r5, 0f00000000; "
            "st.global.v4.b32 [%rd2], {%r4, %r5, %r6, 0}; @%p0 bra L0; ret;",
        ),
        (
            ("literal", "1"), [(2, 2, 0), (4, 2, 0), (5, 3, 0), (6, 1, 1), (8, 1, 0)], [0, 2, 3],
            "ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; <setp.lt.u32 %p0, %r0, 7;> add.s32 %r1, %r0, 0; add.s32 %r2, "
            "%r1, 0x0; <mad.lo.s32 %r2, %r1, 1, 25; => mad.lo.s32 %r2, %r1, 1, 1;> <st.global.v2.b32 [%rd0], "
            "{0d3FF0000000000000, %r2}; => st.global.v2.b32 [%rd0], {0d0000000000000000, %r2};> st.global.f32 [%rd0], "
            "0f00000000; st.global.f64 [%rd0], 0D0000000000000000; ret;",
        ),
        (
            ("modifiers",), [(3, 1), (3, 3), (3, 4), (4, 2), (4, 3), (5, 1), (5, 2), (5, 4), (6, 1)], [0, 2, 4],
            "ld.param.u64 %rd0, [a]; <mov.u32 %r0, %tid.x;> <setp.lt.u32 %p0, %r0, 7;> "
            "<ld.volatile.global.nc.L2::128B.b32 %r1, [%rd0]; => ld.global.nc.b32 %r1, [%rd0];> <add.rn.ftz.sat.f32 "
            "%r2, %r1, %r1; => add.rn.ftz.f32 %r2, %r1, %r1;> ld.relaxed.gpu.global.L1::evict_last.b32 %r3, [%rd0]; "
            "st.weak.global.v2.b32 [%rd0], {%r2, %r3}; ret;",
        ),
    ],
)  # fmt: skip
def test_what_a_reduction_finds_and_leaves(
    name: tuple[Any, ...], units: list[Any], chosen: list[int], text: str
) -> None:
    before, after = (re.sub(r" ?<([^<>]*?)(?: => ([^<>]*))?>", keep, text) for keep in (r" \1", r" \2"))
    reduction, parts = named(*name), parts_of(before)
    assert list(reduction.units(parts)) == units
    left = lines(reduction.without(parts, frozenset(units[place] for place in chosen)))
    assert left.split() == after.split()


MODULE = f"""{HEADER.replace("sm_90a", "sm_90a, texmode_independent")}.global .b32 table[4];
.global .b32 rest;
.visible .func helper() {{ ret; }}
.visible .entry first(.param .u64 q) {{ ret; }}
.visible .entry second(.param .u64 out, .param .u64 in, .param .u32 n, .param .align 8 .b8 some[16])
.maxntid 64, 2, 1
.minnctapersm 2
{{
 .reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .pred %p1;
 ld.param.u64 %rd2, [in]; mov.u32 %r1, table; setp.eq.s32 %p1, %r1, 3; @%p1 bra OVER;
 st.global.u32 [%rd2+8], %r1; OVER: ret;
}}
"""
PARAMETERS = (Pointer("out", 0), Pointer("in", 2, 8), Scalar("n", "i32", 9), Packed("some", "00" * 16, ((8, 1, 0),)))
BUFFERS = (Buffer(4, "int32"), Buffer(8, "int64"), Buffer(48, "float32"))
CONTENTS = (b"abcd", bytes(8), b"\1" * 20 + bytes(27) + b"\2")
LAUNCH = Launch("second", (5, 2, 1), (64, 2, 1), PARAMETERS, BUFFERS)


def whole() -> Parts:
    return Parts(read_program(Ptx(MODULE)), "second", LAUNCH, CONTENTS)


def test_parameters_go_with_their_arguments_and_buffers() -> None:
    parts, reduction = whole(), named("parameters")
    declared = parts.function.parameters
    assert declared is not None and reduction.units(parts) == [0, 2, 3]
    assert reduction.units(replace(parts, launch=replace(LAUNCH, parameters=PARAMETERS[:3]))) == []
    assert reduction.units(replace(parts, launch=None)) == [0, 2, 3]
    assert reduction.units(parts.with_function(replace(parts.function, parameters=None, items=()))) == []

    left = reduction.without(parts, frozenset({0, 2}))
    arguments = (Pointer("in", 1, 8), Packed("some", "00" * 16, ((8, 0, 0),)))
    wanted = parts.with_function(replace(parts.function, parameters=(declared[1], declared[3])))
    launch = replace(LAUNCH, parameters=arguments, buffers=BUFFERS[1:])
    assert left == replace(wanted, launch=launch, contents=CONTENTS[1:])
    bare = reduction.without(replace(parts, contents=()), frozenset({0, 2}))
    assert bare == replace(wanted, launch=launch, contents=())
    assert reduction.without(replace(parts, launch=None), frozenset({0, 2})) == replace(wanted, launch=None)


def test_the_grid_and_the_block_shrink() -> None:
    parts, reduction = whole(), named("grid and block")
    axes = [("grid", 0, 1), ("grid", 0, 2), ("grid", 1, 1), ("grid", 1, 1)]
    axes += [("block", 0, 1), ("block", 0, 32), ("block", 0, 32), ("block", 1, 1), ("block", 1, 1)]
    assert reduction.units(parts) == axes
    assert reduction.units(replace(parts, launch=None)) == []
    assert reduction.units(replace(parts, launch=replace(LAUNCH, cluster=(1, 2, 1)))) == []
    left = reduction.without(parts, frozenset({axes[0], axes[1], axes[5], axes[7]}))
    function = replace(parts.function, directives=(".maxntid 32, 1, 1", ".minnctapersm 2"))
    launch = replace(LAUNCH, grid=(1, 2, 1), block=(32, 1, 1))
    assert left == replace(parts.with_function(function), launch=launch), "the smallest of several for one axis"


def test_pieces_of_contents_become_zeros() -> None:
    parts, reduction = whole(), named("buffers to zeros")
    assert reduction.units(parts) == [(0, 0, 16), (2, 0, 16), (2, 16, 16), (2, 32, 16)]
    left = reduction.without(parts, frozenset({(0, 0, 16), (2, 16, 16)}))
    assert left == replace(parts, contents=(bytes(4), bytes(8), b"\1" * 16 + bytes(31) + b"\2"))
    sizes = [reduction.units(replace(parts, contents=(b"\1" * size,)))[-1] for size in (1, 1024, 1025, 3000)]
    assert sizes == [(0, 0, 16), (0, 1008, 16), (0, 1024, 32), (0, 2976, 48)]
