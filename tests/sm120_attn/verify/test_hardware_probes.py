"""The self-test's probes: their instructions, and their addresses. Their results: test_emulated_checks.py."""

import pytest

from sm120_attn.kernels.probe import config as probe_config
from sm120_attn.kernels.probe.config import ProbeConfig

WARP = 32


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a", "sm_90a"])
@pytest.mark.parametrize("what", probe_config.WHATS)
def test_the_probes_assemble_with_the_instructions_they_are_about(arch: str, what: str) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    from sm120_attn.compile.compiler import compile_offline

    ptx = compile_offline(ProbeConfig(arch, what)).ptx
    real = arch != "sm_90a"
    if what == "mma":
        assert ("mxf8f6f4.block_scale" in ptx) == real and "f32.e4m3.e4m3.f32" in ptx
    else:
        assert ("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8" in ptx) == real
    assert what != "banks" or ptx.count("%clock;") == 2 * len(probe_config.ORDERS)


@pytest.mark.parametrize("order", probe_config.ORDERS)
def test_the_turn_of_rows_is_what_keeps_lanes_out_of_each_others_banks(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight lanes at a time, 16 bytes each, in 32 banks of 4 bytes: what the clocks should say."""
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    from sm120_attn.kernels import inline_ptx
    from sm120_attn.kernels.probe import kernel as kernel_probe

    monkeypatch.setattr(inline_ptx, "kept", lambda x, lane: x)
    offsets = kernel_probe.ProbeKernel(ProbeConfig()).offset_of(order, np.arange(WARP))
    turns = sum(np.bincount(offsets[i : i + 8] // 16 % 8).max() for i in range(0, WARP, 8))
    assert turns == {"V straight": 8, "eight ways": 32}.get(order.replace(" D128", "").replace(" D64", ""), 4)
    assert sorted(set(offsets.tolist())) == sorted(offsets.tolist()) and offsets.max() < WARP * 128
