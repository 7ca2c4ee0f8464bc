"""What the assembler makes of the FP8 kernels: the goals and the pinned counts. Assembled, never executed."""

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
pytest.importorskip("tritonhook.cubin.sass", reason="machine code is read with tritonhook")

from sm120_attn.verify import inspect
from tests.sm120_attn.support.pinned import ALL, check_loops

# Instructions and matrix instructions of a tile of 128 keys and 16 rows. The best public kernel has 758 and 583.
GOALS = {64: (420, 64), 128: (500, 128)}
HEAD_DIMS = (64, 128) if ALL else (128,)
TWO_LEVEL = {64: (450, 64), 128: (590, 128)}  # with the additions to O: 4 for each MMA of O that ends a tile


@pytest.fixture(scope="module")
def report() -> dict:
    """As `inspect --arch sm_120a --dtype e4m3 --no-causal --json` prints it; `make test-cute-matrix` takes D64 too."""
    return inspect.report([inspect.inspect(c) for c in inspect.configs(("sm_120a",), HEAD_DIMS, (False,), "e4m3")])


def test_the_steady_loops_are_within_the_goals(report: dict) -> None:
    """At most 12 SHFL, no PRMT, at most 5 MOV, no spills, and few instructions at all, with one level and with two."""
    found = [(kernel["config"]["head_dim"], kernel["config"]["two_level"]) for kernel in report["kernels"]]
    assert found == [(head_dim, two_level) for head_dim in HEAD_DIMS for two_level in (False, True)]
    goals = [levels[head_dim] for head_dim in HEAD_DIMS for levels in (GOALS, TWO_LEVEL)]
    for loop, (instructions, mma) in zip(report["loops"], goals, strict=True):
        assert loop["mma"] == mma and loop["mma_opcode"].startswith("QMMA.SF.16832")
        assert loop["instructions"] <= instructions
        assert loop["SHFL"] <= 12 and loop["PRMT"] == 0 and loop["MOV"] <= 5
    for kernel in report["kernels"]:
        assert kernel["spill_instructions"] == kernel["stack_bytes"] == kernel["syscalls"] == kernel["calls"] == 0
        assert kernel["utmaldg"] > 0 and kernel["setmaxreg"] > 0 and kernel["shared_bytes"] <= 99 * 1024


def test_the_loops_are_the_pinned_ones(report: dict) -> None:
    check_loops(report, "fp8_loops.json")
