"""Which cases the quick self-test takes."""

from __future__ import annotations

from sm120_attn.verify import cache_cases, check_cache, selftest


def test_the_quick_cases_of_a_cache_have_every_kind_and_few_kernels() -> None:
    chosen = {
        text: [case for case in cache_cases.matrix() if case.name.startswith(text)] for text in selftest.QUICK_CACHE
    }
    assert all(chosen.values())
    cases = [case for found in chosen.values() for case in found]
    assert {case.kv_dtype for case in cases} == {"", "e4m3", "mxfp8", "nvfp4"} and any(case.new for case in cases)
    assert any(max(case.counts) > 16 for case in cases) and {case.rotary for case in cases} > {"half", "interleaved"}
    assert len(check_cache.needed(cases, "sm_120a", 170, False, True)) <= 30
    assert len(check_cache.needed(cases, "sm_120a", 170)) > 60  # with those of random cases, mistakes and promises
