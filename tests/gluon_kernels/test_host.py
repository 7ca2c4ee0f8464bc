"""The host's part of all kernels: checks of tensors, and problems without queries or without keys."""

import importlib
import math
import sys

import pytest

from gluon_kernels.blackwell.config import AttentionConfig
from gluon_kernels.host import check_tensors
from gluon_kernels.mma.config import MmaConfig
from tests.gluon_kernels.support.fake_torch import FakeTensor, FakeTorch, first_call_of

DTYPES = ("fp16", "bf16", "fp8e4nv")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": {"dtype": "torch.float32"}}, TypeError, "q is torch.float32: the kernel takes torch.float16, torch.bf"),
        ({"q": {"dtype": "torch.float8_e5m2"}}, TypeError, "q is torch.float8_e5m2: the kernel takes"),
        ({"q": {"shape": (256, 64)}}, ValueError, "q has shape .256, 64.: pass .batch, num_heads, seqlen, head_dim."),
        ({"k": {"shape": (256, 64)}}, ValueError, "k has shape .256, 64.: pass .batch, num_heads, seqlen, head_dim."),
        ({"k": {"dtype": "torch.bfloat16"}}, TypeError, "k is torch.bfloat16, q is torch.float16: they must be equal"),
        ({"v": {"device": "cpu"}}, ValueError, "v is on cpu:0: q, k and v must be on one CUDA device"),
        ({"v": {"shape": (1, 4, 128, 64)}}, ValueError, "k has shape .*, v .*: they must be equal"),
        ({"q": {"shape": (2, 4, 256, 64)}}, ValueError, "batch and head_dim must be equal"),
        ({"q": {"shape": (1, 4, 256, 128)}}, ValueError, "batch and head_dim must be equal"),
        ({"q": {"shape": (1, 6, 256, 64)}}, ValueError, "q has 6 heads, k 4: the first must be a multiple"),
        ({n: {"shape": (1, 0, 256, 64)} for n in "kv"}, ValueError, "q has 4 heads, k 0: the first must be a multiple"),
        ({n: {"shape": (2**10, 2**10, 2**11, 64)} for n in "qkv"}, ValueError, "too large, .* in 32 bits"),
        ({n: {"shape": (1, 4, 2**31 - 256, 64)} for n in "kv"}, ValueError, "too large, .* in 32 bits"),
        ({"k": {"address": 8}}, ValueError, r"k starts at 0x8: not 16-byte aligned; call k.clone\(\)"),
        ({"v": {"address": 8}}, ValueError, r"v starts at 0x8: not 16-byte aligned; call v.clone\(\)"),
        ({"q": {"address": 4}}, ValueError, r"q starts at 0x4: not 16-byte aligned; call q.clone\(\)"),
        ({"v": {"strides": (65536, 16384, 68, 1)}}, ValueError, "v has strides .*: all but the last must be multiples"),
        ({"q": {"strides": (65536, 16384, 1, 256)}}, ValueError, r"q's last dimension has stride 256: call q.contig"),
        ({"q": {"strides": (66000, 16500, 66, 1)}}, ValueError, r"\(66000, 16500, 66, 1\): .* 16 bytes; call q.contig"),
        (
            {"k": {"strides": (65536, 16384, 68, 1)}},
            ValueError,
            "k has strides .*: all but the last must be multiples of",
        ),
    ],
)
def test_what_is_wrong_with_a_tensor_is_named(change, error, message):
    tensors = {name: FakeTensor(**{"shape": (1, 4, 256, 64)} | change.get(name, {})) for name in "qkv"}
    with pytest.raises(error, match=message):
        check_tensors(**tensors, dtypes=DTYPES)


def test_other_lengths_shared_heads_and_transposed_tensors_are_accepted():
    q = FakeTensor(shape=(2, 8, 100, 64), strides=(51200, 64, 512, 1))  # in memory [batch, seqlen, num_heads, head_dim]
    k = FakeTensor(shape=(2, 2, 33, 64))
    assert check_tensors(q, k, k, DTYPES) == "fp16"
    # A dimension of one element is never stepped over: torch may give it any stride.
    one = FakeTensor(shape=(1, 1, 1, 64), strides=(7, 7, 7, 1))
    assert check_tensors(one, one, one, DTYPES) == "fp16"
    empty = FakeTensor(shape=(2, 2, 0, 64), strides=(1, 1, 1, 1), address=8)
    assert check_tensors(q, empty, empty, DTYPES) == "fp16"


def test_expanded_tensors_are_refused_where_the_kernel_cannot_read_them():
    q, k = FakeTensor(), FakeTensor(strides=(32768, 0, 64, 1))
    assert check_tensors(q, k, k, DTYPES) == "fp16"
    with pytest.raises(ValueError, match="be multiples of 16 bytes and not 0; call k.contiguous"):
        check_tensors(q, k, k, DTYPES, zero_strides=False)


def test_tma_gets_strides_that_it_accepts():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.device.tma_descriptor import tma_strides

    assert tma_strides((2, 8, 100, 64), (51200, 64, 512, 1)) == [51200, 64, 512, 1]
    assert tma_strides((1, 1, 1, 64), (7, 7, 7, 1)) == [64, 64, 64, 1]


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        ("blackwell", {"causal": "lower"}, "causal 'lower': must be None, 'top-left' or 'bottom-right'"),
        ("blackwell", {"scale": math.nan}, "scale nan: must be positive"),
        ("blackwell", {"config": AttentionConfig("fp16", 64)}, "seqlen_q 100: must be a multiple of 256"),
        (
            "blackwell",
            {"config": AttentionConfig("fp16", 64, causal=True)},
            "config.causal is True: these arg",
        ),
        ("mma", {"causal": True}, "causal True: must be None"),
        ("mma", {"scale": math.inf}, "scale inf: must be positive"),
        ("mma", {"config": MmaConfig("bf16", 64)}, "config.dtype is 'bf16': these arguments need 'fp16'"),
        ("mma", {"config": MmaConfig("fp16", 128)}, "config.head_dim is 128: these arguments need 64"),
        ("mma", {"name": "two words"}, "mma attention on sm_90: name 'two words': must have only letters"),
        ("hopper", {"scale": 0}, "scale 0.0: must be positive"),
        ("hopper", {"name": "two words"}, "name 'two words': must have only letters"),
    ],
)
def test_a_launch_refuses_what_the_kernel_cannot_do(kernel, options, message, monkeypatch):
    pytest.importorskip("triton", reason="needs triton")
    module = importlib.import_module(f"gluon_kernels.{kernel}.launch")
    monkeypatch.setitem(sys.modules, "torch", FakeTorch((10, 0) if kernel == "blackwell" else (9, 0)))
    q = FakeTensor((1, 1, 100, 64))
    with pytest.raises(ValueError, match=message):
        first_call_of(module)(q, q, q, **options)
