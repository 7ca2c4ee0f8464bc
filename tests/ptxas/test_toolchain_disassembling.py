"""Disassembling cubins with a real nvdisasm, and with scripts that fail."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Instruction, Sass, words_of
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptxas.tool import Tool, available_nvdisasm
from tritonhook.ptxas.toolchain import Toolchain, count_live_registers, list_words, run_nvdisasm

MakeTool = Callable[..., Tool]


@pytest.mark.parametrize("name", ["sm_80.module", "sm_90a.module", "sm_100a.tcgen05.cutlass"])
def test_all_kernels_are_disassembled_or_only_those_wanted(tools: Toolchain, name: str) -> None:
    cubin = Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes())
    code = tools.disassemble(cubin)
    assert {k: len(s.instructions) for k, s in code.items()} == {k: len(cubin.text(k)) // 16 for k in cubin.kernels}
    for kernel in cubin.kernels:
        assert tools.disassemble(cubin, [kernel]) == {kernel: code[kernel]}
    nameless = replace(cubin, symbols={})  # as in a damaged image: then nvdisasm prints all
    assert tools.disassemble(nameless, cubin.kernels[:1]) == {cubin.kernels[0]: code[cubin.kernels[0]]}


def test_nvdisasm_that_fails_is_a_tool_error(make_tool: MakeTool) -> None:
    for body, reason in (("echo broken >&2; exit 3", r"\(exit 3\): broken"), ("exit 0", r"\(no output\)")):
        with pytest.raises(ToolError, match=rf"nvdisasm 9\.8\.7 could not read the cubin {reason}"):
            run_nvdisasm(make_tool(body, name="nvdisasm"), b"\x7fELF")


def test_nvdisasm_that_prints_something_else_is_a_cubin_error(tools: Toolchain, make_tool: MakeTool) -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_80.exp.plain.cubin").read_bytes())
    with pytest.raises(CubinError, match="unknown form"):
        Toolchain(tools.ptxas, make_tool("echo hello")).disassemble(cubin)


def test_instructions_of_several_kernels_are_read_once_and_stand_in_each_at_their_place(tools: Toolchain) -> None:
    """Behind each other, in any order: a target that counts from the instruction moves with it."""
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes())
    words = [word for kernel in cubin.kernels for word in words_of(cubin.text(kernel))]
    listed, backwards = (list_words(tools.nvdisasm, "sm_90a", some) for some in (words, words[::-1]))
    assert len(listed) < len(words)
    moved = [one for word, one in listed.items() if one.at(0) != backwards[word].at(0)]
    assert moved == []
    targets = {one.operands for one in listed.values() if one.opcode == "BRA"}
    assert targets != {one.operands for one in backwards.values() if one.opcode == "BRA"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo '[{},[]]'", "0 instructions"),
        ("echo ' Illegal instruction ' >&2; echo '[{},[]]'", "Illegal instruction"),
        ("echo text", "Expecting value: line 1 column 1 (char 0)"),
        ("echo '[{},[{}]]'", "'sass-instructions'"),
    ],
)
def test_code_that_cannot_be_listed_is_an_error_with_its_reason(make_tool: MakeTool, body: str, reason: str) -> None:
    padding = "#" * (1 << 20)  # as large as a program whose answers are kept
    tool = make_tool(f'[ "$1 $2 $3" = "-json --binary SM90a" ] && {body}\nexit\n{padding}', name="nvdisasm")
    for _ in range(2):
        with pytest.raises(ToolError) as caught:
            list_words(tool, "sm_90a", [bytes(16)])
        message = str(caught.value)
        assert message.startswith(f"nvdisasm 9.8.7 could not read code for sm_90a ({reason}); `pip install -U ")
    assert list_words(tool, "sm_90a", []) == {}


def _opcodes_and_loops(sass: Sass) -> tuple[object, ...]:
    return sass.opcode_counts(), sass.loops, sass.blocks, [i.control for i in sass.instructions]


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_many_kernels_are_disassembled_by_few_runs_as_each_image_alone(
    tools: Toolchain, make_tool: MakeTool, step: int
) -> None:
    images = [Cubin.from_bytes(path.read_bytes()) for path in sorted(GOLDEN.glob("*.cubin"))[::step]]
    kernels = [(cubin, kernel) for cubin in images for kernel in cubin.kernels]
    runs = make_tool(f'echo run >> "$0.log"; exec {shlex.quote(str(tools.nvdisasm.path))} "$@"', name="nvdisasm")
    found = Toolchain(tools.ptxas, runs).disassemble_many(kernels, workers=2)
    assert len(runs.path.with_name("nvdisasm.log").read_text().splitlines()) < len(kernels) / 2
    alone = [sass for cubin in images for sass in tools.disassemble(cubin).values()]
    for (_, kernel), sass, own in zip(kernels, found, alone, strict=True):
        assert (sass.kernel, own.kernel, _opcodes_and_loops(sass)) == (kernel, kernel, _opcodes_and_loops(own))
    assert any(sass.loops for sass in found[1:])  # behind other code, where targets of branches are shifted


def test_one_damaged_kernel_among_many_is_named(tools: Toolchain, make_tool: MakeTool) -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes())
    tool = make_tool('case "$*" in *--binary*) exit 3;; *) echo "[{},[]]";; esac', name="nvdisasm")
    with pytest.raises(CubinError, match=f"no instructions for '{cubin.kernels[0]}'"):
        Toolchain(tools.ptxas, tool).disassemble_many([(cubin, kernel) for kernel in cubin.kernels])
    failing = make_tool("echo Illegal instruction >&2; exit 3", name="nvdisasm")
    with pytest.raises(ToolError, match=rf"^{cubin.kernels[0]} sm_90: .*Illegal instruction"):
        Toolchain(tools.ptxas, failing).disassemble_many([(cubin, kernel) for kernel in cubin.kernels])


def test_ctrl_c_ends_the_reading_of_many_kernels(tools: Toolchain, make_tool: MakeTool) -> None:
    """It reaches nvdisasm too, which must not be started again for each kernel."""
    cubin = Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes())
    tool = make_tool('echo run >> "$0.log"; kill -INT $$', name="nvdisasm")
    with pytest.raises(KeyboardInterrupt):
        Toolchain(tools.ptxas, tool).disassemble_many([(cubin, kernel) for kernel in cubin.kernels])
    assert tool.path.with_name("nvdisasm.log").read_text() == "run\n"


@pytest.mark.parametrize("name", ["sm_100a.tcgen05.plain", "sm_90a.module"])
def test_live_registers_are_counted_for_each_instruction_of_a_kernel(
    tools: Toolchain, make_tool: MakeTool, name: str
) -> None:
    """The second image has several kernels, and is of ptxas 12.8: nvdisasm 13.5 says nothing of it, Triton's does."""
    cubin = Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes())
    silent = make_tool("exit 1", name="nvdisasm")
    for kernel, sass in tools.disassemble(cubin).items():
        live = count_live_registers([silent, *available_nvdisasm()], cubin.data, sass)
        if live is None:
            pytest.skip("needs Triton's nvdisasm")
        peak, registers = max(live), cubin.resources[kernel].registers
        assert len(live) == len(sass.instructions) and peak > 0 and registers is not None
        assert peak <= registers <= peak + 16  # ptxas rounds up, and leaves holes
    longer = Sass(sass.kernel, (*sass.instructions, sass.instructions[0]))
    assert count_live_registers([silent], cubin.data, sass) is None
    assert count_live_registers(available_nvdisasm(), cubin.data, longer) is None


LISTING = """\
.headerflags @"EF_CUDA_SM90"
\t.section\t.text.other,"ax",@progbits
        /*0000*/  MOV R1, R2 ;  // |   9   |   1   |
\t.section\t.text.k,"ax",@progbits
.text.k:  // |  5  |
        /*0000*/  MOV R1, R2 ;  // |   7   |   1   |
        /*0010*/  EXIT ;
        /*0010*/  EXIT ;  // |       |   2   |
.L_1:
\t.section\t.text.k2,"ax",@progbits
        /*0020*/  EXIT ;  // |   3   |       |
"""


@pytest.mark.parametrize(
    ("opcodes", "live"),
    [
        ("EXIT NOP NOP", (7, 0, 0)),
        ("MOV EXIT", (7, 0)),
        ("MOV EXIT NOP", (7, 0, 0)),
        ("MOV MOV EXIT NOP", None),
        ("NOP NOP", None),
    ],
)
def test_live_registers_are_read_from_the_listing_of_one_kernel(
    make_tool: MakeTool, opcodes: str, live: tuple[int, ...] | None
) -> None:
    """An empty column is 0, as is a NOP at the end, which the listing leaves out."""
    given = enumerate(opcodes.split())
    sass = Sass("k", tuple(Instruction(16 * number, "", opcode, "", 0) for number, opcode in given))
    words = '[ "$1 $2" = "--life-range-mode count" ] || exit 3'
    silent, listing = make_tool("", name="silent"), make_tool(f"{words}; cat <<'END'\n{LISTING}END", name="nvdisasm")
    assert count_live_registers([silent, listing], b"", sass) == live
    shifted = LISTING.replace("/*0000*/", "/*0020*/")
    broken = make_tool(f"cat <<'END'\n{shifted}END", name="broken")
    assert count_live_registers([broken], b"", sass) is None
