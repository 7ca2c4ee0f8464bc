"""From tensors to a kernel's arguments, on the CPU: the kernel is a stand-in that keeps what it is given."""

import threading
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn import attention  # noqa: E402
from sm120_attn.launch import prepare  # noqa: E402
from sm120_attn.launch.call import Call, Tensors  # noqa: E402
from sm120_attn.mask_bounds import bounds  # noqa: E402
from tests.sm120_attn.support.fake_kernel import FakeKernel, qkv  # noqa: E402

# --- what the kernel is given --------------------------------------------------------------------------------------


def test_packed_sequences_arrive(kernel: FakeKernel) -> None:
    # given
    q, k, v = qkv(50, 4, 64, keys=80)
    starts_q = torch.tensor([0, 20, 50], dtype=torch.int32)
    starts_k = torch.tensor([0, 0, 80], dtype=torch.int32)

    # when
    o, lse = attention(
        q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, max_seqlen_q=30, max_seqlen_k=80, return_lse=True
    )

    # then
    (call,) = kernel.calls
    assert call["q"] == (q.data_ptr(), 50, 4, 256, 64)
    assert call["cu_seqlens_q"] == (starts_q.data_ptr(), 3)
    assert call["cu_seqlens_k"] == (starts_k.data_ptr(), 3)
    assert call["max_seqlen_q"] == 30
    assert o.shape == q.shape and lse.shape == (4, 50)


def test_the_second_call_prepares_nothing_and_takes_new_addresses(kernel: FakeKernel) -> None:
    # given
    first = qkv(1, 20, 2, 64)
    second = qkv(1, 20, 2, 64)
    attention(*first)

    # when
    attention(*second)

    # then
    assert len(kernel.configs) == 1
    assert [call["q"][0] for call in kernel.calls] == [first[0].data_ptr(), second[0].data_ptr()]
    assert kernel.calls[0]["q"][1:] == kernel.calls[1]["q"][1:]


@pytest.mark.parametrize(
    "change",
    [
        {"causal": True},
        {"window": (3, 4)},
        {"scale": 0.5},
        {"softcap": 3.0},
        {"return_lse": True},
    ],
    ids=str,
)
def test_another_question_is_another_call(kernel: FakeKernel, change: dict) -> None:
    tensors = qkv(1, 20, 2, 64)
    attention(*tensors)
    attention(*tensors, **change)
    assert len(kernel.configs) == 2


def test_strided_tensors_are_not_copied(kernel: FakeKernel) -> None:
    # given one tensor of q, k and v side by side, as a linear layer gives it, and heads before rows
    together = torch.zeros(2, 40, 3, 4, 64, dtype=torch.bfloat16)
    q, k, _ = together.unbind(2)
    v = torch.zeros(2, 4, 40, 64, dtype=torch.bfloat16).transpose(1, 2)

    # when
    attention(q, k, v)

    # then
    (call,) = kernel.calls
    assert call["q"] == (q.data_ptr(), 2, 40, 4, 40 * 768, 768, 64)
    assert call["v"] == (v.data_ptr(), 2, 40, 4, 4 * 40 * 64, 64, 40 * 64)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_call_with_other_strides_is_another_call(kernel: FakeKernel, which: int, dim: int) -> None:
    """Given a call like an earlier one but for one stride; then the kernel gets that stride, not the earlier one."""
    tensors = list(qkv(2, 20, 2, 64))
    attention(*tensors)
    strides = [(4 if d <= dim else 1) * step for d, step in enumerate(tensors[which].stride()[:3])]
    large = torch.zeros(4 * tensors[which].numel(), dtype=tensors[which].dtype)
    tensors[which] = large.as_strided(tensors[which].shape, (*strides, 1))
    attention(*tensors)
    first, second = (call["qkv"[which]] for call in kernel.calls)
    assert second[4:] == tuple(strides) != first[4:] and len(kernel.calls) == 2


def _odd_rows(values):
    return torch.zeros(*values.shape[:-1], 65, dtype=values.dtype)[..., :64]


def _odd_address(values):
    return torch.zeros(values.numel() + 1, dtype=values.dtype)[1:].view(values.shape)


def _strided_columns(values):
    return torch.zeros(*values.shape[:-1], 128, dtype=values.dtype)[..., ::2]


@pytest.mark.parametrize("spoil", [_odd_rows, _odd_address, _strided_columns])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_off_the_16_byte_grid_is_copied(kernel: FakeKernel, spoil, which: int) -> None:
    # given
    tensors = list(qkv(1, 20, 2, 64))
    tensors[which] = spoil(tensors[which])
    for _ in range(2):
        # when
        attention(*tensors)

        # then only that one has moved
        call = kernel.calls[-1]
        for i, name in enumerate("qkv"):
            assert (call[name][0] == tensors[i].data_ptr()) == (i != which)
            assert call[name][0] % 16 == 0
            assert call[name][4:] == (20 * 128, 128, 64)


@pytest.mark.parametrize("shape", [(0, 20, 2, 64), (2, 0, 2, 64)])
def test_nothing_to_compute_launches_nothing(kernel: FakeKernel, shape: tuple) -> None:
    o, lse = attention(*qkv(*shape), return_lse=True)
    assert kernel.calls == [] and o.shape == shape and lse.numel() == 0


def test_no_key_is_zero_and_minus_infinity(kernel: FakeKernel) -> None:
    o, lse = attention(*qkv(2, 20, 2, 64, keys=0), return_lse=True)
    assert kernel.calls == []
    assert (o == 0).all() and torch.isneginf(lse).all()


def test_threads_do_not_share_a_buffer(kernel: FakeKernel) -> None:
    # given
    inputs = [qkv(1, 20, 2, 64) for _ in range(8)]
    attention(*inputs[0])
    kernel.calls.clear()
    kernel.delay_s = 1e-5

    # when
    threads = [threading.Thread(target=lambda t=t: [attention(*t) for _ in range(50)]) for t in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # then each thread's addresses were launched as often as it called
    wanted = {tuple(t.data_ptr() for t in tensors): 50 for tensors in inputs}
    assert Counter(tuple(call[n][0] for n in "qkv") for call in kernel.calls) == wanted


# --- FP8 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [False, True])
def test_calls_that_differ_in_their_descales_are_told_apart(kernel: FakeKernel, direct: bool) -> None:
    """Given one call after the other, when they differ in nothing but the form of a descale, then each gets its own."""
    q, k, v = qkv(2, 70, 8, 128, heads_kv=2, dtype=torch.float8_e4m3fn)
    forms = [None, torch.rand(2, 8), torch.tensor(0.5), torch.rand(8, 2).T]
    for form in [*forms, *forms]:
        if direct:
            attention(q, k, v, q_descale=form)
        else:
            call = Call(bounds(False, None), "top-left", 0.1, 0.0, False, 70, 70)
            prepare.forward(Tensors(q, k, v, q_descale=form), call)
    found = [call["q_descale"] for call in kernel.calls]
    assert [f[3:] for f in found] == [(0, 0), (8, 1), (0, 0), (1, 2)] * 2
    assert [f[0] for f, form in zip(found, forms, strict=False) if form is not None] == [
        t.data_ptr() for t in forms[1:]
    ]


@pytest.mark.parametrize("heads", [1, 3])
def test_fp8_rows_that_cannot_be_packed_are_copied_apart(kernel: FakeKernel, heads: int) -> None:
    """Given rows of 72 bytes, when called, then rows of the copies are 80 bytes apart, and the output is packed."""
    q, k, v = (torch.rand(2, 20, heads, 72).to(torch.float8_e4m3fn) for _ in range(3))
    o = attention(q, k, v)
    (call,) = kernel.calls
    for name in ("q", "k", "v"):
        assert call[name][1:4] == (2, 20, heads) and not any(step % 16 for step in call[name][-3:])
    assert o.is_contiguous() and call["o"][-3:] == (20 * heads * 72, heads * 72, 72)
