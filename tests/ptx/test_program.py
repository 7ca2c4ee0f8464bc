"""A module taken apart and written again is the same program: ptxas makes the same code of both."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import wrong_code_kernels
from ptx_modules import HEADER, kernel
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Item, Program, parameter_name, read_program, renumbered
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import Assembled, assemble

BLOCKS = """.reg .b32 %r<4>; .reg .pred p;
ld.param.u64 %rd1, [k_param_0];
mov.u32 %r1, 5;
L: { .reg .b32 %r<2>; .reg .pred p; .local .align 4 .b8 room[8];
  mov.u32 %r1, %tid.x; // hides the other one
  st.local.b32 [ room + 0 ], %r1;
  ld.local.b32 %r0, [room+4];
  setp.gt.u32 p, %r0, 3;
  @p bra DONE;
  { mov.u32 %r1, 7; bra DONE; DONE: st.global.b32 [%rd1+8], %r1; }
  DONE: st.global.v2.b32 [%rd1+16], {%r0, %r1}; }
setp.eq.u32 p, %r1, 5;
@!p bra.uni L;
.pragma "nounroll";
st.global.b32 [%rd1], %r1;
ret;"""


def code_of(ptx: Ptx) -> list[bytes]:
    made = assemble(find_ptxas(), ptx, [])
    assert isinstance(made, Assembled), made.summary
    return [made.cubin.text(entry) for entry in ptx.entries]


def triton_text(name: str) -> Callable[[], str]:
    return lambda: str(getattr(wrong_code_kernels, f"compile_{name}")().asm["ptx"])


@pytest.mark.parametrize(
    "read",
    [
        (GOLDEN / "triton.sm_90.ptx").read_text,
        triton_text("quantize_rows"),
        triton_text("hashed_softmax"),
        lambda: HEADER + kernel("k", BLOCKS),
        (GOLDEN / "nvcc_debug.sm_90.ptx").read_text,
    ],
    ids=["triton", "quantize_rows", "hashed_softmax", "blocks", "nvcc"],
)
def test_the_code_is_the_same(read: Callable[[], str], triton_cache: Any) -> None:
    ptx = Ptx(read())
    text = read_program(ptx).text
    assert not any(word in text for word in ("//", ".loc\t", ".file", ".section", "debug"))
    if "debug" in ptx.tokens.options:  # then ptxas makes other code
        ptx = Ptx(re.sub(r"(\.target \w+), debug", r"\1", ptx.text).partition("\t.file")[0])
    assert code_of(Ptx(text)) == code_of(ptx)


def test_written_again_it_stays() -> None:
    text = read_program(Ptx(HEADER + kernel("k", BLOCKS))).text
    assert read_program(Ptx(text)).text == text


def test_names_of_inner_blocks_become_names_of_their_own() -> None:
    (function,) = read_program(Ptx(HEADER + kernel("k", BLOCKS))).functions
    lines = [item.text.strip() for item in function.items]
    outer = next(line for line in lines if line.startswith("mov.u32") and line.endswith(", 5;")).split()[1]
    inner = next(line for line in lines if "%tid.x" in line).split()[1]
    assert outer != inner
    assert lines[-2] == f"st.global.b32 [%rd0], {outer.rstrip(',')};"
    assert len({line for line in lines if line.endswith(":")}) == 3
    assert '.pragma "nounroll";' in lines


def test_functions_and_declarations_stay() -> None:
    program = read_program(Ptx((GOLDEN / "nvcc_debug.sm_90.ptx").read_text()))
    assert [function.name for function in program.functions] == list(
        Ptx(program.text).functions + Ptx(program.text).entries
    )
    square = program.functions[0]
    assert (square.linkage, square.is_entry) == (".visible .func (.param .b32 func_retval0)", False)
    assert [parameter_name(text) for text in square.parameters or ()] == ["_Z6squaref_param_0"]


def test_a_directive_of_the_header_is_kept_by_itself() -> None:
    text = HEADER + kernel("k").replace("\n{", "\n.reqntid 128, 1, 1 .minnctapersm 2\n{", 1)
    (function,) = read_program(Ptx(text)).functions
    assert function.directives == (".reqntid 128, 1, 1", ".minnctapersm 2")


@pytest.mark.parametrize("body", ["12 34;", ".reg .b99 x;"])
def test_what_cannot_be_read_is_an_error(body: str) -> None:
    with pytest.raises(PtxError, match="k: cannot read"):
        read_program(Ptx(HEADER + kernel("k", body)))


def test_renumbered_registers_have_no_gaps() -> None:
    (function,) = read_program(Ptx(HEADER + kernel("k", BLOCKS))).functions
    kept = replace(function, items=function.items[2:])
    text = Program("8.4", "sm_90a", (), (), (renumbered(kept),)).text
    for prefix in ("r", "rd", "p"):
        used = {int(number) for number in re.findall(rf"%{prefix}(\d+)\b", text)}
        assert used == set(range(len(used)))
    assert Item(label="L0") in renumbered(kept).items
