"""What all launchers make of tensors without queries or without keys: nothing is launched, and rows are blind."""

import importlib
import math
import sys

import pytest
from fake_torch import FakeTensor, FakeTorch

pytest.importorskip("triton", reason="requires triton")


class Filled(FakeTensor):
    """A tensor that remembers what it was filled with."""

    value = None

    def zero_(self):
        self.value = 0.0

    def fill_(self, value):
        self.value = value


class Torch(FakeTorch):
    @staticmethod
    def empty_like(x, dtype=None):
        return Filled(x.shape, dtype or x.dtype)

    @staticmethod
    def empty(shape, dtype, device):
        return Filled(tuple(shape), dtype)


@pytest.mark.parametrize(("kernel", "capability"), [("mma", (9, 0)), ("hopper", (9, 0)), ("blackwell", (10, 0))])
@pytest.mark.parametrize(("queries", "keys"), [(17, 0), (0, 64), (0, 0)])
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_without_queries_or_keys_nothing_is_launched(kernel, capability, queries, keys, causal, monkeypatch):
    module = importlib.import_module(f"gluon_kernels.attention_{kernel}")
    monkeypatch.setattr(module, "attention_kernel", None)  # a launch would fail
    monkeypatch.setitem(sys.modules, "torch", Torch(capability))
    q, k = Filled((2, 8, queries, 64)), Filled((2, 2, keys, 64))
    o, lse = module.attention(q, k, k, causal=causal, return_lse=True)
    assert (o.shape, o.value, lse.shape, lse.value) == (q.shape, 0.0, q.shape[:3], -math.inf)
    assert module.attention(q, k, k, causal=causal).value == 0.0


@pytest.mark.parametrize("kernel", ["mma", "hopper", "blackwell"])
def test_rows_without_columns_are_refused(kernel, monkeypatch):
    module = importlib.import_module(f"gluon_kernels.attention_{kernel}")
    monkeypatch.setitem(sys.modules, "torch", Torch())
    q = Filled((2, 8, 17, 0))
    with pytest.raises(ValueError, match=r"q has shape \(2, 8, 17, 0\): only lengths may be 0"):
        module.attention(q, q, q)
