"""What the self-test's probes expect of a GPU, against the instructions of support/numpy_warp.py."""

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


@pytest.fixture
def model():
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    np = pytest.importorskip("numpy", reason="numpy is not installed")
    from tests.sm120_attn.support import numpy_warp as fragments

    made = fragments.Instructions()
    rows = (np.arange(WARP * 16) * 73 % 251).astype(np.uint8).reshape(WARP, 16)
    made.memory[: WARP * 16] = rows.reshape(-1)
    return np, fragments, made, rows


def words(np, registers):
    return np.stack([r.view(np.uint8).reshape(WARP, 4) for r in registers], 1).tolist()


def test_the_expected_lane_maps_are_the_models(model) -> None:
    probe = pytest.importorskip("sm120_attn.verify.hardware_probes")
    np, _, made, rows = model
    address = np.arange(WARP) * 16
    native = words(np, made.ldmatrix_bytes(address, 0))
    pairs = made.ldmatrix(address, 0, transpose=True)
    portable = words(np, [made.permute_bytes(*pairs[i : i + 2], d) for i in (0, 2) for d in (0x6420, 0x7531)])
    assert probe.expected("native", rows.tolist()) == native
    assert probe.expected("portable", rows.tolist()) == portable
    assert native != portable


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


def test_operands_and_product_are_those_of_the_instruction(model) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    from sm120_attn.verify import hardware_probes as probe

    # given a lane's six registers of random bytes
    np, fragments, made, _ = model
    codes = np.random.default_rng(0).integers(0, 0x7F, (WARP, 24)).astype(np.uint8)
    registers = [codes[:, 4 * i : 4 * i + 4].copy().view(np.uint32).reshape(WARP) for i in range(6)]

    # when the instruction's model multiplies, and so does the probe's arithmetic
    d = made.mma_m16n8k32("e4m3", registers[:4], registers[4:], None, None)
    a, b = probe.operands(torch.tensor(fragments.DECODE[codes])[None])
    got = probe.product(torch.tensor(np.stack(d, -1))[None])[0]

    # then they agree
    assert torch.allclose(got.double(), (a @ b)[0], rtol=1e-6)


# --- the self-test around them -------------------------------------------------------------------------------------
