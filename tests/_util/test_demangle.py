"""Mangled names: written as C++, or left as they are where that would take long or much memory."""

from __future__ import annotations

import pytest
from damage import name_that_doubles

from tritonhook._util import demangle
from tritonhook._util.demangle import demangled, function_name, is_left_mangled


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> demangle._Children:
    demangled.cache_clear()
    own = demangle._Children()
    monkeypatch.setattr(demangle, "_CHILDREN", own)
    return own


def test_names_are_written_as_cpp(children: demangle._Children) -> None:
    assert demangled("_Z3rowIfEvPKT_") == "void row<float>(float const*)"
    assert function_name("_Z3rowIfEvPKT_") == "row<float>"
    assert demangled(name_that_doubles(1)) == "f(A<int, int>, A<A<int, int>, A<int, int> >)"
    assert children._child is None and not is_left_mangled("add") and not is_left_mangled("_Znonsense")


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("void row<float>(float const*)", "row<float>"),
        ("std::pair<int, f(int) > a::b<(E)1, c d>(void (*)(int), g<h>)", "a::b<(E)1, c d>"),
        ("(anonymous namespace)::k<int>(int)", "(anonymous namespace)::k<int>"),
        ("void (anonymous namespace)::k(int)", "(anonymous namespace)::k"),
        ("auto f()::{lambda(int)#1}::operator()<int>(int) const", "f()::{lambda(int)#1}::operator()<int>"),
        ("void {lambda(int) c#1}::f(int)", "{lambda(int) c#1}::f"),
        ("vtable for A", "A"),
        ("(a)", "(a)"),
        ("x)", "x)"),
        (")", ")"),
        ("unsigned int* f<a >", "f<a >"),
    ],
)
def test_a_function_stands_between_its_type_and_parameters(
    monkeypatch: pytest.MonkeyPatch, declaration: str, name: str
) -> None:
    monkeypatch.setattr(demangle, "demangled", lambda mangled: declaration)
    assert function_name("_Z") == name


def test_a_name_with_many_references_is_written_in_a_child(children: demangle._Children) -> None:
    made = demangled(name_that_doubles(12))
    assert made.count("int") > 2**13 and made.count("<") == made.count(">") and children._child is not None
    child = children._child
    assert demangled(name_that_doubles(11)).count("int") > 2**12 and children._child is child  # the same one


def test_parts_that_double_forty_times_leave_the_name_mangled(children: demangle._Children) -> None:
    name = name_that_doubles(40)
    assert len(name) < 500 and demangled(name) == function_name(name) == name and is_left_mangled(name)
    assert demangled(name_that_doubles(12)) != name_that_doubles(12)  # in another child


@pytest.mark.parametrize("name", ["_Z" + "1f" * 10_001, "_Z1f\ni", "_Z1f\udcff"])
def test_what_no_compiler_names_stays(name: str) -> None:
    assert demangled(name) == name
