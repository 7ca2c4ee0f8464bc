"""The softmax of the Hopper attention: single functions of its source, run on plain numbers."""

import itertools
import math
from types import SimpleNamespace

import pytest

from tests.gluon_kernels.support.arrays import Array


@pytest.fixture
def softmax():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import softmax

    return softmax


class Scalar(float):
    """A number in place of a tensor."""

    def __getitem__(self, _):
        return self

    def __rsub__(self, other):
        return Scalar(other - float(self))

    def __mul__(self, other):
        return Scalar(float(self) * other)


def test_a_row_guesses_more_only_where_a_mask_leaves_it_few_keys(softmax, monkeypatch):
    fake = SimpleNamespace(max=lambda x, _: x, where=lambda c, a, b: a if c else b, exp2=lambda x: Scalar(2**x))
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "finite", Scalar)
    monkeypatch.setattr(softmax, "MARGIN_BITS", 3)
    monkeypatch.setattr(softmax, "probs_of", lambda p, scores, row_max: (softmax.exp2_of.fn(p, scores, row_max), 0.0))
    monkeypatch.setattr(softmax, "visible", lambda p, scores, *rest: scores)

    def guess(row, block, causal=True):
        options = SimpleNamespace(causal=causal, block_n=128)
        p = SimpleNamespace(options=options, score_scale=0.25, causal_offset=0)
        view = SimpleNamespace(row=row, open_blocks=99)
        probability, row_max, _ = softmax.first_softmax.fn(p, Scalar(10.0), view, block)
        assert probability == pytest.approx(2 ** ((10 - row_max) * 0.25))
        return (row_max - 10) * 0.25

    assert guess(row=0, block=0) == guess(row=30, block=0) == guess(row=128, block=1) == 3
    assert guess(row=31, block=0) == guess(row=127, block=0) == guess(row=200, block=0) == 0
    assert guess(row=0, block=0, causal=False) == 0


@pytest.mark.parametrize(
    ("row_max", "largest", "new_max", "shrink"),
    [
        (8.0, 8.5, 8.5, 2.0**-0.125),
        (8.0, 41.0, 41.0, 2.0**-8.25),
        (8.0, -3.0, 8.0, 1.0),
        (-math.inf, -40.0, -40.0, 0.0),
        (-math.inf, -math.inf, -math.inf, 0.0),
    ],
)
def test_a_maximum_that_is_too_small_is_raised(softmax, monkeypatch, row_max, largest, new_max, shrink):
    fake = SimpleNamespace(maximum=max, where=lambda c, a, b: a if c else b, exp2=lambda x: 2.0**x)
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "finite", softmax.finite.fn)
    p = SimpleNamespace(score_scale=0.25)
    assert softmax.raise_max.fn(p, row_max, largest) == (new_max, shrink)


@pytest.mark.parametrize("flag", [0, 1])
def test_a_guess_is_kept_or_the_block_is_computed_again_with_its_true_maximum(softmax, monkeypatch, flag):
    """Without the flag: the guess, and sums beside it. With it: the maximum, and O and the sum shrink to it."""
    asked = []
    fake = SimpleNamespace(max=lambda *_: 9.0, where=lambda c, a, b: a if c else b)
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "probs_of", lambda p, scores, row_max: (2.0 ** (8 - row_max), 2.0 ** (9 - row_max)))
    monkeypatch.setattr(softmax, "beside", lambda x, like: x)
    monkeypatch.setattr(softmax, "shrunk", lambda total, shrink: total * shrink)
    monkeypatch.setattr(softmax, "scale_rows", lambda o, shrink: o * shrink)
    monkeypatch.setattr(softmax, "raise_max", lambda p, row_max, largest: (largest, 0.25))
    monkeypatch.setattr(softmax, "flag_sums", lambda me, x, most: asked.append((me, x, most)))
    monkeypatch.setattr(softmax, "get_flag", lambda me: flag)
    p = SimpleNamespace(options=SimpleNamespace(most_lane_sum=64.0))
    found = softmax.next_softmax.fn(p, 1, "scores", 100.0, Maximum(7.0), 10.0)
    assert asked == [(1, 4.0, 64.0)]
    assert found == ((25.0, 0.5, 9.0, 3.5) if flag else (100.0, 2.0, 7.0, 14.0))
    softmax.next_softmax.fn(p, 1, "scores", 100.0, Maximum(-math.inf), 0.0)
    assert asked[-1][2] < 0, "a row that has seen no key must be searched"


@pytest.mark.parametrize("columns", [64, 128])
def test_sums_of_fp8_are_of_all_columns_that_a_lane_has(softmax, monkeypatch, columns):
    def add(a, b):
        assert a.shape == b.shape and a.shape[-1] == 2, "an instruction adds up neighbours, which share a register"
        return Array(a.shape, map(int.__add__, a.values, b.values))

    monkeypatch.setattr(softmax, "ROWS", 64)
    monkeypatch.setattr(softmax, "add_halves", add)
    monkeypatch.setattr(softmax, "half_sums", softmax.half_sums.fn)
    x = Array([64, columns // 8, 4, 2], [i * i % 1009 for i in range(64 * columns)])
    found = softmax.half_sums(x)
    assert found.shape == [64, 1, 4, 2]
    for row, lane, i in itertools.product(range(64), range(4), range(2)):
        assert found.at(row, 0, lane, i) == sum(x.at(row, group, lane, i) for group in range(columns // 8))


class Maximum(float):
    type = SimpleNamespace(layout=None)
