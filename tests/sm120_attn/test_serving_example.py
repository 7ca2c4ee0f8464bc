"""The stub of a serving engine, on the CPU: its cache and calls, with the reference in place of the kernel."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.verify import check_cache  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("serving_backend", ROOT / "examples" / "serving_backend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serving_backend", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NEW_TOKENS", 13)  # 37 tokens and these: the end of a page is crossed
    return module


def attend(q: Any, k_cache: Any, v_cache: Any, **made: Any) -> Any:
    """`attention_with_kv_cache` in float64."""
    options = {"causal": True, "window": None, "softcap": 0.0}
    o, _ = check_cache.reference({"q": q, "k_cache": k_cache, "v_cache": v_cache, **made}, options)
    return o.to(q.dtype)


def test_the_text_over_pages_is_that_of_the_dense_model(example: ModuleType) -> None:
    assert example.compare(CPU, attend) < 0.04


def test_a_backend_that_forgets_the_newest_key_is_seen(example: ModuleType) -> None:
    def forgets(*tensors: Any, cache_seqlens: Any, **made: Any) -> Any:
        return attend(*tensors, cache_seqlens=cache_seqlens - 1, **made)

    assert example.compare(CPU, forgets) > 0.3


def test_without_pages_the_cache_says_so(example: ModuleType) -> None:
    cache = example.PagedCache(CPU)
    cache.take(1, 1000)
    with pytest.raises(IndexError):
        cache.take(1, 1000)


@pytest.mark.gpu
def test_the_text_over_pages_on_a_gpu(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: pip install 'nvidia-cutlass-dsl[cu13]'")
    monkeypatch.setattr(example, "NEW_TOKENS", 64)
    assert example.compare(torch.device("cuda")) < 0.04
