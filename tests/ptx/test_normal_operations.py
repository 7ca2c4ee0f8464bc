"""Which statement made what another one reads."""

from __future__ import annotations

import pytest

from tests.ptx.test_miscompiles import module
from tritonhook.ptx.dataflow import Operation, Part
from tritonhook.ptx.miscompiles.normal import normal_operations as operations


def last(lines: str) -> Operation:
    (found,) = operations(module(lines))
    return found[-2]  # before `ret`


def test_sources_are_operations_numbers_and_names() -> None:
    add = last("ld.global.b32 %r0, [%in+4]; add.s32 %r1, %r0, -0x10; add.s32 %r2, %r1, %r7;")
    made = add.made_by(0)
    assert made is not None and made.statement.opcode == "add.s32" and made.number(1) == 2**32 - 16
    assert add.source(1) == "%r7" and add.number(1) is None and add.made_by(1) is None and add.source(2) is None
    load = made.made_by(0)
    assert load is not None and load.is_a("ld.global", "b32") and isinstance(load.source(0), Part)
    assert made.readers == [(0, add)] and load.readers == [(0, made)]


def test_numbers_come_through_moves_and_have_bases() -> None:
    for text, number in {"0x1F": 31, "0X1F": 31, "017": 15, "9": 9, "7U": 7}.items():
        assert last(f"mov.u32 %r1, {text}; mov.b32 %r2, %r1; add.s32 %r3, %r0, %r2;").number(1) == number
    assert [last(f"add.f32 %f1, %f0, {text};").number(1) for text in ("0f3F800000", "1.5")] == [None, None]


def test_a_guarded_move_is_a_value_of_its_own() -> None:
    assert last("mov.u32 %r1, 4; @!%p1 mov.u32 %r1, 5; add.s32 %r3, %r0, %r1;").number(1) is None
    assert last("mov.u32 %r1, 4; E: add.s32 %r3, %r0, %r1;").number(1) == 4


def test_vectors_and_pairs_of_predicates() -> None:
    pack = last("mov.b32 {%h1, %h2}, %r0; mov.b32 %r1, {%h2, %h1};")
    assert [source.index for source in pack.sources if isinstance(source, Part)] == [1, 0]
    assert pack.made_by(0) is None  # it is one of two results
    select = last("setp.eq.s32 %p1 | %p2, %r0, 0; selp.b32 %r1, 1, 2, %p2;")
    chosen = select.made_by(2)
    assert chosen is not None and chosen.is_a("setp.ne", "s32"), "the second result is the opposite"
    element = last("mov.b32 %v.x, 4; mov.b32 %v.y, 5; slct.s32.s32 %r1, %v.x, %v.y, %r0;")
    assert [element.number(index) for index in (0, 1)] == [4, 5]


def test_a_store_writes_no_register() -> None:
    store = last("mov.u32 %r0, 7; st.global.b32 [%r0], %r0;")
    assert store.results == 0 and len(store.sources) == 2


def test_functions_do_not_see_each_other() -> None:
    text = (
        module("mov.u32 %r1, 4;").text + ".global .b32 x;\n.entry b()\n{ .reg .b32 %r<3>; add.s32 %r2, %r1, 1; ret; }"
    )
    first, second = operations(type(module(""))(text))
    assert [one[0].statement.function for one in (first, second)] == ["k", "b"]
    assert second[0].source(0) == "%r1"


def value(lines: str) -> tuple[str, str, list[int | None]]:
    """The normal form of what is stored: name, type, and the numbers among its sources."""
    made = last(f"ld.global.b32 %r0, [%in]; ld.global.b32 %r5, [%in]; ld.global.b16 %h0, [%in]; {lines}"
                "st.global.b32 [%out], %r7;").made_by(1)  # fmt: skip
    assert made is not None
    return made.name, made.type, [made.number(index) for index in range(len(made.sources))]


@pytest.mark.parametrize(
    ("lines", "normal"),
    [
        *(
            (lines, ("neg", "b32", [None]))
            for lines in (
                "neg.s32 %r7, %r0;",
                "sub.u32 %r7, 0, %r0;",
                "mul.lo.s32 %r7, %r0, -1;",
                "mov.b32 %r1, 0xffffffff; mad.lo.u32 %r7, %r1, %r0, 0;",
                "not.b32 %r1, %r0; add.s32 %r7, 1, %r1;",
                "add.s32 %r1, %r0, -1; xor.b32 %r7, %r1, -1;",
            )
        ),
        *(
            (lines, ("max", "s32", [None, None]))
            for lines in (
                "max.s32 %r7, %r0, %r5;",
                "setp.gt.s32 %p1, %r0, %r5; selp.b32 %r7, %r0, %r5, %p1;",
                "setp.ge.s32 %p1, %r5, %r0; selp.b32 %r7, %r5, %r0, %p1;",
                "setp.le.s32 %p1|%p2, %r0, %r5; selp.b32 %r7, %r0, %r5, %p2;",
                "mov.b32 %r7, %r0; setp.lt.s32 %p1, %r0, %r5; @%p1 mov.b32 %r7, %r5;",
                "mov.b32 %r7, %r0; setp.ge.s32 %p1, %r0, %r5; @!%p1 mov.b32 %r7, %r5;",
            )
        ),
        *(
            (lines, ("or", "b32", [None, 2]))
            for lines in (
                "or.b32 %r7, 0b10, %r0;",
                "and.b32 %r1, %r0, -3; xor.b32 %r7, %r1, 2;",
                "and.b32 %r1, %r0, -3; add.s32 %r7, %r1, 2;",
                "bfi.b32 %r7, 1, %r0, 1, 1;",
                "not.b32 %r1, %r0; and.b32 %r1, %r1, -3; not.b32 %r7, %r1;",
            )
        ),
        ("selp.b32 %r7, %r0, %r5, %p1;", ("selp", "b32", [None, None, None])),
        ("setp.gt.u32 %p1, %r0, %r5; selp.b32 %r7, %r0, 5, %p1;", ("selp", "b32", [None, 5, None])),
        ("sub.s32 %r7, %r0, 16;", ("add", "b32", [None, 2**32 - 16])),
        ("xor.b32 %r7, %r0, 2;", ("xor", "b32", [None, 2])),  # bit 1 is not known to be 0
        ("shl.b32 %r1, %r0, 30; add.s32 %r7, %r1, 0x40000000;", ("add", "b32", [None, 1 << 30])),
        ("mul.lo.s32 %r1, %r0, 2; add.s32 %r7, %r1, %r1;", ("shl", "b32", [None, 2])),
        ("shl.b32 %r1, %r0, 16; shl.b32 %r7, %r1, 16;", ("shl", "b32", [None, 16])),  # nothing is left: two shifts
        ("mov.u32 %r1, WARP_SZ; add.u32 %r1, %r1, 8; bfe.s32 %r7, %r0, %r1, 9;", ("bfe", "s32", [None, 40, 9])),
        ("mov.b16 %h1, 1; mov.b32 %r1, {%h1, %h1}; or.b32 %r7, %r0, %r1;", ("or", "b32", [None, 65537])),
        ("setp.eq.u32 %p1, %r0, 0; selp.u32 %r7, 1, 0, %p1;", ("cnot", "b32", [None])),
        ("shl.b32 %r1, %r0, 8; shr.u32 %r7, %r1, 8;", ("and", "b32", [None, 0xFFFFFF])),
        ("lop3.b32 %r7, %r0, %r5, %r0, 0xd0;", ("lop3", "b32", [None, None, None, 0xD0])),
        ("add.sat.s32 %r7, %r0, 0;", ("add.sat", "s32", [None, 0])),
        ("cvt.u32.u16 %r7, %h0;", ("cvt.u32", "u16", [None])),
        ("mov.b32 %r1, 1; L: bfe.s32 %r7, %r0, %r1, 1; add.s32 %r1, %r1, 1;", ("bfe", "s32", [None, None, 1])),
    ],
)
def test_one_operation_has_one_form(lines: str, normal: tuple[str, str, list[int | None]]) -> None:
    assert value(lines) == normal


def test_equal_values_are_one() -> None:
    add = last("ld.global.b32 %r0, [%in]; add.s32 %r1, %r0, 4; sub.s32 %r2, %r0, -4; slct.s32.s32 %r3, %r1, %r2, %r0;")
    assert add.source(0) == add.source(1)
    loads = last("ld.global.b32 %r0, [%in]; ld.global.b32 %r1, [%in]; slct.s32.s32 %r3, %r0, %r1, 0;")
    assert loads.source(0) != loads.source(1)
