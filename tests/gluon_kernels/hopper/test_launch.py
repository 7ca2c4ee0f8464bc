"""The launcher of the Hopper attention, without a GPU; on an sm_90 GPU, whether the kernel is right."""

import sys

import pytest

from gluon_kernels.config import CAUSAL, causal_offset
from gluon_kernels.device.exp2_polynomial import softmax_exp2_asm
from gluon_kernels.device.fp8_codes import CODES
from gluon_kernels.hopper.config import default_config
from tests.gluon_kernels.support.fake_torch import FakeTensor, FakeTorch

FP8 = "torch.float8_e4m3fn"


@pytest.fixture
def launcher():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import launch

    return launch


@pytest.fixture
def launch(launcher, monkeypatch):
    """attention(...) without a GPU: the arguments of the kernel by name, descriptors as (tensor, dtype, box)."""
    launches = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda **arguments: launches.append(arguments)

    monkeypatch.setitem(sys.modules, "torch", FakeTorch((9, 0)))
    monkeypatch.setattr(launcher, "attention_kernel", Kernel())
    monkeypatch.setattr(launcher, "descriptor", lambda x, dtype, box: (x, dtype, box))
    monkeypatch.setattr(launcher, "sm_count", lambda device: 132)

    def run(*tensors, **options):
        launches.clear()
        launcher.attention(*tensors, **options)
        (arguments,) = launches
        return arguments

    return run


def test_lse_is_never_made_of_rough_exponentials(launch):
    x = FakeTensor((1, 2, 512, 128), FP8)
    without, with_lse = launch(x, x, x), launch(x, x, x, return_lse=True)
    assert (without["CODES"], without["CODES_ASM"], without["EXP2_ASM"]) == (True, CODES["fp8e4nv"].asm(), "")
    assert (without["GUARDS"], without["ONE"], without["CODE_SCALE"]) == (0x01010101, 0x38, 8 / 127)
    assert without["CODE_START"] == pytest.approx(7 - 0.0575, abs=1e-3)
    e5m2 = launch(*[FakeTensor((1, 2, 512, 128), "torch.float8_e5m2")] * 3)
    assert (e5m2["GUARDS"], e5m2["ONE"], e5m2["CODE_SCALE"]) == (0x04040404, 0x3C, 4 / 127)
    assert (with_lse["CODES"], with_lse["CODES_ASM"]) == (False, "")
    assert with_lse["EXP2_ASM"] == softmax_exp2_asm(16, 1)
    given = launch(x, x, x, return_lse=True, config=default_config(90, "fp8e4nv", 128, None))
    assert not given["CODES"]


@pytest.mark.parametrize(
    ("queries", "causal", "ordered"), [(2048, None, True), (1024, None, False), (1024, "top-left", True)]
)
def test_tiles_of_different_lengths_come_in_order(launch, launcher, monkeypatch, queries, causal, ordered):
    monkeypatch.setattr(launcher, "order_on_gpu", lambda *_: "order")
    x = FakeTensor((1, 2, queries, 64), "torch.bfloat16")
    arguments = launch(x, x, x, causal=causal)
    assert (arguments["order"] == "order") == arguments["ORDERED"] == ordered


def test_head_dim_256_takes_exact_exponentials_where_codes_do_not_fit(launch, launcher, monkeypatch):
    x = FakeTensor((1, 2, 512, 256), FP8)
    monkeypatch.setattr(launcher, "transposed_values", lambda v: v)
    for release, codes in (((3, 8), True), ((3, 9), False), ((4, 0), False)):
        monkeypatch.setattr(launcher, "release", lambda release=release: release)
        arguments = launch(x, x, x)
        assert (arguments["CODES"], arguments["INT_MAX"], arguments["GUARDS"]) == (codes, True, 0)
        assert arguments["CODES_ASM"] == (CODES["fp8e4nv"].asm(guarded=False) if codes else "")
        assert launch(*[FakeTensor((1, 2, 512, 128), FP8)] * 3)["CODES"]


@pytest.mark.parametrize("strides", [None, (16385, 8192, 128, 1), (7, 7, 128, 1)])
def test_v_is_launched_as_pairs_of_bytes_with_any_strides_that_are_not_stepped_over(launch, strides):
    q = FakeTensor((1, 1, 512, 128), FP8)
    v, dtype, box = launch(q, q, FakeTensor((1, 1, 512, 128), FP8, strides=strides))["v_desc"]
    assert (dtype, box) == ("i16", [1, 1, 128, 64])
    assert (v.shape, v.dtype, v.strides[2:]) == ((1, 1, 512, 64), "torch.int16", (64, 1))


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_matches_a_definition_on_a_gpu(launcher, dtype, head_dim, causal):
    torch = pytest.importorskip("torch", reason="requires torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("requires an sm_90 GPU")
    torch.manual_seed(0)
    for rows, keys, heads in ((300, 333, 8), (129, 1000, 4), (1, 17, 1)):
        q, k, v = (
            torch.randn(2, n, length, head_dim, device="cuda").to(getattr(torch, dtype))
            for n, length in ((heads, rows), (1, keys), (1, keys))
        )
        o, lse = launcher.attention(q, k, v, causal=causal, return_lse=True)
        alone = launcher.attention(q, k, v, causal=causal)  # another program for fp8
        scores = q.double() @ k.double().transpose(-1, -2) * head_dim**-0.5
        if causal:
            seen = torch.arange(1, rows + 1, device="cuda")[:, None] + causal_offset(causal, rows, keys)
            scores = scores.masked_fill(torch.arange(keys, device="cuda") >= seen, -torch.inf)
        expected_lse = scores.logsumexp(-1)
        expected = torch.exp(scores - expected_lse.nan_to_num(neginf=0.0)[..., None]) @ v.double()
        # e5m2 keeps 2 bits of mantissa, e4m3 keeps 3; P is rounded to the input type.
        tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float8_e5m2": 0.15, "float8_e4m3fn": 0.08}[dtype]
        torch.testing.assert_close(o.double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(alone.double(), expected, atol=tolerance, rtol=tolerance)
        # The tensor cores keep about 13 bits of sums of fp8 products.
        torch.testing.assert_close(lse.double(), expected_lse, atol=5e-3 if "8" in dtype else 1e-3, rtol=1e-6)
