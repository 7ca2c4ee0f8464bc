"""Reading a PTX module: version, target, entries, parameters; and what is no PTX."""

from __future__ import annotations

import re

import pytest
from ptx_modules import HEADER, kernel, module
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx import Ptx

TRITON_PTX = ("triton.sm_90.ptx", "triton.sm_100.ptx")


def test_module_says_version_target_entries_and_functions() -> None:
    text = (
        HEADER
        + ".extern .func (.param .b32 status) vprintf (.param .b64 a, .param .b64 b);\n"
        + ".func (.reg .b32 %out) helper(.reg .b32 %in)\n{\nret;\n}\n"
        + ".func no_result()\n{\nret;\n}\n"
        + kernel("first", parameters=3)
        + ".entry // a gap /* of comments\n /* and\n more */ second(\n) { ret; }\n"
        + ".weak .entry $third () { ret; }\n"
    )
    ptx = Ptx(text)
    assert (ptx.version, ptx.target) == ("8.7", "sm_90a")
    assert ptx.entries == ("first", "second", "$third")
    assert ptx.functions == ("vprintf", "helper", "no_result")
    assert ptx.parameters("first") == ("first_param_0", "first_param_1", "first_param_2")
    assert ptx.parameters("second") == ()


@pytest.mark.parametrize("name", TRITON_PTX)
def test_triton_module_is_read(name: str) -> None:
    ptx = Ptx.from_bytes((GOLDEN / name).read_bytes())
    expected = {"triton.sm_90.ptx": ("8.7", "sm_90a"), "triton.sm_100.ptx": ("8.8", "sm_100a")}[name]
    assert (ptx.version, ptx.target, ptx.entries, ptx.functions) == (*expected, ("add",), ())
    assert ptx.parameters("add") == tuple(f"add_param_{i}" for i in range(6))


@pytest.mark.parametrize(
    "listed, expected",
    [
        (".param .u64 .ptr .global .align 1 k_param_0", ("k_param_0",)),
        (".param .align 64 .b8 k_param_0[128], .param .u32 n", ("k_param_0", "n")),
        (".param .u64 k_param_0, // one, two\n .param .u32 k_param_1 /* a, b */", ("k_param_0", "k_param_1")),
        (".param .b32 $a, .param .b32 _b", ("$a", "_b")),
        ("", ()),
    ],
)
def test_parameters_in_order(listed: str, expected: tuple[str, ...]) -> None:
    ptx = Ptx(f"{HEADER}.visible .entry k({listed})\n{{ ret; }}")
    assert ptx.parameters("k") == expected


def test_entry_that_is_declared_and_defined_is_one_entry() -> None:
    assert Ptx(HEADER + ".extern .entry k(.param .u64 a);\n" + kernel("k")).entries == ("k",)


@pytest.mark.parametrize(
    "hidden",
    [
        "// .entry no()",
        "/* .entry no() */",
        "/*\n.entry no()\n*/",
        '.pragma ".entry no()";',
        "/* not closed .entry no(",
    ],
)
def test_entries_in_comments_and_strings_are_none(hidden: str) -> None:
    assert Ptx(HEADER + kernel("yes") + hidden).entries == ("yes",)


@pytest.mark.parametrize("ending", [b"", b"\0", b"\0\0\0"])
def test_bytes_that_end_with_nul_are_the_same_module(ending: bytes) -> None:
    assert Ptx.from_bytes(module("k").text.encode() + ending) == module("k")


@pytest.mark.parametrize(
    "data, words_of_the_error",
    [
        (b"", ("kernel.ptx", "no .version", "0 characters")),
        (b"\0", ("no .version",)),
        (b".version 8.7\n.address_size 64\n", ("no .target",)),
        (b".target sm_90a\n", ("no .version",)),
        (b"// .version 8.7\n// .target sm_90a\n", ("no .version",)),
        (b"define void @add() {}", ("no .version",)),
        (b".version 8.7\n.target sm_90a // \xff\n", ("byte 31", "UTF-8")),
        (b"\x7fELF\x02\x01\x01", ("ELF", "diff")),
    ],
)
def test_what_is_not_ptx_is_an_error_that_says_why(data: bytes, words_of_the_error: tuple[str, ...]) -> None:
    with pytest.raises(PtxError) as caught:
        Ptx.from_bytes(data, "kernel.ptx")
    for word in words_of_the_error:
        assert word in str(caught.value)
    assert str(caught.value).startswith("kernel.ptx: ")


@pytest.mark.parametrize(
    "names, asked, message",
    [((), None, "no .entry"), (("a", "b"), None, "2 entries (a, b)"), (("a", "b"), "c", "no entry 'c'.*a, b")],
)
def test_only_entry_is_never_a_guess(names: tuple[str, ...], asked: str | None, message: str) -> None:
    with pytest.raises(PtxError, match=re.escape(message).replace(r"\.\*", ".*")):
        module(*names).only_entry(asked)


def test_only_entry_of_one_and_by_name() -> None:
    assert module("a").only_entry() == "a"
    assert module("a", "b").only_entry("b") == "b"


def test_version_in_a_block_comment_is_none() -> None:
    assert Ptx("/*\n.version 1.0\n.target sm_10\n*/\n" + module("k").text).target == "sm_90a"


def test_header_on_one_line() -> None:
    assert Ptx(".version 8.7 .target sm_90a .address_size 64 .entry k() { ret; }").target == "sm_90a"


def test_comment_with_a_parenthesis_in_the_parameter_list() -> None:
    ptx = Ptx(HEADER + ".entry k(\n.param .u64 k_param_0, // (a)\n.param .u64 k_param_1\n)\n{ ret; }")
    assert ptx.parameters("k") == ("k_param_0", "k_param_1")


def test_a_long_run_of_comments_takes_no_time() -> None:
    """Given a header that a backtracking pattern would read for minutes."""
    with pytest.raises(PtxError, match="no .version directive"):
        Ptx(".version " + "/**/" * 5000 + "x\n.target sm_90a\n")
    assert Ptx(".version " + "/**/" * 5000 + "8.7\n.target sm_90a\n").version == "8.7"


def test_other_directives_are_the_only_change() -> None:
    before = module("k")
    after = before.with_directives("9.0", "sm_120a")
    assert (after.version, after.target) == ("9.0", "sm_120a")
    assert after.text == before.text.replace("8.7", "9.0").replace("sm_90a", "sm_120a")


def test_hash_is_of_the_text() -> None:
    assert module("a").sha256 == module("a").sha256
    assert module("a").sha256 != module("b").sha256
