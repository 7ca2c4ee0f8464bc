"""On an sm_100 GPU: whether the Blackwell attention is right."""

import pytest

from gluon_kernels.config import CAUSAL


@pytest.mark.gpu
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("lengths", [(1024, 1024), (1, 1000), (1000, 17), (129, 129)], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_matches_the_reference_on_a_gpu(dtype, head_dim, lengths, causal):
    torch = pytest.importorskip("torch", reason="requires torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10:
        pytest.skip("requires an sm_100 GPU")
    from gluon_kernels import attention_reference
    from gluon_kernels.attention_blackwell import attention

    torch.manual_seed(0)
    seqlen_q, seqlen_k = lengths
    sizes = ((6, seqlen_q), (2, seqlen_k), (2, seqlen_k))
    q, k, v = (torch.randn(2, *size, head_dim, device="cuda").to(getattr(torch, dtype)) for size in sizes)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected_o, expected_lse = attention_reference(q, k, v, causal=causal)
    # e5m2 keeps 2 bits of mantissa of each probability, e4m3 keeps 3.
    tolerance = {"float16": 5e-3, "bfloat16": 2e-2, "float8_e5m2": 0.25, "float8_e4m3fn": 0.12}[dtype]
    torch.testing.assert_close(o.float(), expected_o.float(), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse, expected_lse.float(), atol=1e-3, rtol=1e-3)
