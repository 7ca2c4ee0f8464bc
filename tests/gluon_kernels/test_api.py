"""Which kernel computes an operator on which GPU, and what it gets."""

import sys
from types import SimpleNamespace

import pytest

from gluon_kernels import api
from gluon_kernels.api import attention, kernels_for


def test_every_architecture_has_its_kernels_fastest_first():
    assert kernels_for(80) == kernels_for(120) == kernels_for(121) == ("mma",)
    assert kernels_for(90) == ("hopper", "mma")
    assert kernels_for(100) == kernels_for(103) == ("blackwell",)
    with pytest.raises(ValueError, match="sm_75 has no kernel; there are kernels for sm_80, sm_90"):
        kernels_for(75)


def test_a_tensor_that_is_not_on_a_gpu_is_named():
    pytest.importorskip("torch", reason="needs torch")
    q = SimpleNamespace(device=SimpleNamespace(type="cpu", __str__=lambda self: "cpu"))
    with pytest.raises(ValueError, match="the kernels run on CUDA devices"):
        attention(q, q, q)


OPTIONS = {"causal": "top-left", "scale": 0.5, "return_lse": True, "name": "mine"}


def on_gpu(monkeypatch, *operators, compiling=False):
    """q of a GPU whose kernels are `operators`, with torch compiling or not."""
    compiler = SimpleNamespace(is_compiling=lambda: compiling)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(compiler=compiler))
    monkeypatch.setattr(api, "_operators", lambda device: operators if device == 3 else None)
    return SimpleNamespace(device=SimpleNamespace(type="cuda"), get_device=lambda: 3)


def test_the_fastest_kernel_that_takes_a_call_gets_all_of_it(monkeypatch):
    def picky(*tensors, **options):
        raise TypeError("q is too long")

    q = on_gpu(monkeypatch, picky, lambda *tensors, **options: (tensors, options), None)
    assert attention(q, "k", "v", **OPTIONS) == ((q, "k", "v"), OPTIONS)


def test_a_call_that_no_kernel_takes_raises_all_reasons_as_the_first(monkeypatch):
    def refuse(error):
        raise error

    errors = [TypeError("q is too long"), ValueError("k is too short")]
    q = on_gpu(monkeypatch, *(lambda *tensors, error=e, **options: refuse(error) for e in errors))
    with pytest.raises(TypeError, match="^q is too long; k is too short$"):
        attention(q, "k", "v")
