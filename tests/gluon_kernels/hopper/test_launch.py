"""The launcher of the Hopper attention, without a GPU; on an sm_90 GPU, whether the kernel is right."""

import sys

import pytest

from gluon_kernels.config import CAUSAL, causal_offset
from gluon_kernels.hopper.config import BASE_NAME
from tests.gluon_kernels.support.fake_torch import FakeTensor, FakeTorch, first_call_of

FP8 = "torch.float8_e4m3fn"


@pytest.fixture
def launcher():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import launch

    return launch


@pytest.fixture
def launch(launcher, monkeypatch):
    """attention(...) without a GPU: the grid and the arguments of the kernel, descriptors as (tensor, dtype, box)."""
    launches = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda **arguments: launches.append({"grid": grid} | arguments) or "compiled"

    monkeypatch.setitem(sys.modules, "torch", FakeTorch((9, 0)))
    monkeypatch.setattr(launcher, "attention_kernel", Kernel())
    monkeypatch.setattr(launcher, "descriptor", lambda x, dtype, box: (x, dtype, box))
    monkeypatch.setattr(launcher, "unread", lambda device: f"nothing on {device}")
    monkeypatch.setattr(launcher, "sm_count", lambda device: {"cuda:0": 132}[device])
    monkeypatch.setattr(launcher, "order_on_gpu", lambda *facts: facts)

    def run(*tensors, **options):
        launches.clear()
        first_call_of(launcher)(*tensors, **options)
        (arguments,) = launches
        return arguments

    return run


@pytest.mark.parametrize(
    ("queries", "causal", "ordered"), [(2048, None, True), (1024, None, False), (1024, "top-left", True)]
)
def test_tiles_of_different_lengths_come_in_order(launch, queries, causal, ordered):
    x = FakeTensor((1, 2, queries, 64), "torch.bfloat16")
    arguments = launch(x, x, x, causal=causal)
    assert (arguments["order"] != "nothing on cuda:0") == arguments["OPTIONS"].ordered.value == ordered


def test_a_launch_has_no_more_programs_than_sms_and_its_own_name_by_default(launch):
    x = FakeTensor((4, 16, 1024, 128), "torch.bfloat16")
    arguments = launch(x, x, x)
    assert (arguments["grid"], arguments["NAME"], arguments["out_scale"]) == ((132,), BASE_NAME, 1.0)
    assert arguments["scale"] == pytest.approx(128**-0.5)


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
        alone = launcher.attention(q, k, v, causal=causal)
        scores = q.double() @ k.double().transpose(-1, -2) * head_dim**-0.5
        if causal:
            seen = torch.arange(1, rows + 1, device="cuda")[:, None] + causal_offset(causal, rows, keys)
            scores = scores.masked_fill(torch.arange(keys, device="cuda") >= seen, -torch.inf)
        expected_lse = scores.logsumexp(-1)
        expected = torch.exp(scores - expected_lse.nan_to_num(neginf=0.0)[..., None]) @ v.double()
        # O of fp8 is bfloat16, with probabilities in float16.
        tolerance = 2e-3 if dtype == "float16" else 1e-2
        torch.testing.assert_close(o.double(), expected, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(alone.double(), expected, atol=tolerance, rtol=tolerance)
        # The tensor cores keep about 13 bits of sums of fp8 products.
        torch.testing.assert_close(lse.double(), expected_lse, atol=5e-3 if "8" in dtype else 1e-3, rtol=1e-6)
