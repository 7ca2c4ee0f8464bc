"""What the assembler makes of the kernels, pinned; and how it is printed. Nothing here runs on a GPU."""

import json
import os
from pathlib import Path

import pytest

from sm120_attn.config import Config
from sm120_attn.verify import cases, model
from sm120_attn.verify.sass import Instruction, Loop

GOLDEN = Path(__file__).parents[1] / "golden" / "sm120" / "loops.json"
PINNED = ("kernel", "loop", "instructions", "mma", "other", "MUFU", "LDSM", "SHFL", "PRMT", "MOV", "NOP", "spills")


def loop_of(matrix: int, others: int, opcode: str = "HMMA.16816.F32.BF16") -> Loop:
    return Loop(0, (Instruction("", opcode, ""),) * matrix + (Instruction("", "FFMA", ""),) * others)


# --- the model, against the figures it was fitted on ---------------------------------------------------------------


def test_the_model_gives_the_published_utilisation_back() -> None:
    # given the loop of the best public BF16 kernel: 256 HMMA, 540 others, measured at 0.910 of the peak
    low, high = _range(loop_of(256, 540), Config(warps=8), "full rate")
    assert low < 0.910 < high
    # and of one with a warp per scheduler: 256 HMMA, 645 others, measured at 0.788
    low, high = _range(loop_of(256, 645), Config(warps=4, kernel="cp_async"), "full rate")
    assert low < 0.795 and high > 0.785


def test_half_rate_hides_more_and_block_scaled_fp8_has_full_rate_everywhere() -> None:
    loop = loop_of(256, 540)
    assert _range(loop, Config(), "half rate") > _range(loop, Config(), "full rate")
    scaled = loop_of(128, 599, "QMMA.SF.16832.F32.E4M3.E4M3.E8")
    assert _range(scaled, Config(), "half rate") == _range(scaled, Config(), "full rate")


def test_two_ctas_of_four_warps_are_two_warps_per_scheduler() -> None:
    loop = loop_of(256, 540)
    shared = Config(warps=4, ctas_per_sm=2)
    assert _range(loop, shared, "full rate") == _range(loop, Config(warps=8), "full rate")


def _range(loop: Loop, config: Config, rate: str) -> tuple[float, float]:
    (found,) = [p for p in model.predict(loop, config) if p.rate == rate]
    return found.low, found.high


# --- with the DSL --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> dict:
    """As `inspect --arch sm_120a --json` prints it, and of the largest tiles at D64, which some shapes get."""
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    from sm120_attn.verify import inspect

    chosen = list(inspect.configs(("sm_120a",), (64, 128), (False, True)))
    chosen += [cases.tiles_of(Config(arch="sm_120a", head_dim=64, causal=causal), 0) for causal in (False, True)]
    return inspect.report([inspect.inspect(config) for config in dict.fromkeys(chosen)])


def all_loops(report: dict) -> list[dict]:
    return sorted(report["loops"] + report["other_loops"], key=lambda loop: (loop["kernel"], loop["loop"]))


def test_the_steady_loops_are_within_the_goal(report: dict) -> None:
    """At most 800 instructions per 256 HMMA at D128, and nothing spilled; of D64 the issue says nothing."""
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


def test_the_counts_add_up(report: dict) -> None:
    for loop in all_loops(report):
        assert loop["instructions"] == loop["mma"] + loop["other"] + loop["fillers"]
        assert 0 < loop["model"]["full rate"][0] < loop["model"]["full rate"][1] < 1


def test_the_steady_loops_are_the_pinned_ones(report: dict) -> None:
    """Renew on purpose: RENEW_GOLDEN=1 pytest tests/sm120_attn/test_inspect.py, and say in the commit why."""
    found = {
        "ptxas": report["kernels"][0]["ptxas"],
        "loops": [{k: loop[k] for k in PINNED} for loop in all_loops(report)],
    }
    if os.environ.get("RENEW_GOLDEN"):
        lines = ",\n  ".join(json.dumps(loop) for loop in found["loops"])
        GOLDEN.write_text(f'{{"ptxas": "{found["ptxas"]}", "loops": [\n  {lines}\n]}}\n')
    wanted = json.loads(GOLDEN.read_text())
    if found["ptxas"] != wanted["ptxas"]:
        pytest.skip(f"pinned for ptxas {wanted['ptxas']}, the DSL has {found['ptxas']}")
    assert found["loops"] == sorted(wanted["loops"], key=lambda loop: (loop["kernel"], loop["loop"]))


def test_the_table_has_a_row_per_loop_and_its_caveat(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    from sm120_attn.__main__ import main

    assert main(["inspect", "--arch", "sm_90a", "--head-dim", "64", "--no-causal"]) == 0
    printed = capsys.readouterr().out
    assert "sm_90a" in printed and "ptxas 13." in printed
    assert "Nothing was measured on an SM120." in printed


def test_a_field_that_cannot_be_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    assert main(["inspect", "--set", "tile_n=100"]) == 2
    assert capsys.readouterr().err == "sm120_attn inspect: tile_n 100: 32, 64 or 128 keys\n"
    assert main(["inspect", "--set", "colour=red"]) == 2
    assert "must be FIELD=VALUE, with one of arch, dtype" in capsys.readouterr().err
    assert main(["inspect", "--set", "causal=1"]) == 2
    assert "must be true or false" in capsys.readouterr().err


def test_no_nvdisasm_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    from sm120_attn.__main__ import main

    monkeypatch.setenv("SM120_ATTN_NVDISASM", "/nowhere")
    assert main(["inspect", "--arch", "sm_120a", "--head-dim", "64", "--no-causal"]) == 2
    assert "nvdisasm is not found" in capsys.readouterr().err


def test_every_verb_has_help_and_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import VERBS, main

    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
        assert verb in capsys.readouterr().out
