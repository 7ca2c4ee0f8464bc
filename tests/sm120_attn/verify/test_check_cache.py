"""The judge of `check --cache`: good results pass, each mistake is seen. On the CPU, with plain torch as kernel."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.verify import append_promises, cache_calls, cache_cases, check_cache  # noqa: E402
from sm120_attn.verify.cache_cases import CacheCase  # noqa: E402
from tests.sm120_attn.support import plain_append  # noqa: E402


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_calls, "tensors", functools.partial(cache_calls.tensors, device="cpu"))
    monkeypatch.setattr(cache_calls, "run", plain_append.run)


APPENDING = [case for case in cache_cases.matrix() if case.new is not None]
SMALL = [case for case in APPENDING if max(case.counts, default=0) < 100 > len(case.lengths)]
SOME = [case for number, case in enumerate(SMALL) if number % 6 == 0 or not case.causal]


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_a_good_result_passes(case: CacheCase) -> None:
    verdict = cache_calls.check(case)
    assert verdict.passed, verdict.why


MISTAKES = {"append": append_promises.mistakes, "cache": check_cache.mistakes}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, made in MISTAKES.items() for name in made()])
def test_a_mistake_is_seen(kind: str, name: str) -> None:
    assert MISTAKES[kind]()[name]().why


@pytest.mark.parametrize("case", [check_cache.MUTATED, check_cache.MUTATED_PREFILL, append_promises.MUTATED_FP8])
def test_what_mistakes_are_made_of_passes_without_them(case: CacheCase) -> None:
    assert cache_calls.check(case).passed
