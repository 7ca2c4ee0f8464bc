"""The softmax of the Hopper attention: single functions of its source, run on plain numbers."""

import itertools
import math
import struct
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
    monkeypatch.setattr(softmax, "probs_of", lambda p, scores, row_max: (softmax.exp2_of.fn(p, scores, row_max), 0.0))
    monkeypatch.setattr(softmax, "visible", lambda p, scores, *rest: scores)

    def guess(row, block, guess=True, causal=True, margin_bits=3):
        options = SimpleNamespace(guess=guess, causal=causal, margin_bits=margin_bits, block_n=128)
        p = SimpleNamespace(options=options, score_scale=0.25, causal_offset=0)
        view = SimpleNamespace(row=row, open_blocks=99)
        probability, row_max, _ = softmax.first_softmax.fn(p, Scalar(10.0), view, block)
        assert probability == pytest.approx(2 ** ((10 - row_max) * 0.25))
        return (row_max - 10) * 0.25

    assert guess(row=0, block=0) == guess(row=30, block=0) == guess(row=128, block=1) == 3
    assert guess(row=31, block=0) == guess(row=127, block=0) == guess(row=200, block=0) == 0
    assert guess(row=0, block=0, guess=False) == guess(row=0, block=0, causal=False) == 0
    assert guess(row=0, block=0, margin_bits=0) == 0


class Score(float):
    """A score of a row, with the bits of a float32."""

    def to(self, dtype, bitcast):
        assert bitcast
        return {"int32": Bits(struct.unpack("<i", struct.pack("<f", self))[0])}[dtype]


class Bits(int):
    def to(self, dtype, bitcast):
        assert bitcast
        return {"float32": struct.unpack("<f", struct.pack("<i", self))[0]}[dtype]


class Scores(list):
    def to(self, dtype, bitcast):
        return [score.to(dtype, bitcast) for score in map(Score, self)]


@pytest.mark.parametrize(
    ("scores", "row_max", "largest"),
    [
        ((1.0, -2.0, 3.5, 0.0), -1e6, 3.5),  # right for any earlier maximum
        ((0.0, -2.0, -math.inf), 5.0, 0.0),
        ((-1.0, -2.0, -7.0), -64.0, -7.0),  # too small: no probability is larger than 2 ** (64 / 8)
        ((-1.0, -2.0, -math.inf), 5.0, -math.inf),
        ((-1.0, -2.0, -7.0), -64.5, -1.0),
        ((-1.0, -2.0, -math.inf), -math.inf, -1.0),
    ],
)
def test_maxima_as_integers_are_right_or_do_no_harm(softmax, monkeypatch, scores, row_max, largest):
    flags = []
    fake = SimpleNamespace(
        full=lambda shape, value, *_: value, max=lambda x, axis: max(x), int32="int32", float32="float32",
        convert_layout=lambda x, layout, assert_trivial: x,
    )  # fmt: skip
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "int_max", lambda x: Bits(max(x)))
    monkeypatch.setattr(softmax, "flag_sums", lambda me, x, most: flags.append(x > most))
    monkeypatch.setattr(softmax, "get_flag", lambda me: flags[-1])
    p = SimpleNamespace(options=SimpleNamespace(lazy_bits=8), score_scale=1 / 8)
    found = softmax.block_max.fn(p, 0, Scores(scores), Maximum(row_max))
    assert found == largest
    assert found == max(scores) or (max(scores) < 0 and -row_max * p.score_scale <= p.options.lazy_bits)


def test_the_largest_integer_of_a_row_is_found_wherever_it_is(softmax, monkeypatch):
    def larger(a, b):
        return Array(a.shape, map(max, a.values, b.values))

    def reduce(x, axis, combine):
        assert axis == 1 and combine is larger
        return [max(x.at(row, lane) for lane in range(4)) for row in range(64)]

    monkeypatch.setattr(softmax, "gl", SimpleNamespace(reduce=reduce, static_range=range))
    monkeypatch.setattr(softmax, "ROWS", 64)
    monkeypatch.setattr(softmax, "larger", larger)
    for name in ("by_lane", "columns_apart", "groups_apart"):
        monkeypatch.setattr(softmax, name, getattr(softmax, name).fn)
    for columns in (64, 128):
        values = [[(i == row * 37 % columns) - row for i in range(columns)] for row in range(64)]
        assert softmax.int_max.fn(Array([64, columns], itertools.chain(*values))) == [1 - row for row in range(64)]


@pytest.mark.parametrize(
    ("row_max", "largest", "new_max", "shrink"),
    [
        (8.0, 40.0, 8.0, 1.0),  # by 8 bits, not more
        (8.0, 41.0, 41.0, 2.0**-8.25),
        (8.0, -3.0, 8.0, 1.0),
        (-math.inf, -40.0, -40.0, 0.0),
        (-math.inf, -math.inf, -math.inf, 0.0),
    ],
)
def test_a_maximum_is_raised_where_it_is_more_than_lazy_bits_too_small(
    softmax, monkeypatch, row_max, largest, new_max, shrink
):
    fake = SimpleNamespace(maximum=max, where=lambda c, a, b: a if c else b, exp2=lambda x: 2.0**x)
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "finite", softmax.finite.fn)
    p = SimpleNamespace(score_scale=0.25)
    assert softmax.raise_max.fn(p, row_max, largest, 8) == (new_max, shrink)


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
    monkeypatch.setattr(softmax, "raise_max", lambda p, row_max, largest, lazy: (largest + lazy, 0.25))
    monkeypatch.setattr(softmax, "flag_sums", lambda me, x, most: asked.append((me, x, most)))
    monkeypatch.setattr(softmax, "get_flag", lambda me: flag)
    p = SimpleNamespace(options=SimpleNamespace(most_lane_sum=64.0))
    found = softmax.guessed_softmax.fn(p, 1, "scores", 100.0, Maximum(7.0), 10.0)
    assert asked == [(1, 4.0, 64.0)]
    assert found == ((25.0, 0.5, 9.0, 3.5) if flag else (100.0, 2.0, 7.0, 14.0))
    softmax.guessed_softmax.fn(p, 1, "scores", 100.0, Maximum(-math.inf), 0.0)
    assert asked[-1][2] < 0, "a row that has seen no key must be searched"


def test_a_searched_block_has_the_new_maximum_and_shrinks_what_was_before(softmax, monkeypatch):
    monkeypatch.setattr(softmax, "probs_of", lambda p, scores, row_max: (2.0 ** (8 - row_max), 2.0 ** (9 - row_max)))
    monkeypatch.setattr(softmax, "shrunk", lambda total, shrink: total * shrink)
    monkeypatch.setattr(softmax, "raise_max", lambda p, row_max, largest, lazy: (largest + lazy, 0.5))
    p = SimpleNamespace(options=SimpleNamespace(lazy_bits=1.0))
    assert softmax.searched_softmax.fn(p, "scores", 8.0, 7.0, 10.0) == (0.5, 9.0, 6.0, 0.5)


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
