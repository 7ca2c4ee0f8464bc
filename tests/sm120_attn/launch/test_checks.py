"""What calls are refused, and what the errors say. On the CPU, with a stand-in for the kernel."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn import attention  # noqa: E402
from tests.sm120_attn.support.fake_kernel import FakeKernel, qkv  # noqa: E402


def _cu(*values: int):
    return torch.tensor(values, dtype=torch.int32)


REFUSED = {
    "q has 3 and k 3 dimensions.*or packed": lambda: (qkv(20, 2, 64), {}),
    "k has a size|head_dim is 64 in q, 128 in k": lambda: ((qkv(1, 20, 2, 64)[0], *qkv(1, 20, 2, 128)[1:]), {}),
    "3 query heads and 2 key heads": lambda: (qkv(1, 20, 3, 64, heads_kv=2), {}),
    "batch is 2 in q and 1 in k": lambda: ((qkv(2, 20, 2, 64)[0], *qkv(1, 20, 2, 64)[1:]), {}),
    r"k is \[1, 20, 2, 64\] and v is \[1, 21, 2, 64\]": lambda: ((*qkv(1, 20, 2, 64)[:2], qkv(1, 21, 2, 64)[2]), {}),
    "head_dim 260: must be 32 to 256": lambda: (qkv(1, 20, 2, 260), {}),
    "head_dim 24: must be 32 to 256": lambda: (qkv(1, 20, 2, 24), {}),
    "scale is -1.0: must be finite and greater than 0": lambda: (qkv(1, 20, 2, 64), {"scale": -1.0}),
    "scale is nan": lambda: (qkv(1, 20, 2, 64), {"scale": math.nan}),
    "softcap is -2.0": lambda: (qkv(1, 20, 2, 64), {"softcap": -2.0}),
    "align is 'middle'": lambda: (qkv(1, 20, 2, 64), {"align": "middle"}),
    "window's left is -5": lambda: (qkv(1, 20, 2, 64), {"window": (-5, 0)}),
    "window is 5: must be": lambda: (qkv(1, 20, 2, 64), {"window": 5}),
    r"q is \[1, 20, 2, 0\]: must have a last dimension": lambda: (qkv(1, 20, 2, 0), {}),
    r"q is \[\]: must have a last dimension": lambda: (
        [torch.tensor(1.0)] * 3,
        {"cu_seqlens_q": _cu(0, 20), "cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "max_seqlen_q and max_seqlen_k are needed": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 20), "cu_seqlens_k": _cu(0, 20)},
    ),
    "cu_seqlens_q is missing": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "cu_seqlens_k is missing": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
    "cu_seqlens_q has 3 entries and cu_seqlens_k 2": lambda: (
        qkv(20, 2, 64),
        {"cu_seqlens_q": _cu(0, 5, 20), "cu_seqlens_k": _cu(0, 20), "max_seqlen_q": 20, "max_seqlen_k": 20},
    ),
}


def test_what_is_no_tensor_is_named(kernel: FakeKernel) -> None:
    q, _, v = qkv(1, 20, 2, 64)
    with pytest.raises(TypeError, match=r"k is of type list: must be a torch\.Tensor"):
        attention(q, [1.0], v)
    for name, given in {"k_descale": 0.5, "sinks": [1.0, 2.0], "cu_seqlens_q": [0, 20]}.items():
        with pytest.raises(TypeError, match=f"{name} is of type {type(given).__name__}"):
            attention(q, v, v, **{name: given})


@pytest.mark.parametrize("message", REFUSED)
def test_a_bad_call_says_what_is_wrong(kernel: FakeKernel, message: str) -> None:
    tensors, options = REFUSED[message]()
    with pytest.raises(ValueError, match=message):
        attention(*tensors, **options)
    assert kernel.calls == []


def test_a_bad_dtype_says_what_is_wrong(kernel: FakeKernel) -> None:
    q, k, v = qkv(1, 20, 2, 64)
    with pytest.raises(
        TypeError, match="q is torch.float32: must be one of torch.bfloat16, torch.float16, torch.float8"
    ):
        attention(q.float(), k, v)
    with pytest.raises(TypeError, match="v is torch.float16 and q is torch.bfloat16"):
        attention(q, k, v.half())


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="q is on cpu: must be on a CUDA device"):
        attention(*qkv(1, 20, 2, 64))


@pytest.mark.parametrize(
    ("message", "dtype", "options"),
    [
        ("q_descale is given with torch.bfloat16 inputs", torch.bfloat16, {"q_descale": torch.ones(())}),
        ("out_dtype is torch.float32 with torch.bfloat16 inputs", torch.bfloat16, {"out_dtype": torch.float32}),
        ("out_dtype is torch.float64", torch.float8_e4m3fn, {"out_dtype": torch.float64}),
        ("k_descale is torch.float64", torch.float8_e4m3fn, {"k_descale": torch.ones((), dtype=torch.float64)}),
        (r"v_descale is \[2, 4\]: must be one number, or", torch.float8_e5m2, {"v_descale": torch.ones(2, 4)}),
    ],
)
def test_a_bad_fp8_call_says_what_is_wrong(kernel: FakeKernel, message: str, dtype, options: dict) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        attention(*qkv(2, 16, 4, 64, heads_kv=2, dtype=dtype), **options)
    assert not kernel.calls
