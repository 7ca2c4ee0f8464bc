"""The torch operator: torch.compile, fake tensors, gradients. On the CPU, with the reference for the kernel."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn import attention  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402
from tests.sm120_attn.support.fake_kernel import FakeKernel  # noqa: E402


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """The operator on CPU tensors, by the reference."""
    library = torch.library.Library("sm120_attn", "IMPL")

    def plain(q, k, v, cu_q, cu_k, max_q, max_k, causal, align, left, right, scale, softcap, return_lse):
        o, lse = attention_reference(
            q, k, v, causal=causal, window=(left, right), align=align, scale=scale, softcap=softcap, cu_seqlens_q=cu_q,
            cu_seqlens_k=cu_k,
        )  # fmt: skip
        return o.to(q.dtype).contiguous(), lse.float() if return_lse else torch.empty(0)

    library.impl("forward", plain, "CPU")
    yield
    library._destroy()


def normal(*shape: int):
    return (torch.randn(shape, dtype=torch.bfloat16) for _ in range(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_takes_it_whole_and_with_dynamic_lengths(on_cpu: None, backend: str) -> None:
    # given
    def model(q, k, v):
        o, lse = attention(q * 2, k, v, causal=True, window=(9, None), return_lse=True)
        return o + 1, lse.sum(-1)

    compiled_model = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for rows in (20, 33):
        q, k, v = normal(2, rows, 4, 64)

        # when
        o, total = compiled_model(q, k, v)

        # then
        wanted, wanted_lse = attention_reference(q * 2, k, v, causal=True, window=(9, None))
        assert torch.allclose(o, (wanted.bfloat16() + 1))
        assert torch.allclose(total, wanted_lse.sum(-1).float(), rtol=1e-4)


def test_the_operator_keeps_torchs_rules(on_cpu: None) -> None:
    q, k, v = normal(1, 20, 2, 64)
    starts = torch.tensor([0, 7, 20], dtype=torch.int32)
    operator = torch.ops.sm120_attn.forward.default
    dense = (q, k, v, None, None, 20, 20, True, "top-left", -1, -1, 0.125, 0.0, True)
    packed = (q[0], k[0], v[0], starts, starts, 13, 13, False, "top-left", 4, 4, 0.125, 0.0, True)
    for arguments in (dense, packed, (*dense[:-1], False)):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_the_fake_says_what_the_launch_would_return(kernel: FakeKernel) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 30, 8, 96, dtype=torch.float16, device="cuda")
        k, v = (torch.empty(2, 30, 2, 96, dtype=torch.float16, device="cuda") for _ in range(2))
        o, lse = attention(q, k, v, return_lse=True)
        assert (o.shape, o.dtype, o.device.type) == (q.shape, torch.float16, "cuda")
        assert (lse.shape, lse.dtype) == ((2, 8, 30), torch.float32)
    assert kernel.calls == []


def test_backward_says_that_there_is_none(on_cpu: None) -> None:
    q, k, v = normal(1, 20, 2, 64)
    q.requires_grad_()
    o = attention(q, k, v)  # a forward pass does no harm
    with pytest.raises(NotImplementedError, match="forward only; call it under torch.no_grad"):
        o.float().sum().backward()
