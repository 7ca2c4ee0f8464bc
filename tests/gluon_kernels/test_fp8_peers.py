"""The adapter by which other fp8 attentions are judged, without a GPU."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture
def fp8_peers():
    from benchmarks.gluon import fp8_peers

    return fp8_peers


@pytest.mark.parametrize("dtype", ["fp8e4nv", "fp8e5"])
@pytest.mark.parametrize("causal", [False, True])
def test_an_attention_of_as_many_queries_as_keys_is_judged_by_its_last_rows(fp8_peers, causal, dtype):
    from gluon_kernels.verify.fp8_accuracy import AccuracyCase, judge_accuracy
    from gluon_kernels.verify.reference import attention_reference

    def exact(q, k, v, *, causal):
        assert q.shape == k.shape and q.dtype == k.dtype
        return lambda: attention_reference(q, k, v, causal="top-left" if causal else None)[0].to(torch.bfloat16)

    case = AccuracyCase("q = k", 320, 64, dtype, causal, seqlen_q=48, num_heads=2)
    found = judge_accuracy(case, fp8_peers.with_all_rows(exact), 0, "cpu")
    assert found.reason is None and found.worst_row < 2**-7
    wrong = judge_accuracy(
        case, fp8_peers.with_all_rows(lambda q, *rest, **more: exact(q.flip(2), *rest, **more)), 0, "cpu"
    )
    assert wrong.reason is not None
