"""Kernels compiled for targets that are not at hand: what is asked of their code, and that features build together."""

from dataclasses import replace

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")


from sm120_attn.compile.compiler import compile_offline
from sm120_attn.config import Config
from sm120_attn.kernels import inline_ptx
from sm120_attn.planner import Shape, plan
from sm120_attn.verify.inspect import read_code
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.throughput_pragma import Trigger, trigger_of

LONG = Shape("sm_120a", "bf16", 128, 4, 16, 16, 4096, 4096)


@pytest.mark.parametrize("arch", ["sm_121a", "sm_120f"])
@pytest.mark.nightly  # verify/test_inspect.py has that of sm_120a
def test_the_steady_loop_of_a_long_sequence_is_short(arch):
    """Given the planned kernel at D128, when assembled, then at most 800 instructions per 256 HMMA, and no spills."""
    assembled = compile_offline(plan(replace(LONG, arch=arch)).config)

    code = read_code(assembled.cubin)
    steady = min(code.loops, key=lambda loop: len(loop.instructions) / loop.matrix)
    assert 256 * len(steady.instructions) <= 800 * steady.matrix
    assert code.count("LDL", "STL") == 0 and code.stack_bytes == 0
    assert code.syscalls == 0 and code.count("UTMALDG") > 0 and code.count("USETMAXREG") > 0
    assert assembled.ptxas is not None and assembled.name.startswith("sm120_attn_tma_bf16_d128")
    assert f".target {arch}" in assembled.ptx


@pytest.mark.parametrize(
    ("fields", "opcode"),
    [
        pytest.param({"fp8_mma": "plain"}, "QMMA.16832", marks=pytest.mark.nightly),
        ({"fp8_mma": "portable", "out_dtype": "fp32", "varlen": True, "lse": True, "causal": True}, "QMMA.16832"),
        pytest.param(
            {"arch": "sm_90a", "dtype": "e5m2", "out_dtype": "fp16", "softcap": True, "window": True},
            "HMMA",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            {"arch": "sm_90a", "fp8_mma": "portable", "head_dim": 96, "out_dtype": "fp32"},
            "HMMA",
            marks=pytest.mark.nightly,
        ),
        pytest.param({"head_dim": 256, "causal": True}, "QMMA.SF", marks=pytest.mark.nightly),
    ],
)
def test_fp8_is_made_of_the_instructions_that_the_target_has(fields, opcode):
    shape = replace(LONG, dtype="e4m3", out_dtype="bf16", head_dim=fields.get("head_dim", 64))
    code = read_code(compile_offline(replace(plan(shape).config, **fields)).cubin)

    assert all(loop.matrix_opcode.startswith(opcode) for loop in code.loops) and code.loops
    assert code.syscalls == 0 and code.count("CALL") == 0
    assert fields.get("arch") == "sm_90a" or code.count("LDL", "STL") == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"head_dim": 40, "causal": True, "varlen": True, "lse": True, "dtype": "fp16"},
        pytest.param({"head_dim": 256, "window": True, "softcap": True}, marks=pytest.mark.nightly),
        pytest.param(
            {"head_dim": 136, "causal": True, "window": True, "align": "bottom-right"}, marks=pytest.mark.nightly
        ),
        pytest.param(
            {"kernel": "cp_async", "head_dim": 72, "window": True, "varlen": True, "lse": True},
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_features_build_together(fields):
    planned = plan(replace(LONG, head_dim=fields["head_dim"])).config
    if fields.get("kernel") == "cp_async":
        planned = Config(warps=4, rows_per_warp=16, tile_n=64, stages_k=1, stages_v=1)
    code = read_code(compile_offline(replace(planned, **fields)).cubin)

    assert code.loops
    assert code.syscalls == 0 and code.count("CALL") == 0
    assert (code.count("UTMALDG") > 0) == ("kernel" not in fields)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            replace(plan(replace(LONG, arch="sm_90a", sms=132)).config, head_dim=32, tile_n=32),
            marks=pytest.mark.nightly,
        ),
        pytest.param(Config(arch="sm_120a", head_dim=32, tile_n=32, mma_throughput=True), marks=pytest.mark.nightly),
        Config(
            kernel="cp_async",
            warps=4,
            stages_k=1,
            stages_v=1,
            q_in_registers=True,
            head_dim=32,
            tile_n=32,
            mma_throughput=True,
        ),
    ],
    ids=lambda config: f"{config.kernel}-{config.arch}",
)
def test_the_pragma_gives_the_machine_code_that_the_name_gives(config, monkeypatch):
    """Given a config with the other scheduler, when ptxas is too old for the pragma, then the name does the same."""
    assert config.mma_throughput
    plain = compile_offline(replace(config, mma_throughput=False))
    by_pragma = compile_offline(config)
    monkeypatch.setattr(inline_ptx, "knows_pragma", lambda: False)
    by_name = compile_offline(config)

    triggers = [trigger_of(assembled.name, assembled.ptx, None) for assembled in (plain, by_pragma, by_name)]
    assert triggers == [Trigger(False, False), Trigger(False, True), Trigger(True, False)]
    codes = [Cubin.from_bytes(assembled.cubin).text(assembled.name) for assembled in (plain, by_pragma, by_name)]
    assert codes[1] == codes[2] != codes[0]
