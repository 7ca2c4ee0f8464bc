"""Rewrites that put `.pragma "mma_throughput"` or `.maxnreg` into entries: on the text, and what ptxas makes of it."""

from __future__ import annotations

import pytest
from at_hand import toolchain_at_hand
from mma_loop import mma_loop
from ptx_checks import Case, cases, changed

from tritonhook.errors import PtxError
from tritonhook.lab.published_table import condition
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import RegisterLimit, ThroughputPragma, entries_with_pragma
from tritonhook.ptxas.toolchain import AssembleError, Toolchain

MODULE = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry first(.param .u64 first_param_0) { ret; }
.visible .entry second() { ret; }
"""
REWRITES = {repr(one): one for one in (ThroughputPragma(), ThroughputPragma(("second",)), RegisterLimit(96))}


def module(text: str = MODULE) -> Ptx:
    return Ptx(text)


@pytest.mark.parametrize("case", cases("entries"), ids=lambda case: case.name)
def test_each_entry_with_a_body_gets_it_and_nothing_else_changes(case: Case) -> None:
    after = REWRITES[case.name].apply(Ptx(case.ptx))
    case.compare(changed(case.ptx, after.text))
    assert REWRITES[case.name].apply(after) is after


def test_what_is_there_is_told() -> None:
    once = ThroughputPragma().apply(module())
    assert ThroughputPragma().remarks(once) == ('first, second: .pragma "mma_throughput" is there already',)
    assert entries_with_pragma(ThroughputPragma(("second",)).apply(module())) == ("second",)
    assert entries_with_pragma(module(MODULE + '.func tail() { .pragma "mma_throughput"; ret; }')) == ()


def test_keys_tell_rewrites_apart() -> None:
    """They are part of every cache key."""
    keys = {ThroughputPragma(entries).key for entries in (None, ("a",), ("b",), ("a", "b"))}
    assert len(keys) == 4 and ThroughputPragma(("b", "a")).key == ThroughputPragma(("a", "b")).key
    assert RegisterLimit(96).key != RegisterLimit(128).key


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
    assert "--ptxas 13.5.37" in (ThroughputPragma().why_not("13.2.78") or "")


# --- what ptxas makes of it ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def new_tools() -> Toolchain:
    return toolchain_at_hand()


@pytest.mark.parametrize(("name", "arch"), [("fma", "sm_80"), ("fma", "sm_90a"), ("loop", "sm_100a")])
def test_the_pragma_gives_the_code_that_the_name_gives(new_tools: Toolchain, name: str, arch: str) -> None:
    plain = condition(name).ptx("cutlasz_kernel", arch, "9.3")
    named = plain.rename_entries({"cutlasz_kernel": "cutlass_kernel"})
    modules = (plain, named, ThroughputPragma().apply(plain))
    cubins = [new_tools.assemble_or_raise(ptx).cubin for ptx in modules]
    text, by_name, by_pragma = (cubin.text(cubin.only_kernel()) for cubin in cubins)
    assert by_pragma == by_name != text


def test_an_older_ptxas_refuses_it(tools: Toolchain) -> None:
    with pytest.raises(AssembleError, match="PTX"):
        tools.assemble_or_raise(ThroughputPragma().apply(module()))


@pytest.mark.parametrize("registers", [0, 15, 256])
def test_what_is_no_limit_of_registers(registers: int) -> None:
    with pytest.raises(PtxError, match=f"maxnreg {registers}: give a number from 16 to 255"):
        RegisterLimit(registers).apply(module())


def test_ptxas_holds_the_code_to_a_limit_of_registers(tools: Toolchain) -> None:
    ptx = mma_loop("k")
    sides = ptx, RegisterLimit(32).apply(ptx)
    used = [tools.assemble_or_raise(each).cubin.resources["k"].registers for each in sides]
    assert used[0] > 32 >= used[1]
