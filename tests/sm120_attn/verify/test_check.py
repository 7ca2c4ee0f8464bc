"""The judge of `check`: a good result passes, each kind of mistake is seen. On the CPU, the reference as kernel."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.verify import cases, check, inputs, judging, reference  # noqa: E402
from sm120_attn.verify.cases import Case  # noqa: E402
from sm120_attn.verify.reference import attention_reference  # noqa: E402
from sm120_attn.verify.wrong_results import MUTATED_FP8, mutations  # noqa: E402


def good(case, made, options):
    """What a correct 16-bit kernel returns."""
    o, lse = attention_reference(**made, **options, low_precision=True)
    return o.to(options.get("out_dtype", made["q"].dtype)).contiguous(), lse.float() if case.lse else None


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "tensors", functools.partial(inputs.tensors, device="cpu"))
    monkeypatch.setattr(judging, "run", good)


SOME = [case for case in cases.matrix() if case.rows * case.keys * case.batch < 300_000][::37]


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_a_good_result_passes(on_cpu: None, case: Case) -> None:
    verdict = judging.check(case)
    assert verdict.passed, verdict.why
    assert verdict.ratio < 1.5


FP8 = [case for case in cases.fp8_matrix() if case.rows * case.keys * case.batch < 300_000][::23]


@pytest.mark.parametrize("case", FP8, ids=lambda case: case.name)
def test_a_good_fp8_result_passes(on_cpu: None, case: Case) -> None:
    verdict = judging.check(case)
    assert verdict.passed, verdict.why


@pytest.mark.parametrize("name", list(mutations(MUTATED_FP8)))
def test_a_mistake_is_seen_in_fp8(on_cpu: None, name: str) -> None:
    assert mutations(MUTATED_FP8)[name]().why


@pytest.mark.parametrize("lengths", [(), ((150, 210), (13, 200))])
def test_fp8_that_is_rounded_another_way_is_seen(on_cpu: None, monkeypatch: pytest.MonkeyPatch, lengths) -> None:
    """Given probabilities without the bias of the kernel, when judged, then the replay tells it."""
    case = Case("bias", 150, 210, dtype="e4m3", out_dtype="fp32", mask="causal", lengths=lengths)
    made, options = inputs.tensors(case)
    monkeypatch.setattr(reference, "BIAS_AND_LAZY_BITS", {"e4m3": (5.5, 2.75)})
    o, lse = good(case, made, options)
    monkeypatch.undo()
    assert "of the rows differ from the replay" in judging.judge(case, made, options, o, lse).why


@pytest.mark.parametrize("name", list(mutations()))
def test_a_mistake_is_seen(on_cpu: None, name: str) -> None:
    assert mutations()[name]().why


def test_a_slightly_worse_kernel_is_seen(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # given probabilities in 8 bits of mantissa less one: about twice the rounding error, plus its own
    case = Case("worse", 150, 210, mask="causal")
    made, options = inputs.tensors(case)
    o, lse = good(case, made, options)
    noise = 1 + (torch.rand(o.shape) - 0.5) * 2**-5
    verdict = judging.judge(case, made, options, (o.float() * noise).to(o.dtype), lse)
    assert "x the reference error" in verdict.why


def test_an_lse_that_is_a_little_off_is_seen(on_cpu: None) -> None:
    case = Case("lse", 20, 30)
    made, options = inputs.tensors(case)
    o, lse = good(case, made, options)
    assert judging.judge(case, made, options, o, lse + 9e-4).passed
    assert "LSE is off by" in judging.judge(case, made, options, o, lse + 2e-3).why


def test_a_blind_row_must_be_zero_and_minus_infinity(on_cpu: None) -> None:
    case = Case("blind", 30, 10, mask="causal", batch=1, heads=1, heads_kv=1)
    made, options = inputs.tensors(case)
    o, lse = good(case, made, options)
    assert torch.isneginf(lse[0, 0, :20]).all()
    o[0, 3, 0, 5] = 1e-30
    assert "a row without a visible key is not zero" in judging.judge(case, made, options, o, lse).why
    o[0, 3, 0, 5] = 0
    lse[0, 0, 3] = -1e30
    assert "LSE is -inf in the wrong rows" in judging.judge(case, made, options, o, lse).why


def test_an_output_of_another_shape_or_dtype_is_seen(on_cpu: None) -> None:
    case = Case("shape", 20, 30)
    made, options = inputs.tensors(case)
    o, lse = good(case, made, options)
    assert "output is" in judging.judge(case, made, options, o.float(), lse).why
    assert "output is" in judging.judge(case, made, options, o.transpose(1, 2), lse).why
    assert "LSE is [" in judging.judge(case, made, options, o, lse.transpose(1, 2)).why


def test_random_cases_are_as_many_as_asked(on_cpu: None) -> None:
    verdicts = check.check_random(5)
    assert verdicts == check.check_random(5) != check.check_random(5, 9)
    assert len(verdicts) == 5
    assert all(verdict.passed for verdict in verdicts)
    assert len({verdict.name for verdict in verdicts}) > 3


class CompilerError(Exception):
    """As the DSL's, which are of no common kind."""


@pytest.mark.parametrize("error", [CompilerError("no such layout"), RuntimeError("CUDA out of memory")])
def test_a_case_that_cannot_run_fails_and_the_others_still_count(on_cpu: None, monkeypatch, error: Exception) -> None:
    def run(*arguments):
        raise error

    monkeypatch.setattr(judging, "run", run)
    verdict = judging.check(Case("cannot", 20, 30))
    assert not verdict.passed and str(error) in verdict.why


def test_a_lost_context_ends_the_check(on_cpu: None, monkeypatch) -> None:
    def run(*arguments):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(judging, "run", run)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        judging.check(Case("lost", 20, 30))
