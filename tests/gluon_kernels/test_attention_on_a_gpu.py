"""On a GPU: whether the attentions of its kernels are right."""

import pytest

from gluon_kernels.api import KERNELS, launcher
from gluon_kernels.mma.config import MmaConfig
from gluon_kernels.verify import check

DTYPES = dict.fromkeys(("blackwell", "hopper"), ("bf16", "fp16", "fp8e4nv", "fp8e5"))
DTYPES["mma"] = ("bf16", "fp16", "fp8e4nv")


@pytest.fixture
def torch_and_arch():
    torch = pytest.importorskip("torch", reason="needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU that torch can use")
    major, minor = torch.cuda.get_device_capability()
    return torch, 10 * major + minor


@pytest.fixture
def mma_torch(torch_and_arch):
    torch, arch = torch_and_arch
    reason = MmaConfig(stages=1).why_not(arch)
    if reason is not None:
        pytest.skip(reason)
    return torch


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "dtype"), [(kernel, dtype) for kernel, all_ in DTYPES.items() for dtype in all_])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_it_is_as_right_as_pytorch(torch_and_arch, kernel, dtype, head_dim):
    _, arch = torch_and_arch
    if kernel not in KERNELS.get(arch, ()):
        pytest.skip(f"{kernel} is no kernel for sm_{arch}")
    if (kernel, head_dim) == ("blackwell", 256) or (arch, dtype) == (80, "fp8e4nv"):
        pytest.skip(f"{kernel} on sm_{arch} does not take {dtype} with head_dim {head_dim}")
    loss = check.FP8_LOSS.get(kernel, 0.0)
    cases = check.matrix((dtype,), (head_dim,), quick=True)
    for verdict in check.run(launcher(kernel).attention, cases, fp8_loss=loss):
        unjudged = loss and dtype in check.FP8 and verdict.case.logits is not None
        assert verdict.right or (unjudged and verdict.skipped), verdict


@pytest.mark.gpu
def test_wrong_kernels_are_found(mma_torch):
    from tests.gluon_kernels.mutations import EDITS, REFERENCES, run_mutations

    found = list(run_mutations("mma"))
    assert len(found) == len(REFERENCES) + sum(edit.kernel == "mma" for edit in EDITS)
    assert [one.mutation for one in found if one.verdict is None] == []


@pytest.mark.gpu
def test_a_query_without_keys_gets_zero_and_minus_infinity(mma_torch):
    from gluon_kernels.mma.launch import attention

    torch = mma_torch
    q = torch.randn(1, 2, 200, 64, device="cuda").bfloat16()
    k, v = (torch.randn(1, 2, 70, 64, device="cuda").bfloat16() for _ in range(2))
    o, lse = attention(q, k, v, causal="bottom-right", return_lse=True)
    assert not o[:, :, :130].any() and bool((lse[:, :, :130] == -float("inf")).all())
    assert o[:, :, 130:].any() and bool(lse[:, :, 130:].isfinite().all())


@pytest.mark.gpu
def test_the_tuner_times_no_wrong_candidate(mma_torch):
    """Three candidates: one gives zeros, one cannot run. Both are named with a reason, and neither has a time."""
    from gluon_kernels.mma.launch import attention
    from gluon_kernels.tune import best, tune
    from gluon_kernels.verify.bench import Shape, agree, torch_output

    shape = Shape(1, 4, 512, 64)
    inputs = shape.inputs()
    right, wrong, unfit = (MmaConfig(head_dim=d, block_n=n, stages=1) for d, n in ((64, 32), (64, 64), (128, 64)))

    def broken(q, k, v, *, causal, config):
        out = attention(q, k, v, causal=causal, config=config)
        return out.zero_() if config == wrong else out

    expected = torch_output(inputs, shape)
    candidates = (right, wrong, unfit)
    tried = tune(broken, candidates, *inputs, causal=None, rounds=3, verify=lambda out: agree("bf16", out, expected))
    reasons = {one.config: one.reason for one in tried if one.timed is None}
    assert list(reasons) == [wrong, unfit]
    assert "wrong: a row differs" in reasons[wrong]
    assert "config.head_dim is 128" in reasons[unfit]
    assert best(tried) == right
