"""Statements of a PTX module: opcode, operands, function, scope, position; and calls that recurse."""

from __future__ import annotations

import pytest
from ptx_modules import HEADER, kernel

from tritonhook.errors import PtxError
from tritonhook.ptx.module import (
    Ptx,
    Statement,
    bodies,
    direct_calls,
    line_numbers,
    reaching,
    recursive_entries,
    split_operands,
    stackless_entries,
    statements,
)


def test_statements_have_their_function_scope_and_place() -> None:
    body = """.reg .b32 %r<8>; mov.u32 %r1, 5;
    { .reg .b32 %x; mov.b64 {%r4, %r5}, %rd1; } // mov.u32 %r6, 1;
    DONE: @%p1 add.u32 %r7, %r4, 2;
    ret;"""
    ptx = Ptx(HEADER + kernel("load", body))
    code = {item.opcode: item for item in statements(ptx)}
    assert "mov.u32" in code and "ret" in code
    pair = code["mov.b64"]
    assert (pair.operands, pair.function, len(list(pair.scope.numbers))) == (("{%r4, %r5}", "%rd1"), "load", 3)
    last = next(item for item in statements(ptx) if item.operands[:1] == ("%r7",))
    assert ptx.text[last.position :].startswith("add.u32 %r7")
    assert (last.guard, pair.guard) == ("%p1", "")
    assert all(ptx.text[item.position :].startswith(item.opcode) for item in statements(ptx))
    assert not any("%r6" in item.operands for item in statements(ptx))  # that one is a comment
    assert ".param .u64 load_param_0" in bodies(ptx)["load"].header


RECURSION = """.version 8.8
.target sm_90a
.address_size 64
.func (.reg .b32 %o) {a}(.reg .b32 %i) {{ .reg .b32 %r<2>; call (%r1), {b}, (%i); mov.u32 %o, %r1; ret; }}
.func (.reg .b32 %o) {c}(.reg .b32 %i) {{ mov.u32 %o, %i; ret; }}
.visible .entry k() {{ .reg .b32 %r<3>; mov.u32 %r1, 1; call (%r2), f, (%r1); ret; }}
.visible .entry other() {{ ret; }}
"""


def test_recursion_is_read_from_the_calls() -> None:
    assert recursive_entries(Ptx(RECURSION.format(a="f", b="f", c="g"))) == ("k",)
    assert recursive_entries(Ptx(RECURSION.format(a="f", b="g", c="g"))) == ()


def test_alloca_has_no_bound() -> None:
    ptx = Ptx(HEADER + kernel("k", "alloca.u64 %rd1, 8;\nret;") + kernel("other"))
    assert recursive_entries(ptx) == ("k",)


def test_entries_without_a_stack() -> None:
    plain = HEADER + kernel("plain") + kernel("other")
    assert stackless_entries(Ptx(plain)) == {"plain", "other"}
    asking = {"calls": "call f;", "frame": ".local .b32 x[4];", "grows": "alloca.u64 %rd1, 8;", "odd": "?!;"}
    text = plain + ".func f() { ret; }\n" + "".join(kernel(name, f"{body}\nret;") for name, body in asking.items())
    assert stackless_entries(Ptx(text)) == {"plain", "other"}
    assert stackless_entries(Ptx(text + ".local .b32 y;\n")) == set()  # a variable of the module, for any of them


def test_calls_are_followed_through_many_functions() -> None:
    chain = "".join(f".func f{i}() {{ call f{i + 1}; ret; }}\n" for i in range(2000))
    bounded = HEADER + chain + ".func f2000() { ret; }\n" + kernel("k", "call f0;\nret;")
    assert recursive_entries(Ptx(bounded)) == ()
    assert recursive_entries(Ptx(bounded.replace("f2000() { ret; }", "f2000() { call f1999; ret; }"))) == ("k",)


def _told(item: Statement) -> tuple[str, str, int]:
    return item.opcode, item.function, len(list(item.scope.numbers)) - 1


def test_labels_guards_and_what_cannot_be_read() -> None:
    """A label stands before its own statement, or before a block that begins with the next one."""
    body = "A: ret; mov.b32 a, b; B: { x; C: } y; @ ! %p1 z {a, b}, [c+4]; D: @%p1 v; @; E: ?!; w\n; }\n.entry l() { u;"
    ptx = Ptx(HEADER + kernel("k", body))
    found = [item for item in statements(ptx) if item.function and item.opcode != ".reg"]
    assert [(item.opcode, item.is_labelled) for item in found] == [
        *(("ret", True), ("mov.b32", False), ("x", True), ("y", True), ("z", False), ("v", True)),
        *(("", False), ("", False), ("w", False), ("u", False)),
    ]
    z, v, lone, odd = found[4:8]
    assert (z.guard, z.operands, v.guard, odd.guard) == ("! %p1", ("{a, b}", "[c+4]"), "%p1", "")
    assert ptx.text[lone.position :].startswith("@;") and ptx.text[odd.position :].startswith("E: ?!;")
    assert (odd.operands, odd.function, _told(odd)[2]) == ((), "k", 1)
    assert _told(found[2])[2] == 2 and found[-1].function == "l" and len({item.scope for item in found}) == 3


def test_blocks_are_told_from_other_braces() -> None:
    text = """.extern .func f(.param .b32 x);
.global .b32 table[2] = {1, 2};
.section .debug_info { .b8 1, 2
.b32 k_end }
.global .b32 y;
"""
    ptx = Ptx(HEADER + text + kernel("k", "L: { mov.b64 %rd1, {%r1, %r2}; M: }\nret;"))
    assert list(bodies(ptx)) == ["k"]
    found = [_told(item) for item in statements(ptx)]
    assert found == [
        (".extern", "", 0),
        (".global", "", 0),
        (".global", "", 0),
        (".reg", "k", 1),
        (".reg", "k", 1),
        ("mov.b64", "k", 2),
        ("ret", "k", 1),
    ]


def test_lines_are_counted_from_one() -> None:
    ptx = Ptx(HEADER + "\nret;")
    line = line_numbers(ptx)
    assert [line(at) for at in (0, 11, 12, 13, ptx.text.index("\nret"), ptx.text.index("ret"))] == [1, 1, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("", []),
        ("a", ["a"]),
        (" a , b,", ["a", "b"]),
        ("a,,b", ["a", "", "b"]),
        ("{a, b}, [c, {d, e}], (f, g)", ["{a, b}", "[c, {d, e}]", "(f, g)"]),
        ("(a, b), f, (c)", ["(a, b)", "f", "(c)"]),
    ],
)
def test_operands_are_split_outside_brackets(text: str, operands: list[str]) -> None:
    assert split_operands(text) == operands


def test_calls_and_who_reaches_them() -> None:
    functions = ".func f() { call g; call (%r1), h, (%r2); }\n.func g() { ret; }\n.func h() { call vprintf, (a); }\n"
    text = HEADER + functions + kernel("k", "call.uni f;\nret;") + kernel("l", "call g;\nret;") + kernel("m")
    ptx = Ptx(text)
    assert direct_calls(ptx) == {"f": {"g", "h"}, "h": set(), "k": {"f"}, "l": {"g"}}
    assert reaching(ptx, ["g"]) == {"g", "f", "k", "l"}
    assert reaching(ptx, ["h", "l"]) == {"h", "f", "k", "l"}
    assert reaching(ptx, []) == set()


@pytest.mark.parametrize("more", [0, 1])
def test_more_braces_than_ptxas_reads_are_an_error(more: int) -> None:
    ptx = Ptx(HEADER + ".func f() " + "{" * (3000 + more) + "}" * (3000 + more))
    if not more:
        assert list(statements(ptx)) == []
        return
    message = "^braces are nested more than 3,000 deep; ptxas cannot read such a module either$"
    with pytest.raises(PtxError, match=message):
        list(statements(ptx))
