"""The judge of fp8 on kinds of data: losses of rounded probabilities pass, what fp8 kernels have lost does not."""

import math

import pytest

from gluon_kernels.verify.fp8_accuracy import (
    KINDS,
    MOST_ONES_ERROR,
    ONES,
    Accuracy,
    AccuracyCase,
    judge_accuracy,
)
from tests.gluon_kernels.mutations import right

torch = pytest.importorskip("torch", reason="needs torch")


def case(kind, **fields):
    return AccuracyCase(kind, 512, 64, "fp8e4nv", seqlen_q=48, num_heads=1, **fields)


def on_cpu(attention, kind, **fields):
    return judge_accuracy(case(kind, **fields), attention, 3, "cpu")


def probabilities(q, k, causal):
    scores = q.double() @ k.double().mT * q.shape[-1] ** -0.5
    if causal:
        rows, keys = scores.shape[-2:]
        scores = scores.masked_fill(torch.arange(keys) > torch.arange(rows)[:, None] + keys - rows, -math.inf)
    return torch.exp(scores - scores.amax(-1, keepdim=True))


def made(weigh):
    """An attention whose O is made by `weigh(p, v)` of probabilities relative to the row's largest."""

    def attention(q, k, v, *, causal=None, return_lse=False):
        out = weigh(probabilities(q, k, causal), v.double()).bfloat16()
        return (out, None) if return_lse else out

    return attention


def truncated_sums(p, v):
    """O added up in few bits, as in one accumulator of fp8 wgmma over all keys; the row sums are exact."""
    o = torch.zeros((*p.shape[:-1], v.shape[-1]), dtype=torch.float64)
    for key in range(p.shape[-1]):
        o += p[..., key, None] * v[..., key, None, :]
        step = torch.exp2(torch.floor(torch.log2(o.abs().clamp_min(1e-30))) - 9)
        o = torch.trunc(o / step) * step
    return o / p.sum(-1, keepdim=True)


def rough_codes(p, v):
    """Probabilities of straight lines between powers of two, up to 6 % too large."""
    exponent = torch.floor(torch.log2(p.clamp_min(2.0**-100)))
    line = torch.exp2(exponent) * (1 + torch.log2(p.clamp_min(2.0**-100)) - exponent)
    return (line @ v) / line.sum(-1, keepdim=True)


def small_ones_lost(p, v):
    """Probabilities 8 bits below the largest are 0."""
    kept = torch.where(p < 2.0**-8, 0.0, p)
    return (kept @ v) / kept.sum(-1, keepdim=True)


def rounded_maximum(p, v):
    """Probabilities in fp8 relative to a guess, so that the largest is rounded too; sums of those before rounding."""
    p = p * 1.6
    return ((p * 2**7).to(torch.float8_e4m3fn).double() / 2**7 @ v) / p.sum(-1, keepdim=True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_attention_passes(kind):
    for causal in (False, True):
        found = on_cpu(right, kind, causal=causal)
        assert found.reason is None and found.rms_ratio < 1.1, found


@pytest.mark.parametrize(
    ("weigh", "kind"),
    [
        (truncated_sums, ONES),
        (truncated_sums, "V of mean 1"),
        (rough_codes, "first key at 7.8 nats"),
        (small_ones_lost, "last key at 9.2 nats"),
        (rounded_maximum, "first key at 9.2 nats"),
        (rounded_maximum, "q = k"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_what_fp8_kernels_have_lost_is_found(weigh, kind):
    assert on_cpu(made(weigh), kind).reason is not None


def test_nan_is_found():
    assert on_cpu(made(lambda p, v: p @ v * math.nan), "normal").reason is not None
    assert on_cpu(made(lambda p, v: p @ v * math.nan), ONES).reason is not None


def test_the_allowance_is_that_of_the_measure_or_of_rounding_and_of_wgmma_only_where_it_is_given():
    exact = Accuracy(case("normal"), 0.0, 0.0, 0.02, 0.04)
    assert exact.allowed == (pytest.approx(1.15 * 0.02), pytest.approx(1.5 * 0.04))
    assert Accuracy(case("normal"), 0.0, 0.0, 0.0, 0.0).allowed == (1.15 * 2.0**-9, 1.5 * 2.0**-9)
    hopper = Accuracy(case("normal"), 0.024, 0.07, 0.02, 0.04, None, (0.01, 0.05))
    assert hopper.allowed[1] == pytest.approx(0.075) and "the error is 2.40e-02" in hopper.reason
    assert Accuracy(case(ONES), 0.0, 0.0, 0.0, 0.0, 2 * MOST_ONES_ERROR).reason.startswith("with V of ones")


def test_a_row_of_ones_may_be_the_number_below_one_and_rows_of_other_data_may_not():
    below = (0.0, MOST_ONES_ERROR * (1 + 1e-12), 0.0, 0.0)  # as computed beside a reference in float64
    assert Accuracy(case(ONES), *below, MOST_ONES_ERROR).reason is None
    assert "worst row" in Accuracy(case("normal"), *below).reason
    assert "the error" in Accuracy(case(ONES), MOST_ONES_ERROR, MOST_ONES_ERROR, 0.0, 0.0, MOST_ONES_ERROR).reason


def test_sinks_are_as_heavy_as_they_are_called():
    for kind, key in (("first key at 9.2 nats", 0), ("last key at 12.0 nats", -1)):
        q, k, _ = case(kind).inputs(0, "cpu")
        scores = q.double() @ k.double().mT / 8
        assert scores[..., key] == pytest.approx(float(kind.split()[3]), rel=0.05)
        assert abs(float(scores[..., 1:-1].mean())) < 0.1
