"""The normal form of each spelling of an operation, and which statement made what another one reads."""

from __future__ import annotations

import pytest
from ptx_checks import Case, cases

from tests.ptx.test_miscompiles import module
from tritonhook.ptx.dataflow import Operation, Part, Source
from tritonhook.ptx.miscompiles.normal import normal_operations
from tritonhook.ptx.module import Ptx


def written(source: Source) -> str:
    """A value as text, what makes it in brackets."""
    if not isinstance(source, Part):
        return str(source)
    made = source.operation
    return f"{made.name}.{made.type}({', '.join(map(written, made.sources))})"


def last(lines: str) -> Operation:
    (found,) = normal_operations(module(lines))
    return found[-2]  # before `ret`


@pytest.mark.parametrize("case", cases("normal_forms", rows=True), ids=lambda case: case.name)
def test_what_is_stored_is_written_in_normal_form(case: Case) -> None:
    assert written(last(f"{case.ptx} st.global.b32 [%out], %r7;").sources[1]) == case.checks[1]


def test_a_result_knows_its_readers() -> None:
    add = last("ld.global.b32 %r0, [%in+4]; add.s32 %r1, %r0, -0x10; add.s32 %r2, %r1, %r7;")
    made = add.made_by(0)
    assert made is not None and made.number(1) == 2**32 - 16
    assert add.number(1) is add.made_by(1) is add.source(2) is None
    load = made.made_by(0)
    assert load is not None and load.is_a("ld.global", "b32")
    assert made.readers == [(0, add)] and load.readers == [(0, made)]
    store = last("mov.u32 %r0, 7; st.global.b32 [%r0], %r0;")
    assert store.results == 0 and len(store.sources) == 2


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        ("mov.u32 %r1, 4; @!%p1 mov.u32 %r1, 5; add.s32 %r3, %r0, %r1;", [None, None]),
        ("mov.u32 %r1, 4; E: add.s32 %r3, %r0, %r1;", [None, 4]),
        ("mov.b32 %v.x, 4; mov.b32 %v.y, 5; slct.s32.s32 %r1, %v.x, %v.y, %r0;", [4, 5, None]),
        ("add.f32 %f1, %f0, 0f3F800000;", [None, None]),
    ],
)
def test_numbers_come_through_moves(lines: str, numbers: list[int | None]) -> None:
    found = last(lines)
    assert [found.number(index) for index in range(len(numbers))] == numbers


def test_elements_of_a_vector_are_told_apart() -> None:
    pack = last("mov.b32 {%h1, %h2}, %r0; mov.b32 %r1, {%h2, %h1};")
    assert [source.index for source in pack.sources if isinstance(source, Part)] == [1, 0]
    assert pack.made_by(0) is None  # it is one of two results


def test_functions_do_not_see_each_other() -> None:
    text = module("mov.u32 %r1, 4;").text + ".entry b()\n{ .reg .b32 %r<3>; add.s32 %r2, %r1, 1; ret; }"
    first, second = normal_operations(Ptx(text))
    assert [one[0].statement.function for one in (first, second)] == ["k", "b"] and second[0].source(0) == "%r1"


@pytest.mark.parametrize(
    ("lines", "are_equal"),
    [
        ("add.s32 %r1, %r0, 4; sub.s32 %r2, %r0, -4;", True),
        ("max.s32 %r1, %r0, %r5; setp.lt.s32 %p1, %r0, %r5; selp.b32 %r2, %r5, %r0, %p1;", True),  # in another order
        ("ld.global.b32 %r1, [%in]; ld.global.b32 %r2, [%in];", False),
    ],
)
def test_equal_values_are_one(lines: str, are_equal: bool) -> None:
    found = last(f"{lines} slct.s32.s32 %r3, %r1, %r2, 0;")
    assert (found.source(0) == found.source(1)) == are_equal
