"""What the assembler makes of the FP8 kernels: the goals, the pinned counts, the model. *Assembled*, never executed."""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

from sm120_attn.verify import inspect

GOLDEN = Path(__file__).parents[1] / "golden" / "sm120" / "fp8_loops.json"
PINNED = ("kernel", "loop", "instructions", "mma", "other", "MUFU", "LDSM", "SHFL", "PRMT", "MOV", "NOP", "spills")
# Instructions and matrix instructions of a tile of 128 keys and 16 rows. The best public kernel has 758 and 583.
GOALS = {64: (470, 64), 128: (600, 128)}


@pytest.fixture(scope="module")
def report() -> dict:
    """As `inspect --arch sm_120a --dtype e4m3 --no-causal --json` prints it."""
    return inspect.report([inspect.inspect(c) for c in inspect.configs(("sm_120a",), (64, 128), (False,), "e4m3")])


def test_the_steady_loops_are_within_the_goals(report: dict) -> None:
    """At most 12 SHFL, no PRMT, at most 4 MOV, no spills, and few instructions at all."""
    assert [kernel["config"]["head_dim"] for kernel in report["kernels"]] == list(GOALS)
    for loop, (instructions, mma) in zip(report["loops"], GOALS.values(), strict=True):
        assert loop["mma"] == mma and loop["mma_opcode"].startswith("QMMA.SF.16832")
        assert loop["instructions"] <= instructions
        assert loop["SHFL"] <= 12 and loop["PRMT"] == 0 and loop["MOV"] <= 4
    for kernel in report["kernels"]:
        assert kernel["spill_instructions"] == kernel["stack_bytes"] == kernel["syscalls"] == kernel["calls"] == 0
        assert kernel["utmaldg"] > 0 and kernel["setmaxreg"] > 0 and kernel["shared_bytes"] <= 99 * 1024


def test_the_loops_are_the_pinned_ones(report: dict) -> None:
    """Renew on purpose: RENEW_GOLDEN=1 pytest tests/sm120_attn/test_fp8_inspect.py, and say in the commit why."""
    loops = sorted(report["loops"] + report["other_loops"], key=lambda loop: (loop["kernel"], loop["loop"]))
    found = {"ptxas": report["kernels"][0]["ptxas"], "loops": [{k: loop[k] for k in PINNED} for loop in loops]}
    if os.environ.get("RENEW_GOLDEN"):
        lines = ",\n  ".join(json.dumps(loop) for loop in found["loops"])
        GOLDEN.write_text(f'{{"ptxas": "{found["ptxas"]}", "loops": [\n  {lines}\n]}}\n')
    wanted = json.loads(GOLDEN.read_text())
    if found["ptxas"] != wanted["ptxas"]:
        pytest.skip(f"pinned for ptxas {wanted['ptxas']}, the DSL has {found['ptxas']}")
    assert found == wanted


def test_the_model_puts_fp8_before_bf16(report: dict) -> None:
    """By the model, at D128, at both ends of its range: 1.6 x where BF16 has full rate, 2.5 x where half."""
    (bf16,) = inspect.configs(("sm_120a",), (128,), (False,))
    (theirs,) = inspect.report([inspect.inspect(bf16)])["loops"]
    ours = report["loops"][1]
    for rate, goal in (("full rate", 1.6), ("half rate", 2.5)):
        for end in (0, 1):
            assert theirs["model_clocks"][rate][end] >= goal * ours["model_clocks"][rate][end]
