"""The judge of `check`: a good result passes, each kind of mistake is seen. On the CPU, the reference as kernel."""

import argparse
import functools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn.compile.build import source_hash  # noqa: E402
from sm120_attn.config import Config  # noqa: E402
from sm120_attn.launch.strides import is_aligned  # noqa: E402
from sm120_attn.verify import cache_calls, cache_cases, cases, check, inputs, judging, reference  # noqa: E402
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


SOME = [case for case in cases.matrix() if case.rows * case.keys * case.batch < 300_000][::19]


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_a_good_result_passes(on_cpu: None, case: Case) -> None:
    verdict = judging.check(case)
    assert verdict.passed, verdict.why
    assert verdict.ratio < 1.5


FP8 = [case for case in cases.fp8_matrix() if case.rows * case.keys * case.batch < 300_000][::11]


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
    assert "of the rows are not what the replay" in judging.judge(case, made, options, o, lse).why


def test_a_mistake_that_cannot_be_tried_counts_as_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> judging.Verdict:
        raise RuntimeError("the CuTe DSL cannot compile it")

    assert check._seen("a kernel", broken) == ""
    assert "a kernel: RuntimeError: the CuTe DSL" in capsys.readouterr().err


def test_fp8_has_two_tilings_to_choose_from() -> None:
    """Given --fp8, when a kernel is named that it does not have, then it says which there are."""
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    chosen = check.selected(parser.parse_args(["--fp8", "--kernel", "all"]))
    assert len(chosen) == 3 * len(list(cases.fp8_matrix()))
    for kernel in ("cp_async", "tiles 3"):
        with pytest.raises(ValueError, match="with --fp8 it must be tiles 0, tiles 1 or all"):
            check.selected(parser.parse_args(["--fp8", "--kernel", kernel]))


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
    assert "x the yardstick's" in verdict.why


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


@pytest.mark.parametrize("layout", cache_cases.LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_every_layout_of_a_cache_has_aligned_rows(layout: str, dtype: torch.dtype) -> None:
    assert is_aligned(cache_calls.lay_out(layout, (3, 16, 2, 80), dtype, "cpu", 1))


@pytest.mark.parametrize(("value", "seen"), [(5e-39, False), (5e-38, True)])
def test_zero_passes_for_numbers_below_the_smallest_normal_one_only(value: float, seen: bool) -> None:
    wanted = torch.full((1, 2, 4, 8), value, dtype=torch.float64)
    lse = torch.zeros(1, 4, 2, dtype=torch.float64)
    yard = wanted.to(torch.bfloat16).double()
    found = torch.zeros(wanted.shape, dtype=torch.bfloat16)
    verdict = judging.compare("case", "tma", (found, None), (wanted, lse), yard, judging.ROUNDING["bf16"])
    assert verdict.passed is not seen


def test_an_output_of_another_shape_or_dtype_is_seen(on_cpu: None) -> None:
    case = Case("shape", 20, 30)
    made, options = inputs.tensors(case)
    o, lse = good(case, made, options)
    assert "output is" in judging.judge(case, made, options, o.float(), lse).why
    assert "output is" in judging.judge(case, made, options, o.transpose(1, 2), lse).why
    assert "LSE is [" in judging.judge(case, made, options, o, lse.transpose(1, 2)).why


def test_an_error_of_ours_is_a_failure_and_a_lost_gpu_ends_it(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "run", lambda *_: (_ for _ in ()).throw(ValueError("no such kernel")))
    assert judging.check(Case("error")).why == "ValueError: no such kernel"
    monkeypatch.setattr(judging, "run", lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA error: illegal address")))
    with pytest.raises(RuntimeError, match="illegal address"):
        judging.check(Case("lost"))


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_layout_has_the_same_values_elsewhere(layout: str, packed: bool) -> None:
    # given
    values = torch.arange(2 * 9 * 3 * 16, dtype=torch.float32).view(2, 9, 3, 16)
    values = values[0] if packed else values

    # when
    laid = inputs.lay_out(layout, values)

    # then
    wanted = values[..., :1, :].expand(values.shape) if layout == "expanded" else values
    assert torch.equal(laid, wanted)
    if layout in ("poisoned", "narrow"):
        everything = torch.as_strided(laid, (laid.untyped_storage().nbytes() // 4,), (1,), 0)
        assert everything.isnan().any()
    if layout == "misaligned":
        assert laid.data_ptr() % 16 and laid.stride(-2) % 8


def test_values_are_what_their_name_says() -> None:
    made, _ = inputs.tensors(Case("v", 40, 50, values="equal"), device="cpu")
    assert (made["k"] == 0.5).all()
    made, _ = inputs.tensors(Case("v", 200, 200, values="large"), device="cpu")
    scores = torch.einsum("bihd,bjhd->bhij", made["q"].float(), made["k"].float()) / math.sqrt(128)
    assert scores.abs().max() > 1e3


@pytest.mark.parametrize(("left", "passes"), [(1e-36, True), (1e-28, False)])
def test_what_a_sink_leaves_of_a_row_may_be_below_float32(left: float, passes: bool) -> None:
    zeros, wanted = torch.zeros(1, 4, 1, 8), torch.full((1, 4, 1, 8), left, dtype=torch.float64)
    smallest = judging.SMALLEST_BESIDE_A_SINK
    verdict = judging.compare("sink", "tma", (zeros, None), (wanted, wanted[..., 0].mT), wanted, 1e-3, (), smallest)
    replay = judging._judge_replay(zeros.double(), wanted, wanted, 1e-3, smallest)
    assert (verdict.passed, not replay) == (passes, passes)


def test_random_cases_are_as_many_as_asked(on_cpu: None) -> None:
    verdicts = check.check_random(25)
    assert verdicts == check.check_random(25) != check.check_random(25, 9)
    assert len(verdicts) == 25
    assert all(verdict.passed for verdict in verdicts)
    assert len({verdict.name for verdict in verdicts}) > 20


def test_the_result_names_its_seed_its_sources_and_the_worst_case(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "compile_ahead_if_missing", lambda *_: None)
    monkeypatch.setattr("sm120_attn.launch.prepare.device_facts", lambda number: ("sm_90a", 132))
    few = SOME[:3]
    result = check.check_all(few, 0, True, 1, 11)
    assert (result["cases"], result["random_seed"], result["fp8"], result["passed"]) == (3, 11, False, True)
    assert result["sources"] == source_hash(Config)
    ratios = {verdict["name"]: verdict["ratio"] for verdict in result["verdicts"]}
    worst = result["worst_case"]
    assert ratios[worst["name"]] == worst["ratio"] == result["worst_error_ratio"] == max(ratios.values())


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
