"""On a GPU: a part of `check --cache`, all of its mistakes and promises, and torch.compile of a call that appends."""

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: pip install 'nvidia-cutlass-dsl[cu13]'")

from sm120_attn import attention_with_kv_cache  # noqa: E402
from sm120_attn.verify import append_promises, cache_calls, cache_cases, check_cache  # noqa: E402
from sm120_attn.verify.selftest import QUICK_CACHE  # noqa: E402

MISTAKES = check_cache.mistakes() | append_promises.mistakes()
PROMISES = check_cache.promises() | append_promises.promises()


def test_a_part_of_the_matrix() -> None:
    chosen = [case for case in cache_cases.matrix() if any(case.name.startswith(text) for text in QUICK_CACHE)]
    failed = [verdict for case in chosen if not (verdict := cache_calls.check(case)).passed]
    assert len(chosen) > 30
    assert failed == []


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_is_seen(name: str) -> None:
    assert MISTAKES[name]().why


@pytest.mark.parametrize("name", list(PROMISES))
def test_a_promise_is_kept(name: str) -> None:
    assert PROMISES[name]() == ""


def test_a_compiled_model_appends() -> None:
    """Given a compiled function that appends and attends, when run, then output and cache are those of a plain call."""
    case = append_promises.PROMISED
    made, options = cache_calls.tensors(case)
    again, _ = cache_calls.tensors(case)
    with torch.no_grad():
        o, lse = attention_with_kv_cache(**made, **options)
        compiled = torch.compile(lambda: attention_with_kv_cache(**again, **options), fullgraph=True)()
    assert torch.equal(o, compiled[0]) and torch.equal(lse, compiled[1])
    for name in ("k_cache", "v_cache"):
        assert torch.equal(made[name].view(torch.int16), again[name].view(torch.int16))
