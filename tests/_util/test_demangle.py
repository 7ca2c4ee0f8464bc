"""Mangled names: written as C++, or left as they are where that would take long or much memory."""

from __future__ import annotations

import re
import sys
import threading
from unittest.mock import Mock

import pytest
from damage import name_that_doubles
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("_Z" + "S_" * 30 + "x" * 20, True),
        ("_Z" + "S_" * 20 + "x" * 20, False),
        ("_Z" + "S_" * 21 + "x" * 433, False),  # 3 ** 7 * 477 is less than 1 << 20
        ("_Z" + "S_" * 21 + "x" * 436, True),
        ("DpDp" + "x" * 97, False),
        ("DpDp" + "x" * 98, True),
        ("Dp" + "x" * 1022, False),
        ("Dp" + "x" * 1023, True),
        ("DpDpDp" + "x" * 26, False),
        ("DpspsZsP", True),
        ("T_" * 20 + "Dp", True),
    ],
)
def test_what_a_name_may_become_is_bounded_by_its_references_and_packs(name: str, may_be: bool) -> None:
    assert demangle._may_be_long(name) is may_be


def test_a_name_of_the_most_characters_is_not_left_mangled_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demangle, "_may_be_long", lambda name: False)
    name = "_Z" + "x" * (demangle._MOST - 2)
    assert not is_left_mangled(name) and is_left_mangled(name + "x") and not is_left_mangled("x" + name)


def test_a_child_gets_lines_and_answers_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own Python, without what the user's environment adds. A half line, or a closed pipe, is no answer."""
    children, made = demangle._Children(), []
    popen = Mock(side_effect=lambda *given, **named: made.append((given, named)) or child)
    monkeypatch.setattr("subprocess.Popen", popen)
    child = Mock()
    child.stdout.readline.return_value = b"f(\xff)\n"
    assert children.declaration("lib.so", "_Za") == children.declaration("lib.so", "_Za") == "f(\ufffd)"
    child.stdin.write.assert_called_with(b"_Za\n")
    (command,), streams = made[0]
    assert command[:3] == [sys.executable, "-I", "-S"] and command[-2:] == ["lib.so", "1048576"] and len(made) == 1
    assert streams == {"stdin": -1, "stdout": -1, "stderr": -3, "close_fds": True}
    child.stdout.readline.return_value = b"half"
    assert children.declaration("lib.so", "_Za") == "" and child.kill.called and child.communicate.called
    child.stdin.flush.side_effect = BrokenPipeError
    assert children.declaration("lib.so", "_Za") == "" == children.declaration("lib.so", "_Za")
    assert len(made) == children._lost == 3
    assert children.declaration("lib.so", "_Za") == "" and len(made) == 3


@given(st.text("STA0_a", max_size=40))
def test_references_are_counted_in_linear_time(name: str) -> None:
    assert demangle._references(name) == len(re.findall(r"[ST][0-9A-Z]*_", name))


def test_a_name_with_many_references_is_written_in_a_child(children: demangle._Children) -> None:
    made = demangled(name_that_doubles(12))
    assert made.count("int") > 2**13 and made.count("<") == made.count(">") and children._child is not None
    child = children._child
    assert demangled(name_that_doubles(11)).count("int") > 2**12 and children._child is child  # the same one


def test_parts_that_double_forty_times_leave_the_name_mangled(children: demangle._Children) -> None:
    name = name_that_doubles(40)
    assert len(name) < 500 and demangled(name) == function_name(name) == name and is_left_mangled(name)
    assert demangled(name_that_doubles(12)) != name_that_doubles(12)  # in another child


def test_after_some_lost_children_no_more_are_started(
    children: demangle._Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    own = children._started
    monkeypatch.setattr(children, "_started", lambda library: started.append(library) or own(library))
    for levels in range(40, 50):
        assert demangled(name_that_doubles(levels)) == name_that_doubles(levels)
    assert len(started) == demangle._MOST_LOST


def test_threads_get_their_own_answers(children: demangle._Children) -> None:
    names, found = [name_that_doubles(levels) for levels in (9, 10, 11, 12)], {}
    threads = [threading.Thread(target=lambda name=name: found.update({name: demangled(name)})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    demangled.cache_clear()
    assert found == {name: demangled(name) for name in names} and len({*found.values()}) == 4


@pytest.mark.parametrize("name", ["_Z" + "1f" * 10_001, "_Z1f\ni", "_Z1f\udcff"])
def test_what_no_compiler_names_stays(name: str) -> None:
    assert demangled(name) == name
