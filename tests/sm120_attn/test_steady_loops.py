"""Steady loops, from instruction lists that look like what nvdisasm prints."""

import struct
from pathlib import Path

import pytest

from sm120_attn.verify import sass
from sm120_attn.verify.sass import Instruction, steady_loops

GOLDEN = Path(__file__).parents[1] / "golden"


def code(*lines: str) -> list[Instruction]:
    """ "@P0 BRA 0x10" and so on; a line "label:" names the next instruction, a "->label" goes to it."""
    at = {}
    kept: list[str] = []
    for line in lines:
        if line.endswith(":"):
            at[line[:-1]] = len(kept)
        else:
            kept.append(line)
    found = []
    for line in kept:
        predicate = ""
        if line.startswith("@"):
            predicate, line = line.split(" ", 1)
        opcode, _, operands = line.partition(" ")
        if "->" in operands:
            before, _, label = operands.partition("->")
            operands = f"{before}0x{at[label] * sass.INSTRUCTION_BYTES:x}"
        found.append(Instruction(predicate, opcode, operands))
    return found


STEP = ["LDSM.16.M88.4 R4,[R2]", *["HMMA.16816.F32.BF16 R8,R4,R6,R8"] * 4, "MUFU.EX2 R3,R3", "FFMA R1,R1,R1,R1", "NOP"]


def test_a_loop_is_counted_without_what_stands_before_and_after() -> None:
    # given
    listing = code("MOV R1,R2", *STEP, "loop:", *STEP, "@P0 BRA ->loop", *STEP, "EXIT")

    # when
    (loop,) = steady_loops(listing)

    # then
    assert loop.offset == 9 * 16
    assert (len(loop.instructions), loop.matrix, loop.fillers, loop.others) == (9, 4, 1, 4)
    assert (loop.opcodes["LDSM"], loop.opcodes["MUFU"], loop.opcodes["MOV"]) == (1, 1, 0)
    assert loop.matrix_opcode == "HMMA.16816.F32.BF16"


def test_a_spin_wait_does_not_make_its_loop_an_outer_one() -> None:
    listing = code(
        "loop:",
        "UIADD3 UR4,UR4,1,URZ",
        "wait:",
        "SYNCS.PHASECHK.TRANS64 P1,[UR4]",
        "@!P1 BRA ->wait",
        *STEP,
        "@P0 BRA ->loop",
        "EXIT",
    )
    (loop,) = steady_loops(listing)
    assert len(loop.instructions) == 12


def test_of_nested_loops_the_inner_one_is_steady() -> None:
    listing = code("outer:", *STEP, "inner:", *STEP, "@P0 BRA ->inner", "@P1 BRA ->outer", "EXIT")
    (loop,) = steady_loops(listing)
    assert len(loop.instructions) == 9


def test_a_masked_and_an_open_loop_are_two() -> None:
    listing = code(
        "a:", *STEP, "FSEL R1,R1,R2,P0", "@P0 BRA ->a", "@P3 BRA ->end", "b:", *STEP, "@P1 BRA ->b", "end:", "EXIT"
    )
    assert [len(loop.instructions) for loop in steady_loops(listing)] == [10, 9]


def test_a_loop_without_matrix_instructions_is_not_steady() -> None:
    assert steady_loops(code("a:", *["FFMA R1,R1,R1,R1"] * 20, "@P0 BRA ->a", "EXIT")) == ()


def test_a_slow_path_behind_the_end_belongs_to_its_loop() -> None:
    # ptxas puts it behind EXIT and jumps back: an edge backwards, but no loop of its own.
    listing = code(
        "loop:", *STEP, "@P2 BRA ->slow", "back:", "@P0 BRA ->loop", "EXIT", "slow:", "FMUL R1,R1,R1", "BRA ->back"
    )
    (loop,) = steady_loops(listing)
    assert loop.opcodes["FMUL"] == 1
    assert len(loop.instructions) == 12


def test_a_jump_back_into_the_middle_is_no_loop() -> None:
    # Entered in two places: nothing dominates, so that the numbers of a natural loop would mean nothing.
    listing = code("@P5 BRA ->middle", "top:", *STEP, "middle:", *STEP, "@P0 BRA ->top", "EXIT")
    assert steady_loops(listing) == ()


def test_a_condition_among_the_operands_falls_through() -> None:
    listing = code("loop:", *STEP, "BRA UP0,->loop", *STEP, "EXIT")
    assert len(steady_loops(listing)) == 1


def test_never_executed_instructions_are_fillers() -> None:
    listing = code("loop:", *STEP, "@!UPT UIADD3 UR4,URZ,URZ,URZ", "@P0 BRA ->loop", "EXIT")
    (loop,) = steady_loops(listing)
    assert (loop.fillers, loop.others) == (2, 4)


@pytest.mark.parametrize(
    ("name", "registers", "frame", "syscalls"),
    # The first is 8 bytes of stack for a TMA load made a driver call; figures of cuobjdump -res-usage.
    [("sm_120a.tensor_load.cluster.cubin", 24, 8, 1), ("sm_120a.tensor_load.cta.cubin", 4, 0, 0)],
)
def test_registers_stack_and_driver_calls_are_read_from_the_image(
    name: str, registers: int, frame: int, syscalls: int
) -> None:
    found = sass.read((GOLDEN / name).read_bytes())
    assert (found.registers, found.frame, found.syscalls) == (registers, frame, syscalls)


def test_what_is_no_cubin_is_said() -> None:
    with pytest.raises(sass.DisassembleError, match="no ELF header"):
        list(sass._sections(b"PK\x03\x04" + bytes(100)))
    with pytest.raises(sass.DisassembleError, match="could not read the cubin"):
        sass.read(b"\x7fELF" + struct.pack("<100x"))


def test_a_missing_nvdisasm_names_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM120_ATTN_NVDISASM", "/nowhere/nvdisasm")
    with pytest.raises(sass.DisassembleError, match="pip install nvidia-cuda-nvdisasm. Tried: /nowhere/nvdisasm"):
        sass.find_nvdisasm()
