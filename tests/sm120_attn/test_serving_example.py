"""The stub of a serving engine, on the CPU: its cache and calls, with the reference in place of the kernel."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from tests.sm120_attn.support import plain_append  # noqa: E402

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


def attend(q: Any, k_cache: Any, v_cache: Any, *, rotary_interleaved: bool, **made: Any) -> Any:
    """`attention_with_kv_cache` in plain torch."""
    options = {"causal": True, "window": None, "softcap": 0.0, "rotary_interleaved": rotary_interleaved}
    o, _ = plain_append.run({"q": q, "k_cache": k_cache, "v_cache": v_cache, **made}, options)
    return o


@pytest.mark.parametrize("kv_cache_dtype", [pytest.param("bf16", marks=pytest.mark.nightly), "nvfp4"])
def test_the_text_over_pages_is_that_of_the_dense_model(example: ModuleType, kv_cache_dtype: str) -> None:
    assert example.compare(CPU, attend, kv_cache_dtype) < example.LIMIT


@pytest.mark.parametrize(
    "mistake",
    [
        lambda made: {"cache_seqlens": made["cache_seqlens"].clamp(min=1) - 1},
        lambda made: {"rotary_interleaved": True},
        lambda made: {"v_new": made["v_new"].flip(0)},
    ],
    ids=["the newest key overwritten", "the other rotary embedding", "values of another sequence"],
)
def test_a_backend_with_a_mistake_is_seen(example: ModuleType, mistake: Any) -> None:
    def wrong(*tensors: Any, **made: Any) -> Any:
        return attend(*tensors, **made | mistake(made))

    assert example.compare(CPU, wrong) > 0.3


def test_without_pages_the_cache_says_so(example: ModuleType) -> None:
    cache = example.PagedCache(CPU)
    cache.take(1, 1000)
    with pytest.raises(IndexError):
        cache.take(1, 1000)


@pytest.mark.gpu
@pytest.mark.parametrize("kv_cache_dtype", ["bf16", "nvfp4"])
def test_the_text_over_pages_on_a_gpu(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, kv_cache_dtype: str
) -> None:
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: pip install 'nvidia-cutlass-dsl[cu13]'")
    monkeypatch.setattr(example, "NEW_TOKENS", 64)
    assert example.compare(torch.device("cuda"), kv_cache_dtype=kv_cache_dtype) < example.LIMIT
