"""What the assembler makes of the kernels, pinned; and how it is printed. Nothing here runs on a GPU."""

import pytest
from repository import GOLDEN

from sm120_attn.config import Config
from sm120_attn.verify import cases
from tests.sm120_attn.support.pinned import ALL, all_loops, check_loops

pytest.importorskip("tritonhook.cubin.sass", reason="machine code is read with tritonhook")

from sm120_attn.verify.inspect import loops_over_tiles, read_code
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass

STEP = ["LDSM.16.M88.4", *["HMMA.16816.F32.BF16"] * 4, "MUFU.EX2", "FFMA", "NOP", "@!UPT UIADD3"]


def code(*lines: str) -> Sass:
    """Code of lines like "@P0 BRA -3"; the number is the distance of the target, in instructions."""
    found = []
    for index, line in enumerate(lines):
        predicate, _, rest = line.rpartition("@")[2].partition(" ") if line.startswith("@") else ("", "", line)
        opcode, _, operands = rest.partition(" ")
        if opcode == "BRA":
            operands = f"0x{(index + int(operands)) * INSTRUCTION_BYTES:x}"
        found.append(Instruction(index * INSTRUCTION_BYTES, f"@{predicate}" * bool(predicate), opcode, operands, 0))
    return Sass("kernel", tuple(found))


def test_a_loop_over_tiles_is_counted_without_the_code_around_it() -> None:
    (loop,) = loops_over_tiles(code("MOV", *STEP, *STEP, "@P0 BRA -9", *STEP, "EXIT"))
    assert (len(loop.instructions), loop.matrix, loop.fillers, loop.others) == (10, 4, 2, 4)
    assert (loop.opcodes["LDSM"], loop.opcodes["MUFU"], loop.opcodes["MOV"]) == (1, 1, 0)
    assert loop.matrix_opcode == "HMMA.16816.F32.BF16"


@pytest.mark.parametrize(
    ("name", "registers", "stack_bytes", "syscalls"),
    # The first has a TMA load that is a call of the driver, with 8 bytes of stack; figures of cuobjdump -res-usage.
    [("sm_120a.tensor_load.cluster.cubin", 24, 8, 1), ("sm_120a.tensor_load.cta.cubin", 4, 0, 0)],
)
def test_registers_stack_and_driver_calls_are_read(name: str, registers: int, stack_bytes: int, syscalls: int) -> None:
    found = read_code((GOLDEN / name).read_bytes())
    assert (found.registers, found.stack_bytes, found.syscalls) == (registers, stack_bytes, syscalls)


def test_bytes_that_are_no_cubin_are_refused() -> None:
    with pytest.raises(RuntimeError, match="not an ELF image"):
        read_code(b"PK\x03\x04" + bytes(100))


# --- with the DSL --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> dict:
    """As `inspect --arch sm_120a --json` prints it; the largest tiles at D64; both kernels with sinks. `make test`
    takes one, `make test-cute-matrix` all."""
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    from sm120_attn.verify import inspect

    chosen = list(inspect.configs(("sm_120a",), (64, 128), (False, True)))
    chosen += [cases.tiles_of(Config(arch="sm_120a", head_dim=64, causal=causal), 0) for causal in (False, True)]
    sinks = {"arch": "sm_120a", "causal": True, "sinks": True}
    chosen += [
        Config(**sinks),
        Config(**sinks, kernel="cp_async", head_dim=72, warps=4, stages_k=1, stages_v=1, q_in_registers=True),
    ]
    if not ALL:
        chosen = chosen[3:4]
    return inspect.report([inspect.inspect(config) for config in dict.fromkeys(chosen)])


def test_the_steady_loops_are_within_the_goal(report: dict) -> None:
    """At most 800 instructions per 256 HMMA at D128, and no spills. There is no goal for D64."""
    for loop in report["loops"]:
        assert loop["spills"] == loop["stack_bytes"] == loop["syscalls"] == 0, loop
        if "_d128_" in loop["kernel"]:
            assert loop["instructions_per_256_mma"] <= 800, loop


def test_the_kernels_use_tma_without_a_driver_call(report: dict) -> None:
    for kernel in report["kernels"]:
        assert kernel["syscalls"] == 0 and kernel["calls"] == 0, kernel["kernel"]
        if kernel["config"]["kernel"] == "tma":
            assert kernel["utmaldg"] > 0 and kernel["setmaxreg"] > 0, kernel["kernel"]
        assert kernel["shared_bytes"] <= 99 * 1024
        loops = [loop for loop in all_loops(report) if loop["kernel"] == kernel["kernel"]]
        assert kernel["loops_over_tiles"] == len(loops)
        assert sum(loop["steady"] for loop in loops) == 1


def test_the_steady_loops_are_the_pinned_ones(report: dict) -> None:
    check_loops(report, "loops.json")


def test_a_field_that_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    assert main(["inspect", "--set", "tile_n=100"]) == 2
    assert capsys.readouterr().err == "sm120_attn inspect: tile_n 100: must be 32, 64 or 128 keys\n"
    assert main(["inspect", "--set", "colour=red"]) == 2
    assert "must be FIELD=VALUE, and FIELD one of arch, dtype" in capsys.readouterr().err
    assert main(["inspect", "--set", "causal=1"]) == 2
    assert "must be true or false" in capsys.readouterr().err
