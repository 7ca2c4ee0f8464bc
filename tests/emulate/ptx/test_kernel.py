"""A kernel of PTX before it runs: its declarations, where they lie, what they begin with."""

from __future__ import annotations

from struct import pack

import pytest

from tritonhook.emulate.ptx.kernel import list_of, place, read_kernel, read_variable
from tritonhook.errors import NotUnderstood
from tritonhook.ptx.module import Ptx


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".shared .align 16 .b8 name[1024]", ("name", "shared", "b8", 16, 1024)),
        (" .global .b32 one; ", ("one", "global", "b32", 4, 4)),
        (".extern .shared .align 128 .b8 dynamic[]", ("dynamic", "shared", "b8", 128, 0)),
        (".visible .const .align 8 .f64 c[2][3]", ("c", "const", "f64", 8, 48)),
        (".param .u64 .ptr .global .align 16 p", ("p", "param", "u64", 8, 8)),
        (".weak .global .u16 w[ 5 ]", ("w", "global", "u16", 2, 10)),
        (".local .align 2 .b64 $x%", ("$x%", "local", "b64", 2, 8)),
        (".common .global .b128 wide", ("wide", "global", "b128", 16, 16)),
        (".shared::cta .b8 s[3]", ("s", "shared", "b8", 1, 3)),
    ],
)
def test_declarations(text, expected):
    found = read_variable(text)
    assert (found.name, found.space, found.type, found.align, found.size) == expected
    assert found.values == "" and found.contents == bytes(found.size)


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (".global .b32 x[3] = {1, -2, 0x10}", pack("<IiI", 1, -2, 16)),
        (".global .u16 x[4] = { 1, 65535U,\n 2 }", pack("<4H", 1, 65535, 2, 0)),
        (".const .b8 x[4] = {255, 256}", bytes([255, 0, 0, 0])),
        (".const .f32 x[3] = {1.5, 0f40490FDB, -2}", pack("<f", 1.5) + b"\xdb\x0f\x49\x40" + pack("<f", -2)),
        (".const .f64 x[3] = {1.5, 0d3FF0000000000000, 1e3}", pack("<3d", 1.5, 1.0, 1000.0)),
        (".global .b64 x = 0xFFFFFFFFFFFFFFFF", b"\xff" * 8),
        (".global .b32 x[2][2] = {{1, 2}, {3}}", pack("<4I", 1, 2, 3, 0)),
        (".const .f32 x[1] = {0F3F800000}", pack("<f", 1.0)),
    ],
)
def test_initialisers(text, contents):
    assert read_variable(text).contents == contents


@pytest.mark.parametrize("text", [".shared .b8", ".reg .b32 %r<4>", ".global .v2 .b32 x", ".global .q32 x"])
def test_other_declarations_are_refused(text):
    with pytest.raises(NotUnderstood, match=r"^\.\w+"):
        read_variable(text)


def test_other_initialisers_are_refused():
    with pytest.raises(NotUnderstood, match="other") as caught:
        _ = read_variable(".global .u64 other = generic(x)-8").contents
    assert caught.value.opcode == ".global"
    pointers = read_variable(".global .u64 p[3] = {1, generic(x)+8, y}")
    assert (pointers.contents[0], pointers.pointers) == (1, [(8, "x", 8), (16, "y", 0)])


def test_variables_lie_behind_one_another_as_they_are_aligned():
    variables = [read_variable(text) for text in (".shared .b8 a[3]", ".shared .b64 b", ".shared .align 16 .b8 c[1]")]
    placed = place(variables, 10)
    assert [offset for _, offset in placed.variables] == [10, 16, 32] and placed.size == 33
    assert placed.offset("c") == 32 and placed.names == {"a", "b", "c"}
    assert place([]).size == 0


TEXT = """.version 8.7
.target {target}
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.shared .align 8 .b8 outer[12];
.global .b32 g[2] = {{1, 2}};
.const .align 8 .f64 c = 2.5;
.visible .global .b8 shown[2];
.weak .const .b32 weak;
.common .global .b32 common;
.extern .func (.param .b32 out) helper (.param .b32 in);
.visible .entry other(.param .u32 n) {{ ret; }}
.visible .entry k(.param .u32 first, .param .align 64 .b8 second[128], .param .u64 third)
{{
.reg .b32 %r<3>;
.shared .align 4 .b8 inner[4];
.local .align 16 .b8 stack[40];
.local .b64 more;
ld.param.u32 %r1, [first];
ret;
}}
"""


@pytest.mark.parametrize(("target", "begin", "major"), [("sm_80", 0, 8), ("sm_90a", 1024, 9), ("sm_120a", 1024, 12)])
def test_a_kernel_has_its_variables_and_those_of_the_module(target, begin, major):
    kernel = read_kernel(Ptx(TEXT.format(target=target)), "k")
    assert (kernel.entry, kernel.target, kernel.major, kernel.function.name) == ("k", target, major, "k")
    assert [(v.name, at) for v, at in kernel.parameters.variables] == [("first", 0), ("second", 64), ("third", 192)]
    assert kernel.parameters.size == 200
    shared = [(v.name, at - begin) for v, at in kernel.shared.variables]
    assert shared == [("outer", 0), ("inner", 12), ("dynamic", 16)] and kernel.shared.size == begin + 16
    assert [(v.name, at) for v, at in kernel.local.variables] == [("k/stack", 0), ("k/more", 40)]
    assert [v.name for v in kernel.module] == ["g", "c", "shown", "weak", "common"]
    (load,) = [item for item in kernel.function.items if item.opcode.startswith("ld")]
    assert kernel.line(load.position) == 19


def test_one_of_several_entries_has_to_be_named():
    with pytest.raises(Exception, match="other"):
        read_kernel(Ptx(TEXT.format(target="sm_90")))


def test_lists():
    assert list_of("{%r1, %r2}") == ["%r1", "%r2"] and list_of("%r1") == ["%r1"]
