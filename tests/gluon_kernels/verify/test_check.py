"""The judge of the attentions: the right one passes, every wrong one fails. On the CPU."""

from dataclasses import replace

import pytest

from gluon_kernels.verify import check
from gluon_kernels.verify.check import Case, judge
from tests.gluon_kernels.mutations import REFERENCES, cases_of, right

torch = pytest.importorskip("torch", reason="needs torch")


def on_cpu(attention, case, seed=3):
    return judge(case, attention, seed, "cpu")


NIGHTLY = [pytest.param(dtype, marks=pytest.mark.nightly) for dtype in ("bf16", "fp16")]


@pytest.mark.parametrize("dtype", ["fp8e4nv", *NIGHTLY])
def test_a_rounded_reference_is_right(dtype):
    for case in cases_of(dtype, 64):
        assert on_cpu(right, case).right


@pytest.mark.parametrize("name", REFERENCES)
def test_every_mutation_is_found(name):
    assert any(on_cpu(REFERENCES[name], case).reason for case in cases_of("bf16", 64))


def test_large_logits_and_a_single_key_are_judged():
    for case in (Case(40, 50, logits=1e4, causal="top-left"), Case(3, 1), Case(1, 1, dtype="fp16")):
        verdict = on_cpu(right, case)
        assert verdict.right, verdict


def test_an_error_three_times_pytorchs_is_found_and_lse_to_a_thousandth():
    case = Case(200, 300)

    def noise(o):
        return o + 0.03 * o.abs().amax(-1, keepdim=True) * torch.randn_like(o)

    def noisy(q, k, v, *, return_lse=False, **options):
        o, lse = right(q, k, v, return_lse=True, **options)
        return (noise(o), lse) if return_lse else o

    def noisy_alone(q, k, v, *, return_lse=False, **options):
        o, lse = right(q, k, v, return_lse=True, **options)
        return (o, lse) if return_lse else noise(o)

    def off(q, k, v, *, return_lse=False, **options):
        o, lse = right(q, k, v, return_lse=True, **options)
        return (o, lse + 2e-3) if return_lse else o

    assert "of its largest value" in on_cpu(noisy, case).reason
    assert "of its largest value" in on_cpu(noisy_alone, case).reason
    assert "the error of lse is" in on_cpu(off, case).reason


def test_rounded_probabilities_are_allowed_where_few_keys_take_all_and_nothing_more():
    case = Case(300, 333, dtype="fp16", logits=1e4)

    def scaled(factor, step):
        """An attention that rounds its probabilities after scaling by `factor`, plus `step` units in the last place."""

        def attention(q, k, v, *, causal=None, scale=None, return_lse=False):
            _, lse = right(q, k, v, causal=causal, scale=scale, return_lse=True)
            p = torch.softmax(q.double() @ k.double().mT * q.shape[-1] ** -0.5, -1) * factor
            rough = p.half().double() * (1 + step * 2.0**-11)
            out = ((rough @ v.double()) / p.sum(-1, keepdim=True)).half()
            return (out, lse) if return_lse else out

        return attention

    verdicts = [judge(case, scaled(factor, 0), seed, "cpu") for factor in (1.0, 1.7, 900.3) for seed in range(4)]
    assert all(verdict.right for verdict in verdicts)
    assert "of its largest value" in judge(case, scaled(1.7, 4), 0, "cpu").reason
    assert judge(replace(case, logits=None), scaled(1.7, 4), 0, "cpu").reason


def test_what_tensor_cores_lose_of_fp8_sums_is_allowed_to_the_kernel_that_has_them_and_to_lse_alone():
    def off(q, k, v, *, return_lse=False, **options):
        o, lse = right(q, k, v, return_lse=True, **options)
        return (o, lse + 2e-3) if return_lse else o

    fp8, loss = Case(64, 64, dtype="fp8e4nv"), check.FP8_LOSS["hopper"]
    assert "the error of lse is" in on_cpu(off, fp8).reason
    assert judge(fp8, off, 3, "cpu", loss).right
    assert "the error of lse is" in judge(Case(64, 64), off, 3, "cpu", loss).reason  # bf16
    assert judge(fp8, REFERENCES["zero output"], 3, "cpu", loss).reason
    large = Case(40, 50, dtype="fp8e4nv", logits=1e4)
    assert on_cpu(right, large).right
    assert "scores of 10,000 from fp8" in judge(large, right, 3, "cpu", loss).skipped


def test_what_a_kernel_declines_is_no_verdict_on_it():
    def declining(q, k, v, **options):
        raise ValueError("head_dim 64: not today")

    verdict = on_cpu(declining, Case(1, 1))
    assert (verdict.skipped, verdict.reason, verdict.right) == ("head_dim 64: not today", None, False)


def test_a_kernel_that_fails_is_wrong_and_the_others_are_still_judged():
    def failing(q, k, v, **options):
        if q.shape[2] == 1:
            raise RuntimeError("no kernel image")
        return right(q, k, v, **options)

    first, second = check.run(failing, iter([Case(1, 1), Case(2, 2)]), "cpu")
    assert "no kernel image" in first.reason and second.right
