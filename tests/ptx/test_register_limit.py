"""The rewrite that limits registers: on the text, and what ptxas makes of it."""

from __future__ import annotations

import pytest
from ptx_modules import HEADER

from tritonhook.errors import PtxError
from tritonhook.lab.kernels.families import family
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import RegisterLimit
from tritonhook.ptxas.toolchain import Toolchain

MODULE = Ptx(
    HEADER
    + """.func helper() { ret; }
.visible .entry declared(.param .u64 a);
.visible .entry first(.param .u64 a) .reqntid 128 // .maxnreg 7 {
{ ret; }
.visible .entry second()
.maxnreg  40 .maxntid 64
{ ret; }
"""
)


def test_each_entry_with_a_body_gets_the_limit_and_nothing_else_changes() -> None:
    after = RegisterLimit(96).apply(MODULE)
    assert after.text.count(".maxnreg 96") == 2 and ".maxnreg  40" not in after.text
    plain = after.text.replace(".maxnreg 96 {", "{").replace(".maxnreg 96 .max", ".maxnreg  40 .max")
    assert plain == MODULE.text
    assert RegisterLimit(96).apply(after) is after


@pytest.mark.parametrize("registers", [0, 15, 256])
def test_what_is_no_limit(registers: int) -> None:
    with pytest.raises(PtxError, match=f"maxnreg {registers}: give a number from 16 to 255"):
        RegisterLimit(registers).apply(MODULE)


def test_ptxas_holds_the_code_to_it(tools: Toolchain) -> None:
    ptx = family("mma_f16").ptx("loop", "sm_90a", "k")
    used = [
        tools.assemble_or_raise(each).cubin.resources["k"].registers for each in (ptx, RegisterLimit(32).apply(ptx))
    ]
    assert used[0] > 32 >= used[1]


def test_keys_tell_limits_apart() -> None:
    assert RegisterLimit(96).key != RegisterLimit(128).key
