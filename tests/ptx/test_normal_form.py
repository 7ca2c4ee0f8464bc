"""The normal form of PTX, and the hash by which policies know a kernel."""

from __future__ import annotations

import hashlib

import pytest

from tritonhook.ptx.module import Ptx
from tritonhook.ptx.normal_form import normal_form, normal_sha256, without_positions
from tritonhook.rename import Rename

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 add_param_0)
{
.reg .b32 %r<4>; .reg .b64 %rd<2>;
.loc 1 20 3
ld.param.u64 %rd1, [add_param_0]; // a comment
add.s32 %r1, %r2, %r3;
ret;
}
.file 1 "/home/someone/add.py"
"""


NORMAL = """\
.target sm_90a .address_size 64 .visible .entry add(.param .u64 add_param_0) { .reg .b32 %r<4>; .reg .b64 %rd<2>; \
ld.param.u64 %rd1, [add_param_0]; add.s32 %r1, %r2, %r3; ret; }"""


def test_the_normal_form_and_its_hash() -> None:
    assert normal_form(TEXT + DEBUG) == NORMAL
    named = NORMAL.replace(" add(", " {kernel}(").replace("add_param_0", "{kernel}_param_0")
    assert digest(TEXT) == hashlib.sha256(named.encode()).hexdigest()
    assert normal_form("a /* open") == "a" and normal_form('a "// b" c') == 'a "// b" c'


def digest(text: str, kernel: str = "add") -> str:
    return normal_sha256(text, kernel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".version 8.7", ".version 9.4"),
        (".loc 1 20 3", ".loc 1 21 9"),
        ("// a comment", "/* another */"),
        ("// a comment", "// add.py:20:3, inlined"),
        ("/home/someone/add.py", "/tmp/x.py"),
        ('add.py"', 'add.py", 1763840000, 4096'),  # when it was written, and its size
        ("ret;", "$L__func_begin0:\n$L__tmp1:\nret;\n$L__func_end0:"),
        ("\nret;", "  ret;\n"),
    ],
)
def test_what_cannot_reach_the_code_does_not_count(old: str, new: str) -> None:
    assert old in TEXT and digest(TEXT.replace(old, new)) == digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [("sm_90a", "sm_80"), ("%r2, %r3", "%r3, %r2"), ("add.s32", "sub.s32"), ("ret;", '.pragma "nounroll"; ret;')],
)
def test_all_else_counts(old: str, new: str) -> None:
    assert digest(TEXT.replace(old, new)) != digest(TEXT)


@pytest.mark.parametrize("prefix", ["cutlass_", "c$"])
def test_the_kernels_own_name_does_not_count_but_an_opcode_of_that_name_does(prefix: str) -> None:
    renamed = Rename(prefix).apply(Ptx(TEXT)).text
    assert digest(renamed, f"{prefix}add") == digest(TEXT)
    sub = TEXT.replace("add", "sub")
    assert digest(sub, "sub") != digest(TEXT)


@pytest.mark.parametrize("name", ["{}", "my_{}", "%{}", "${}", ".{}", "{}_param_x", "{}_param_1", "{}s", "{}$"])
def test_a_name_that_has_the_kernels_in_it_counts(name: str) -> None:
    """But for those of the parameters."""
    before = TEXT.replace("ret;", f"st.global.u32 [{name.format('add')}], %r1; ret;")
    after = Rename(mapping=(("add", "mul"),)).apply(Ptx(TEXT)).text
    after = after.replace("ret;", f"st.global.u32 [{name.format('mul')}], %r1; ret;")
    assert (digest(after, "mul") == digest(before)) is (name in ("{}", "{}_param_1"))


DEBUG = """.section .debug_str
{
$L__info_string0:
.b8 47,104,111,109,101  // a path
}
"""


def test_without_positions_only_these_go() -> None:
    lines = [line for line in TEXT.splitlines() if not line.startswith((".loc", ".file"))]
    for text in (TEXT + DEBUG, (TEXT + DEBUG).rstrip()):
        assert without_positions(text).rstrip().split("\n") == lines
        assert normal_form(without_positions(text)) == normal_form(TEXT)


@pytest.mark.parametrize("line", [".loc 1 2 3; exit;", '.file 1 "a.py" exit;', ".section .debug_str { // }\nexit; }"])
def test_a_line_with_more_than_a_position_stays(line: str) -> None:
    text = TEXT.replace("ret;", f"ret;\n{line}\n")
    assert line in without_positions(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [("sm_90a", "sm_90a, debug"), ("ret;", 'ret; /*\n.file 1 "*/ exit; //"')],
    ids=["for debuggers", "in a comment"],
)
def test_a_text_whose_positions_cannot_be_told_from_its_code_stays(old: str, new: str) -> None:
    text = TEXT.replace(old, new)
    assert without_positions(text) == text


def test_a_block_comment_elsewhere_keeps_no_position() -> None:
    text = TEXT.replace("// a comment", "/* a comment */")
    assert without_positions(text) == text.replace("\n.loc 1 20 3", "").replace('\n.file 1 "/home/someone/add.py"', "")
