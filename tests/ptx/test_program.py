"""A module taken apart and written again is the same program: ptxas makes the same code of both."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import wrong_code_kernels
from ptx_checks import cases
from ptx_modules import HEADER, kernel
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Item, Program, parameter_name, read_program, register_type, renumbered
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import Assembled, assemble

(CASE,) = cases("program")
BLOCKS = CASE.ptx.partition(".reg .f16x2")[0] + "ret;"  # what ptxas takes of it


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
        pytest.param(triton_text("quantize_rows"), marks=pytest.mark.nightly),
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


def test_each_instruction_is_written_in_one_form() -> None:
    text = HEADER + kernel("k", CASE.ptx)
    (function,) = read_program(Ptx(text)).functions
    first = text[: text.index(CASE.ptx)].count("\n") - 1
    read = [item for item in function.items if item.position >= 0]
    assert all(text[item.position :].startswith(item.opcode) for item in read)
    CASE.compare({text[: item.position].count("\n") - first: item.text.strip() for item in read})
    assert [item.text.strip() for item in function.items if item.opcode.startswith((".local", ".pragma"))] == [
        *(".local .align 4 .b8 room_1[8];", '.pragma "nounroll";')
    ]
    labels = [item.label for item in function.items if item.label]
    assert labels == ["L0", "L1", "L2"]


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


HEADS = """.version 8.7
.target sm_90a, texmode_independent , debug
.address_size 64
.global .b32 t[2] =
 {1, 2};
.func (.param .b32 o) f(.param .b32 i,
 .param .align 8 .b8 j[8]) ;
.func none
.noreturn { trap; }
"""
HEADS_WRITTEN = """.version 8.7
.target sm_90a, texmode_independent
.address_size 64
.global .b32 t[2] = {1, 2};
.func (.param .b32 o) f(.param .b32 i, .param .align 8 .b8 j[8]);
.func none
.noreturn
{
	trap;
}
.visible .entry k(.param .u64 k_param_0)
"""


def test_heads_are_written_in_one_form_and_registers_by_their_size() -> None:
    program = read_program(Ptx(HEADS + kernel("k", CASE.ptx)))
    assert program.text.startswith(HEADS_WRITTEN)
    sizes = ["pred %p<2>", "b8 %rb<1>", "b16 %rs<1>", "b32 %r<5>", "b64 %rd<2>", "b128 %rq<1>"]
    assert re.findall(r"\.reg \.(.*);", program.text) == sizes
    none, k = program.functions
    assert (none.parameters, none.directives, none.is_entry, k.is_entry) == (None, (".noreturn",), False, True)
    changed = replace(none, items=())
    assert program.with_function(changed).functions == (changed, k)
    assert [register_type(f"%{name}0") for name in ("p", "rb", "rq")] == ["pred", "b8", "b128"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("12\n 34;", "cannot read the statement '12 34'"),
        (".reg .b99 x;", "cannot read the registers '.b99 x'"),
        ("}\n.func f(.reg .b99 %r1) { ret;", "cannot read the registers '.b99 %r1'"),
    ],
)
def test_what_cannot_be_read_is_an_error(body: str, error: str) -> None:
    with pytest.raises(PtxError) as caught:
        read_program(Ptx(HEADER + kernel("k", body)))
    assert str(caught.value) == f"{'f' if 'func' in body else 'k'}: {error}"


@pytest.mark.parametrize("name", ["%x0", "r0", "%r", "%r0 "])
def test_a_name_of_no_register_is_an_error(name: str) -> None:
    with pytest.raises(PtxError, match=f"^'{name}' is not a register of a Program, e.g. %r0 or %rd1$"):
        register_type(name)


def test_renumbered_registers_have_no_gaps() -> None:
    (function,) = read_program(Ptx(HEADER + kernel("k", BLOCKS))).functions
    kept = replace(function, items=function.items[2:])
    text = Program("8.4", "sm_90a", (), (), (renumbered(kept),)).text
    for prefix in ("r", "rd", "p"):
        used = {int(number) for number in re.findall(rf"%{prefix}(\d+)\b", text)}
        assert used == set(range(len(used)))
    assert Item(label="L0") in renumbered(kept).items
