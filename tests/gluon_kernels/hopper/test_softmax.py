"""The softmax of the Hopper attention: single functions of its source, run on plain numbers."""

import itertools
import math
import struct
from types import SimpleNamespace

import pytest

from gluon_kernels.device.fp8_codes import CODES, LINE_BITS
from tests.gluon_kernels.support.arrays import Array
from tests.gluon_kernels.support.ptx_interpreter import Ptx


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
    monkeypatch.setattr(softmax, "bits_offset", lambda p, row_max: Scalar(row_max * p.score_scale))
    monkeypatch.setattr(softmax, "lane_sums", lambda x: x)
    monkeypatch.setattr(softmax, "visible", lambda p, scores, *rest: scores)
    monkeypatch.setattr(softmax, "to_probs", lambda p, x: x)
    fields = {"score_scale": 0.25, "block_n": 128, "causal_offset": 0}

    def guess(row, block, guess=True, causal=True, margin_bits=3):
        p = SimpleNamespace(guess=guess, causal=causal, margin_bits=margin_bits, codes=False, **fields)
        probability, row_max, _ = softmax.first_softmax.fn(p, Scalar(10.0), row, block, 99)
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
    p = SimpleNamespace(int_max=True, lazy_bits=8, score_scale=1 / 8)
    found = softmax.block_max.fn(p, 0, Scores(scores), Maximum(row_max))
    assert found == largest
    assert found == max(scores) or (max(scores) < 0 and -row_max * p.score_scale <= p.lazy_bits)
    assert softmax.block_max.fn(SimpleNamespace(int_max=False), 0, Scores(scores), Maximum(row_max)) == max(scores)


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


def test_the_saturating_form_of_a_score_is_the_same_number(softmax, monkeypatch):
    taken = []
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, constraints, args, **named: taken.append(args), float32=""
    )
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "exp2_constraints", lambda: "")
    monkeypatch.setattr(softmax, "PER_STEP", softmax.PER_STEP.value)
    p = SimpleNamespace(exp2_asm="some", score_scale=Scalar(0.125))
    softmax.exp2_of.fn(p, Scalar(70.0), Scalar(1.5))
    ((score, scale, offset, small_scale, small_offset),) = taken
    assert score * scale - offset == pytest.approx((score * small_scale + small_offset) * 253 - 126)


def test_codes_are_made_of_the_row_less_its_guess(softmax, monkeypatch):
    """The kernel's own scale and start, through the PTX: four scores of a row become its bytes in their order."""
    taken = []
    fake = SimpleNamespace(
        inline_asm_elementwise=lambda asm, constraints, args, **named: taken.append((asm, args)), int32=""
    )
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "by_fours", lambda p, x: x)
    monkeypatch.setattr(softmax, "beside", lambda x, like: x)
    code = CODES["fp8e4nv"]
    fields = {"code_scale": code.scale, "code_start": code.start, "codes_asm": code.asm()}
    p = SimpleNamespace(score_scale=0.125, head_bits=5, **fields)
    monkeypatch.setattr(softmax, "finite", lambda x: x)
    monkeypatch.setattr(softmax, "bits_offset", softmax.bits_offset.fn)
    exponents = [5.0, 4.0, 2.0, -1.0]  # scores 0, 1, 3 and 6 bits below the guess
    row_max = 16.0
    softmax.codes.fn(p, [row_max + (x - 5) / 0.125 for x in exponents], row_max)
    ((asm, args),) = taken
    (made,) = Ptx(*args, results=1).words(asm)
    # The code of 2 ** x, minus what centres the lines, rounded: the code of a power of two, or the one below.
    assert [byte - code.guard for byte in made.to_bytes(4, "little")] == [
        round((x + 7 - LINE_BITS) * 8) for x in exponents
    ]


@pytest.fixture
def made_of(softmax, monkeypatch):
    """Codes are replaced by the maximum that they are computed from, guarded, so that tests see which one it was."""
    monkeypatch.setattr(softmax, "visible", lambda p, scores, *rest: scores)
    monkeypatch.setattr(softmax, "codes", lambda p, scores, row_max: int(row_max) * 0x01010101 + 0x01010101)
    fake = SimpleNamespace(
        full=lambda *_: "ones",
        zeros=lambda *_: "zero",
        max=lambda *_: Maximum(9.0),
        where=lambda c, a, b: b,
        float32="",
    )
    monkeypatch.setattr(softmax, "gl", fake)
    monkeypatch.setattr(softmax, "without_guards", softmax.without_guards.fn)
    return SimpleNamespace(codes=True, guards=0x01010101, guess=True, causal=True, margin_bits=0)


@pytest.mark.parametrize("flag", [0, 1])
def test_both_ways_give_guarded_words_and_leave_the_sum_to_its_mma(softmax, monkeypatch, made_of, flag):
    asked = []
    monkeypatch.setattr(softmax, "flag_codes", lambda me, probs, row_max: asked.append((me, probs, row_max)))
    monkeypatch.setattr(softmax, "get_flag", lambda me: flag)
    monkeypatch.setattr(softmax, "raise_max", lambda p, row_max, largest, lazy: (largest + lazy, "shrink"))
    row_max = Maximum(7.0)
    probs, new_max, row_sum, shrink = softmax.guessed_softmax.fn(made_of, 1, "scores", 0, 0, 0, row_max, "sum")
    assert asked == [(1, 0x08080808, row_max)] and row_sum == "sum"
    assert (new_max, shrink) == ((9.0, "shrink") if flag else (row_max, "ones"))
    assert softmax.without_guards(made_of, probs) == (0x09090909 if flag else 0x07070707)


def test_searched_codes_are_of_the_new_maximum(softmax, monkeypatch, made_of):
    asked = []
    monkeypatch.setattr(softmax, "raise_max", lambda p, *args: asked.append(args) or (8.0, "shrink"))
    made_of.lazy_bits = 3
    assert softmax.searched_softmax.fn(made_of, "scores", 9.0, 7.0, "sum") == (0x09090909, 8.0, "sum", "shrink")
    assert asked == [(7.0, 9.0, 3)]


def test_the_first_block_s_codes_are_of_its_true_maximum_and_leave_the_sum_to_its_mma(softmax, monkeypatch, made_of):
    monkeypatch.setattr(softmax, "mma_layout", lambda *_: None)
    monkeypatch.setattr(softmax, "no_sums", softmax.no_sums.fn)
    made_of.q_desc = SimpleNamespace(dtype=None)
    assert softmax.first_softmax.fn(made_of, "scores", 0, 0, 99) == (0x09090909, 9.0, "zero")


class Maximum(float):
    type = SimpleNamespace(layout=None)
