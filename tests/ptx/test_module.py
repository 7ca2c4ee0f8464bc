"""Reading a PTX module: version, target, entries, parameters; and what is no PTX."""

from __future__ import annotations

import re

import pytest
from ptx_modules import HEADER, kernel, module
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx

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
    "data, error",
    [
        (b"", "not PTX: no .version directive in the text (0 characters)"),
        (b"\0", "not PTX: no .version directive in the text (0 characters)"),
        (b".version 8.7\n.address_size 64\n", "not PTX: no .target directive in the text (30 characters)"),
        (b".target sm_90a\n", "not PTX: no .version directive in the text (15 characters)"),
        (b"// .version 8.7\n// .target sm_90a\n", "not PTX: no .version directive in the text (34 characters)"),
        (b"define void @add() {}" * 100, "not PTX: no .version directive in the text (2,100 characters)"),
        (b".version 8.7\n.target sm_90a // \xff\n", "not PTX: byte 31 is not UTF-8 text"),
        (b"\x7fELF", "an ELF image, not PTX; give the .ptx file, or use `tritonhook diff` on cubins"),
    ],
)
def test_what_is_not_ptx_is_an_error_that_says_why(data: bytes, error: str) -> None:
    for given, name in ((("kernel.ptx",), "kernel.ptx"), ((), "input")):
        with pytest.raises(PtxError) as caught:
            Ptx.from_bytes(data, *given)
        assert str(caught.value) == f"{name}: {error}"


@pytest.mark.parametrize(("name", "run"), [("a/k.py", "tritonhook run"), ("k.cu", "tritonhook run -- nvcc")])
def test_a_program_in_place_of_ptx_is_told_how_to_capture_it(name: str, run: str) -> None:
    with pytest.raises(PtxError) as caught:
        Ptx.from_bytes(b"x", name)
    why = "not PTX: no .version directive in the text (1 characters)"
    assert str(caught.value) == f"{name}: {why}; capture what it compiles: `{run} {name}`"


@pytest.mark.parametrize(
    "names, asked, message",
    [
        ((), None, "no .entry"),
        (("a", "b"), None, "2 entries (a, b); name one with --entry"),
        (("a", "b"), "c", "no entry 'c'; the module has: a, b"),
    ],
)
def test_only_entry_is_never_a_guess(names: tuple[str, ...], asked: str | None, message: str) -> None:
    with pytest.raises(PtxError, match=f"^{re.escape(message)}$"):
        module(*names).only_entry(asked)


def test_only_entry_of_one_and_by_name() -> None:
    assert module("a").only_entry() == "a"
    assert module("a", "b").only_entry("b") == "b"


def test_parameters_are_of_an_entrys_first_list() -> None:
    more = ".entry bare { ret; }\n.entry k(.param .u32 other) { ret; }\n.func f(.param .u32 x) { ret; }\n"
    ptx = Ptx(module("k").text + more)
    names = ("k", "bare", "f", "none")
    assert {name: ptx.parameters(name) for name in names} == {"k": ("k_param_0",), "bare": (), "f": (), "none": ()}


def test_uses_are_counted_in_code_only() -> None:
    ptx = Ptx(module("k", "l").text + "// k\n.global .b64 table[2] = {k, k};\n")
    assert (ptx.uses("k"), ptx.uses("k_param_0"), ptx.uses("k", "l"), ptx.uses("none"), ptx.uses()) == (3, 2, 4, 0, 0)
