"""The rewrite that puts `.pragma "mma_throughput"` into entries: on the text, and what ptxas makes of it."""

from __future__ import annotations

import pytest
from at_hand import toolchain_at_hand

from tritonhook.errors import PtxError
from tritonhook.lab.kernels.families import family
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import ThroughputPragma, entries_with_pragma
from tritonhook.ptxas.toolchain import AssembleError, Toolchain

DIRECTIVE = '.pragma "mma_throughput";'
MODULE = """.version 8.7
.target sm_90a // not .target sm_50
.address_size 64
.extern .func (.param .b32 r) helper(.param .b32 x);
.visible .entry first(.param .u64 first_param_0) .reqntid 128
{ // { .pragma "mma_throughput"; }
    .reg .b32 %r<4>;
    ret;
}
.visible .entry second()
.maxntid 64 { /* " */ ret; }
"""


def module(text: str = MODULE) -> Ptx:
    return Ptx(text)


def test_every_entry_gets_it_as_the_first_statement_of_its_body() -> None:
    after = ThroughputPragma().apply(module())
    assert f'.reqntid 128\n{{ {DIRECTIVE} // {{ .pragma "mma_throughput"; }}\n' in after.text
    assert f'.maxntid 64 {{ {DIRECTIVE} /* " */ ret; }}' in after.text
    assert entries_with_pragma(after) == after.entries == ("first", "second")


def test_nothing_else_changes_but_the_version() -> None:
    after = ThroughputPragma().apply(module())
    assert (after.version, after.target) == ("9.3", "sm_90a")
    assert after.text.replace(f"{{ {DIRECTIVE} /", "{ /").replace("9.3", "8.7") == MODULE
    assert after.text.count("\n") == MODULE.count("\n"), "line numbers stay"


def test_a_newer_version_stays() -> None:
    assert ThroughputPragma().apply(module(MODULE.replace("8.7", "9.10"))).version == "9.10"


def test_a_second_time_changes_nothing() -> None:
    once = ThroughputPragma().apply(module())
    assert ThroughputPragma().apply(once) is once
    assert ThroughputPragma().remarks(once) == ('first, second: .pragma "mma_throughput" is there already',)


def test_only_the_entries_that_are_wanted() -> None:
    after = ThroughputPragma(("second",)).apply(module())
    assert entries_with_pragma(after) == ("second",)
    both = ThroughputPragma().apply(after)
    assert entries_with_pragma(both) == ("first", "second")
    assert both.text.count(DIRECTIVE) == 3, "one of them stands in a comment"


def test_keys_tell_the_entries_apart() -> None:
    keys = {ThroughputPragma(entries).key for entries in (None, ("a",), ("b",), ("a", "b"))}
    assert len(keys) == 4
    assert ThroughputPragma(("b", "a")).key == ThroughputPragma(("a", "b")).key


def test_a_list_of_pragmas_counts_and_a_functions_own_does_not() -> None:
    listed = module(MODULE.replace("ret; }", 'ret; .pragma "nounroll", "mma_throughput"; }'))
    assert entries_with_pragma(listed) == ("second",)
    function = module(MODULE + '.func tail() { .pragma "mma_throughput"; ret; }\n')
    assert entries_with_pragma(function) == ()


def test_a_declaration_is_left_out_or_named() -> None:
    declared = module(MODULE + ".visible .entry third(.param .u64 third_param_0);\n")
    assert entries_with_pragma(ThroughputPragma().apply(declared)) == ("first", "second")
    assert ThroughputPragma().remarks(declared)[1:] == ("third: only declared here, without a body for the pragma",)
    with pytest.raises(PtxError, match="'third' is only declared here"):
        ThroughputPragma(("third",)).apply(declared)


def test_an_entry_that_is_not_there() -> None:
    with pytest.raises(PtxError, match="no entry 'fourth'; the module has: first, second"):
        ThroughputPragma(("fourth",)).apply(module())


def test_a_target_that_no_new_ptxas_takes() -> None:
    with pytest.raises(PtxError, match='sm_70.*oldest target is sm_75; give the entry a name with "cutlass"'):
        ThroughputPragma().apply(module(MODULE.replace("sm_90a", "sm_70")))


def test_an_older_ptxas_is_told_with_both_remedies() -> None:
    assert [ThroughputPragma().why_not(version) for version in ("13.3.5", "13.10.1", "14.0.2")] == [None] * 3
    why = ThroughputPragma().why_not("13.2.78")
    assert why is not None and why.startswith("mma-throughput needs ptxas 13.3 or newer, and this is 13.2.78; ")
    for remedy in ("ptxas='13.5.37'", "--ptxas 13.5.37", "rename='cutlass_'", "--prefix cutlass_)"):
        assert remedy in why


# --- what ptxas makes of it ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def new_tools() -> Toolchain:
    return toolchain_at_hand()


@pytest.mark.parametrize(("name", "arch"), [("mma_f16", "sm_80"), ("fma", "sm_90a"), ("tcgen05_f16", "sm_100a")])
def test_the_pragma_gives_the_code_that_the_name_gives(new_tools: Toolchain, name: str, arch: str) -> None:
    plain = family(name).ptx("loop", arch, "cutlasz_kernel", "9.3")
    named = plain.rename_entries({"cutlasz_kernel": "cutlass_kernel"})
    modules = (plain, named, ThroughputPragma().apply(plain))
    cubins = [new_tools.assemble_or_raise(ptx).cubin for ptx in modules]
    text, by_name, by_pragma = (cubin.text(cubin.only_kernel()) for cubin in cubins)
    assert by_pragma == by_name != text


def test_an_older_ptxas_refuses_it(tools: Toolchain) -> None:
    with pytest.raises(AssembleError, match="PTX"):
        tools.assemble_or_raise(ThroughputPragma().apply(module()))
