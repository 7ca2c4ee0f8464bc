"""Which statement made what another one reads."""

from __future__ import annotations

from tests.ptx.test_miscompiles import module
from tritonhook.ptx.dataflow import Operation, Part, behind_moves, operations


def last(lines: str) -> Operation:
    (found,) = operations(module(lines))
    return found[-2]  # before `ret`


def test_sources_are_operations_numbers_and_names() -> None:
    add = last("ld.global.b32 %r0, [%in+4]; add.s32 %r1, %r0, -0x10; add.s32 %r2, %r1, %r7;")
    made = add.made_by(0)
    assert made is not None and made.statement.opcode == "add.s32" and made.number(1) == -16
    assert add.source(1) == "%r7" and add.number(1) is None and add.made_by(1) is None and add.source(2) is None
    load = made.made_by(0)
    assert load is not None and load.is_a("ld", "b32") and isinstance(load.source(0), Part)
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
    assert behind_moves(pack.source(0)) == pack.source(0) and pack.made_by(0) is None  # it is one of two results
    select = last("setp.eq.s32 %p1 | %p2, %r0, 0; selp.b32 %r1, 1, 2, %p2;")
    assert isinstance(select.source(2), Part) and select.source(2).index == 1
    element = last("mov.b32 %v.x, 4; mov.b32 %v.y, 5; add.s32 %r1, %v.x, %v.y;")
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
