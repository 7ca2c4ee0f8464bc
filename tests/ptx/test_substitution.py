"""Replacing the symbols of a PTX module: nothing but the symbols may change."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from at_hand import toolchain_at_hand
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_checks import Case, cases, changed
from ptx_modules import HEADER, kernel, module
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, Toolchain

TRITON_PTX = ("triton.sm_90.ptx", "triton.sm_100.ptx")

# A second tokeniser, written apart from tritonhook.ptx: a mistake has to be made twice to go unseen.
TOKEN = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
      | (?P<string> "[^"\n]*" )
      | (?P<word> [.%]?[A-Za-z_$][\w$]*(?:(?:\.|::)[\w$]+)* )
      | (?P<number> \d[\w.]* )
      | (?P<space> \s+ )
      | (?P<mark> . )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokens(text: str) -> list[tuple[str, str]]:
    found = [(str(match.lastgroup), match[0]) for match in TOKEN.finditer(text)]
    assert "".join(token for _, token in found) == text
    return found


def changed_tokens(before: Ptx, after: Ptx) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    old, new = tokens(before.text), tokens(after.text)
    assert len(old) == len(new)
    return {(a, b) for a, b in zip(old, new, strict=True) if a != b}


def words(**names: str) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    return {(("word", old), ("word", new)) for old, new in names.items()}


def assembled_kernels(tools: Toolchain, ptx: Ptx) -> tuple[str, ...]:
    result = tools.assemble(ptx, ())
    assert isinstance(result, Assembled), result.stderr
    return result.cubin.kernels


@pytest.mark.parametrize("name", TRITON_PTX)
@pytest.mark.parametrize("new", ["cutlass_add", "a", "mul"])
def test_renamed_triton_module_differs_in_the_entry_and_its_parameters_only(name: str, new: str) -> None:
    before = Ptx.from_bytes((GOLDEN / name).read_bytes())
    after = before.rename_entries({"add": new})
    assert changed_tokens(before, after) == words(add=new, **{f"add_param_{i}": f"{new}_param_{i}" for i in range(6)})
    assert after.entries == (new,)
    assert after.parameters(new) == tuple(f"{new}_param_{i}" for i in range(6))
    assert after.uses("add") == 0
    assert after.rename_entries({new: "add"}).text == before.text


@pytest.mark.parametrize("name", TRITON_PTX)
def test_rename_leaves_the_bytes_of_debug_sections(name: str) -> None:
    before = Ptx.from_bytes((GOLDEN / name).read_bytes())
    dwarf = [
        re.findall(r"^\.b8 (\d+)", ptx.text, re.MULTILINE) for ptx in (before, before.rename_entries({"add": "k"}))
    ]
    spelled = bytes(map(int, dwarf[0]))
    assert b"add\0" in spelled and b"kernels.py\0" in spelled
    assert dwarf[0] == dwarf[1]


@pytest.mark.parametrize("name", TRITON_PTX)
def test_ptxas_takes_the_renamed_triton_module(tools: Toolchain, name: str) -> None:
    if name == "triton.sm_100.ptx":  # PTX 8.8
        tools = toolchain_at_hand("12.9.86")
    ptx = Ptx.from_bytes((GOLDEN / name).read_bytes()).rename_entries({"add": "cutlass_add"})
    assert assembled_kernels(tools, ptx) == ("cutlass_add",)


@pytest.mark.parametrize("case", cases("renames"), ids=lambda case: case.name)
def test_the_symbol_changes_and_what_only_looks_like_it_stays(case: Case) -> None:
    before = Ptx(HEADER + kernel(case.name, case.ptx))
    after, first = before.rename_entries({case.name: "k"}), HEADER.count("\n") + 3
    found = {line - first: text for line, text in changed(before.text, after.text).items()}
    assert found.pop(-2) == ".visible .entry k(.param .u64 k_param_0)"
    case.compare(found)
    assert after.uses("k") == before.uses(case.name)


OPCODE_KERNEL = """
.reg .b64 %NAME; .reg .v2 .b32 NAME; .reg .b32 %r<2>; .shared .b64 x;
.pragma "nounroll";
.pragma "NAME // NAME"; // NAME
ld.param.u64 %rd1, [NAME_param_0];
add.s64 %NAME, %rd1, %rd1;
mov.b32 %r1, NAME.x;
ld.shared::cta.u32 %r1, [x];
st.shared::cluster.u32 [x], %r1;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [x], [%rd1], 16, [x];
setp.eq.u64 %p1, %NAME, 0;
@%p1 bra $L_NAME;
@!%p1 exit;
@%p1 trap;
$L_NAME:
ret;"""


@pytest.mark.parametrize(
    "name", ["add", "ret", "exit", "call", "bra", "trap", "debug", "sm_90a", "reg", "b32", "tid", "cta"]
)
def test_ptxas_takes_a_kernel_that_is_named_like_an_opcode_or_a_keyword(tools: Toolchain, name: str) -> None:
    """It can lose that name, and get it."""
    named, other = (Ptx(HEADER + kernel(one, OPCODE_KERNEL.replace("NAME", one))) for one in (name, "foo"))
    for before, old, new in ((named, name, "k"), (other, "foo", name)):
        after = before.rename_entries({old: new})
        assert changed_tokens(before, after) == words(
            **{old: new, f"{old}.x": f"{new}.x", f"{old}_param_0": f"{new}_param_0"}
        )
        assert after.rename_entries({new: old}).text == before.text
        assert assembled_kernels(tools, after) == (new,)


@pytest.mark.parametrize(
    "line", [".target sm_90, debug", ".target sm_90, texmode_unified , debug", '.pragma "debug";', '.file 1 "debug"']
)
def test_keywords_of_directives_are_no_symbols(line: str) -> None:
    before = Ptx(f".version 8.7\n.target sm_90a\n{line}\n.address_size 64\n" + kernel("debug"))
    assert before.uses("debug") == 1
    assert line in before.rename_entries({"debug": "k"}).text


def test_kernel_whose_name_begins_another() -> None:
    before = module("foo", "foo_bar", "foo_param_1", "foo_")
    after = before.rename_entries({"foo": "k"})
    assert after.entries == ("k", "foo_bar", "foo_param_1", "foo_")
    assert after.parameters("foo_bar") == ("foo_bar_param_0",)
    assert changed_tokens(before, after) == words(foo="k", foo_param_0="k_param_0")


def test_entry_that_is_called_like_a_parameter_of_another_keeps_its_name() -> None:
    before = module("foo", "foo_param_0")
    after = before.rename_entries({"foo": "k"})
    assert after.entries == ("k", "foo_param_0")
    assert changed_tokens(before, after) == words(foo="k")


@pytest.mark.parametrize("old, new", [("a$b", "k"), ("k", "a$b"), ("$x", "$y"), ("k", "_1"), ("k", "$1")])
def test_names_with_special_characters(tools: Toolchain, old: str, new: str) -> None:
    after = module(old).rename_entries({old: new})
    assert (after.entries, after.parameters(new)) == ((new,), (f"{new}_param_0",))
    assert assembled_kernels(tools, after) == (new,)


def test_two_names_are_swapped() -> None:
    before = Ptx(HEADER + kernel("a", "mov.u64 %rd1, b;\nret;") + kernel("b", parameters=2))
    after = before.rename_entries({"a": "b", "b": "a"})
    assert after.entries == ("b", "a")
    assert "mov.u64 %rd1, a;" in after.text
    assert (after.parameters("b"), after.parameters("a")) == (("b_param_0",), ("a_param_0", "a_param_1"))
    assert after.rename_entries({"a": "b", "b": "a"}).text == before.text


def test_the_same_name_is_no_change() -> None:
    ptx = module("a", "b")
    assert ptx.rename_entries({"a": "a"}) is ptx
    assert ptx.rename_entries({}) is ptx
    assert ptx.rename_entries({"a": "a", "b": "c"}).entries == ("a", "c")


@pytest.mark.parametrize(
    "names, message",
    [
        ({"a": "b"}, "^cannot rename 'a' to 'b': the module already has a symbol of that name$"),
        ({"a": "b_param_0"}, "already has a symbol"),
        ({"a": "helper"}, "already has a symbol"),
        ({"a": "c", "b": "c"}, "^two symbols would both become 'c'; give each its own name$"),
        ({"a": "WARP_SZ"}, "^'WARP_SZ' is predefined in PTX; choose another name$"),
        ({"a": "1"}, r"^'1' is not a PTX identifier: letters, digits, _ and \$, not starting with a digit$"),
        ({"a": "1a"}, "not a PTX identifier"),
        ({"a": "a b"}, "not a PTX identifier"),
        ({"a": "a-b"}, "not a PTX identifier"),
        ({"a": "kernel\u00e9"}, "not a PTX identifier"),
        ({"a": "a.b"}, "not a PTX identifier"),
        ({"a": "%a"}, "not a PTX identifier"),
        ({"a": ""}, "not a PTX identifier"),
        ({"a": "_"}, "not a PTX identifier"),
        ({"a": "$"}, "not a PTX identifier"),
        ({"a": "x\n"}, "not a PTX identifier"),
        ({"x": "y"}, "no entry 'x'"),
        ({"helper": "y"}, "no entry 'helper'"),
    ],
)
def test_name_that_is_taken_or_impossible(names: dict[str, str], message: str) -> None:
    ptx = Ptx(module("a", "b").text + ".func helper() { ret; }\n")
    with pytest.raises(PtxError, match=message):
        ptx.rename_entries(names)


def test_substitute_of_an_unknown_symbol_is_an_error() -> None:
    with pytest.raises(PtxError, match=r"^no symbol 'x' in the module; entries: a$"):
        module("a").substitute({"x": "y"})


def test_substitute_renames_functions_too() -> None:
    text = HEADER + ".func helper() { ret; }\n" + kernel("k", "call helper;\nret;")
    after = Ptx(text).substitute({"helper": "other"})
    assert after.text == text.replace("helper", "other")
    assert after.functions == ("other",)


# --- properties ----------------------------------------------------------------------------------

NAMES = ("add", "ret", "exit", "call", "foo", "foo_bar", "foo_param_0", "reg", "debug", "sm_90a", "$k", "_x1", "b32")
LINES = (
    "add.s32 %{n}, %r1, 1;",
    "ret;",
    "@%p1 exit;",
    "$L__{n}: ret;",
    "// {n} {m}",
    "/* {n} */ mov.u64 %rd1, {n};",
    "/* {n}\n {m}_param_0 */",
    '.pragma "{n} {m}";',
    '.file 1 "{n}//{m}"',
    ".loc 1 2 3 // {n}.py:2:3",
    "ld.param.u64 %rd1, [{n}_param_0+8];",
    "call.uni {n}, (%rd1);",
    "mov.u64 %rd1, {m};",
    "{{ call {m}; }}",
    ".b8 97 // {n}",
    "xx{n}: {n}$: add.{n} %{m};",
)


@st.composite
def modules(draw: st.DrawFn) -> Ptx:
    entries = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    text = HEADER
    for entry in entries:
        used = st.tuples(st.sampled_from(LINES), st.sampled_from(entries), st.sampled_from(NAMES))
        body = "\n".join(line.format(n=n, m=m) for line, n, m in draw(st.lists(used, max_size=8)))
        text += kernel(entry, body, parameters=draw(st.integers(0, 3)))
    return Ptx(text)


@given(ptx=modules(), data=st.data())
@settings(max_examples=200)
def test_rename_there_and_back_is_the_identity(ptx: Ptx, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(ptx.entries), min_size=1, unique=True))
    there = {name: f"renamed_{i}" for i, name in enumerate(chosen)}
    after = ptx.rename_entries(there)
    assert after.entries == tuple(there.get(name, name) for name in ptx.entries)
    assert after.rename_entries({new: old for old, new in there.items()}).text == ptx.text
    allowed = set()
    for old, new in there.items():
        allowed |= {(("word", old), ("word", new))}
        allowed |= {(("word", f"{old}_param_{i}"), ("word", f"{new}_param_{i}")) for i in range(3)}
    assert changed_tokens(ptx, after) <= allowed
    code = "".join(token for kind, token in tokens(after.text) if kind not in ("comment", "string"))
    for old in there:
        assert not re.search(rf"(\.entry |mov\.u64 %rd1, |call |call\.uni ){re.escape(old)}(?![\w$])", code)


# --- hard cases ----------------------------------------------------------------------------------


# A statement may follow a directive on its line, and lines may end with CR.
ONE_LINE = (
    ".version 8.7 .target sm_90a .address_size 64 .visible .entry k(.param .u64 k_param_0) .maxntid 128 "
    "{ .reg .b64 %rd<3>; .loc 1 1 1 ld.param.u64 %rd1, [k_param_0]; mov.u64 %rd2, k; ret; } "
    '.file 1 "a.c" .visible.entry l() { ret; } .weak .entry m.maxntid 1 { .loc 1 1 1 ret; }'
)


@pytest.mark.parametrize("end", [" ", "\n", "\r\n", "\r"])
def test_lines_mean_nothing(tools: Toolchain, end: str) -> None:
    ptx = Ptx(ONE_LINE.replace(" ", end).replace(f".version{end}", ".version "))  # ptxas wants these on one line
    assert (ptx.entries, ptx.parameters("k")) == (("k", "l", "m"), ("k_param_0",))
    after = ptx.rename_entries({"k": "new", "m": "n"})
    assert after.text == re.sub(r"\bm\b", "n", re.sub(r"\bk(?=\b|_)", "new", ptx.text))
    assert sorted(assembled_kernels(tools, after)) == ["l", "n", "new"]


def test_a_comment_ends_with_a_line_feed_only(tools: Toolchain) -> None:
    text = (HEADER + "// a comment\r.visible .entry hidden() { this is no PTX }\n" + kernel("k")).replace(
        "\n}", "\r\n}"
    )
    assert Ptx(text).entries == ("k",)
    assert assembled_kernels(tools, Ptx(text)) == ("k",)


def test_a_string_ends_with_the_next_quote(tools: Toolchain) -> None:
    ptx = Ptx(HEADER + '.file 1 "a\n.entry no() { ret; }\\"\n' + kernel("k"))
    assert ptx.entries == ("k",)
    assert assembled_kernels(tools, ptx) == ("k",)


def test_tokeniser_agrees_with_ptxas_about_comments(tools: Toolchain, tmp_path: Path) -> None:
    """ptxas reads comments and strings as the tests above do."""
    source = tmp_path / "k.ptx"
    source.write_text(HEADER + kernel("k", '/* // */ // /*\n.pragma "/* k // k";\n/* " */ ret; // */'))
    done = subprocess.run(
        [tools.ptxas.path, "-arch=sm_90a", source, "-o", tmp_path / "k.cubin"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
