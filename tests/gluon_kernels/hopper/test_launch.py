"""On an sm_90 GPU: whether the Hopper attention is right."""

import pytest

from gluon_kernels.config import CAUSAL, causal_offset


@pytest.fixture
def launcher():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import launch

    return launch


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
