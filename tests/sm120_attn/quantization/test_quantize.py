"""Quantisation to FP8 with torch, on the CPU: what `check_quantize` would see, and what calls are refused."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.verify import check_quantize  # noqa: E402
from sm120_attn.verify.check_quantize import QuantizeCase, judge, quantize_reference  # noqa: E402
from sm120_attn.verify.inputs import torch_dtype  # noqa: E402

E4M3 = torch.float8_e4m3fn


def made(**changed):
    """A case's first tensor, cu_seqlens, and the right result, as a kernel would leave it."""
    case = QuantizeCase("made", **changed)
    (x, *_), (starts, *_), _ = check_quantize.tensors(case, "cpu")
    y, descale = quantize_reference(x, torch_dtype(case.fp8), starts)
    return x, starts, y.contiguous(), descale


@pytest.mark.parametrize("values", check_quantize.VALUES)
@pytest.mark.parametrize("fp8", ["e4m3", "e5m2"])
def test_the_right_result_passes(values: str, fp8: str) -> None:
    x, starts, y, descale = made(values=values, fp8=fp8, rows=40)
    assert judge(x, torch_dtype(fp8), starts, y, descale) == ""


def test_packed_sequences_have_a_scale_each() -> None:
    x, starts, y, descale = made(lengths=(0, 5, 17))
    assert descale.shape == (3, 3) and (descale[0] == 1).all()
    assert judge(x, E4M3, starts, y, descale) == ""
    assert judge(x, E4M3, starts, y, descale.roll(1, 0))


def tail_dropped(x, y, descale):
    y[:, -1] = 0
    return y, descale


def tail_not_in_the_maximum(x, y, descale):
    x[:, -1, :, 3] = 50.0
    seen, factor = quantize_reference(x[:, :-1], E4M3)
    return torch.cat([seen.float(), (x[:, -1:].float() / factor[:, None, :, None]).clamp(-448, 448)], 1).to(
        E4M3
    ), factor


def sign_lost(x, y, descale):
    return y.float().abs().to(E4M3), descale


def descale_one_ulp_off(x, y, descale):
    return y, torch.nextafter(descale, torch.tensor(9.0))


def truncated(x, y, descale):
    bits = y.view(torch.uint8).clone()
    bits[0, 0, 0, 0] += 1
    return bits.view(E4M3), descale


MISTAKES = {
    "zeros": lambda x, y, descale: (torch.zeros_like(y.float()).to(E4M3), descale),
    "the last row not written": tail_dropped,
    "the last row not in the maximum": tail_not_in_the_maximum,
    "heads' scales swapped": lambda x, y, descale: (y, descale.flip(1)),
    "signs lost": sign_lost,
    "descales one unit off": descale_one_ulp_off,
    "one value off by one": truncated,
    "the scale of the whole tensor": lambda x, y, descale: (y, descale.amax().expand_as(descale).contiguous()),
    "e5m2": lambda x, y, descale: quantize_reference(x, torch.float8_e5m2),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name: str) -> None:
    x, starts, y, descale = made(rows=600, head_dim=64)
    y, descale = MISTAKES[name](x, y.clone(), descale.clone())
    assert judge(x, E4M3, starts, y, descale)


def test_a_nan_must_not_disappear() -> None:
    x, starts, y, descale = made(values="nan", rows=40)
    assert descale[-1, -1].isnan() and y[-1, :, -1].float().isnan().all() and not descale[0].isnan().any()
    assert judge(x, E4M3, starts, y.float().nan_to_num().to(E4M3), descale)
    assert judge(x, E4M3, starts, y, descale.nan_to_num(1.0))


# --- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((torch.zeros(2, 3, 32),), ValueError, "x has 3 dimensions [2, 3, 32]: must be [batch, rows, heads, head_dim]"),
        ((torch.zeros(1, 2, 3, 32), torch.int8), TypeError, "dtype is torch.int8: must be torch.float8_e4m3fn"),
        ((torch.zeros(1, 2, 3, 32).long(),), TypeError, "x is torch.int64: must be torch.bfloat16, torch.float16"),
        ((torch.zeros(1, 2, 3, 32),), ValueError, "x is on cpu: must be on a CUDA device"),
    ],
)
def test_what_is_not_supported_says_so(arguments: tuple, error: type, said: str) -> None:
    from sm120_attn import quantize

    with pytest.raises(error) as raised:
        quantize(*arguments)
    assert str(raised.value).startswith(said)


def test_packed_sequences_need_their_longest() -> None:
    from sm120_attn import quantize, quantize_qkv

    x, starts = torch.zeros(10, 2, 64), torch.tensor([0, 10], dtype=torch.int32)
    with pytest.raises(ValueError, match="max_seqlen is needed with cu_seqlens: to read it from there"):
        quantize(x, cu_seqlens=starts)
    with pytest.raises(ValueError, match="cu_seqlens_q and cu_seqlens_k is None: packed sequences need both"):
        quantize_qkv(x, x, x, cu_seqlens_q=starts, max_seqlen_q=10)


@pytest.mark.parametrize("head_dim", [64, 72])
def test_torch_traces_it_with_the_right_shapes(head_dim: int) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from sm120_attn import quantize, quantize_qkv

    with FakeTensorMode():
        x, kv = (torch.empty(2, rows, 4, head_dim, device="cuda", dtype=torch.bfloat16) for rows in (10, 30))
        y, descale = quantize(x)
        (_, k, _), (_, factor, _) = quantize_qkv(x, kv, kv, torch.float8_e5m2)
    assert (y.shape, y.dtype, descale.shape, descale.dtype) == (x.shape, E4M3, (2, 4), torch.float32)
    assert (k.shape, k.dtype, factor.shape) == (kv.shape, torch.float8_e5m2, (2, 4))
    assert [step % 16 for step in y.stride()[:-1]] == [0, 0, 0]


def test_a_gradient_through_it_is_refused() -> None:
    from sm120_attn import quantize

    library = torch.library.Library("sm120_attn", "IMPL")
    library.impl("quantize", lambda x, dtype, *others: (x.to(dtype), x.amax((1, 3))), "CPU")
    _, descale = quantize(torch.ones(2, 10, 4, 64, requires_grad=True))
    with pytest.raises(NotImplementedError, match="sm120_attn.quantize is forward only"):
        descale.sum().backward()
    library._destroy()
