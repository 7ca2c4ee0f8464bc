"""exp2 computed with multiply-adds: the PTX text, run instruction by instruction on fp32 words."""

import math
import random

import pytest

from gluon_kernels.device.exp2_polynomial import COEFFICIENTS, STEPS, WITHOUT_MUFU, exp2_asm, softmax_exp2_asm, word
from tests.gluon_kernels.support.ptx_interpreter import Ptx, number


def worst_error(degree: int, xs: list[float], text: str | None = None) -> float:
    """Largest relative error over pairs of neighbours."""
    text = text or exp2_asm(degree)
    errors = []
    for a, b in zip(xs[::2], xs[1::2], strict=True):
        for x, y in zip((a, b), Ptx(a, b).run(text), strict=True):
            errors.append(abs(y / 2.0 ** number(word(x)) - 1))
    return max(errors)


RANDOM = random.Random(0)
SCORES = [-RANDOM.uniform(0, 125) for _ in range(2000)] + [-i / 64 for i in range(-9 * 64, 16 * 64)]


@pytest.mark.parametrize(("degree", "most"), [(2, 1.8e-3), (3, 7.6e-5)])
def test_it_errs_less_than_the_rounding_of_a_probability(degree, most):
    assert worst_error(degree, SCORES) < most


@pytest.mark.parametrize("degree", COEFFICIENTS)
def test_far_below_the_maximum_it_is_next_to_nothing(degree):
    for x in (-126.0, -127.5, -1e30, -math.inf):
        for y in Ptx(x, x).run(exp2_asm(degree)):
            assert 0 <= y < 2.0**-125


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shl.b32 t1, t1, 23", "shl.b32 t1, t1, 22"),
        ("fma.rn.f32x2 f, n, c, x", "fma.rn.f32x2 f, t, c, x"),
        ("max.f32 x1, $3", "max.f32 x1, $2"),
        (f"0x{word(COEFFICIENTS[3][1]):08X}", f"0x{word(0.6931):08X}"),
    ],
)
def test_a_broken_text_is_found(old, new):
    text = exp2_asm(3)
    assert old in text
    assert worst_error(3, SCORES, text.replace(old, new)) > 7.6e-5


def softmax_exponentials(scores, scale, offset, by_fma, text=None):
    count = len(scores)
    rows = [[scale] * count, [offset] * count, [scale / STEPS] * count, [(126 - offset) / STEPS] * count]
    text = text or softmax_exp2_asm(count, by_fma)
    return Ptx(*scores, *(x for row in rows for x in row), results=count).run(text)


def worst_softmax_error(by_fma, text=None):
    errors = []
    for first in range(0, 800, 8):
        scores, scale, offset = [10 * x for x in SCORES[first : first + 8]], 0.09375, 1.75
        for score, y in zip(scores, softmax_exponentials(scores, scale, offset, by_fma, text), strict=True):
            errors.append(abs(y / 2.0 ** (score * scale - offset) - 1))
    return max(errors)


@pytest.mark.parametrize("by_fma", range(1, 9))
def test_exponentials_of_scores_are_made_in_two_ways(by_fma):
    text = softmax_exp2_asm(8, by_fma)
    assert text.count("ex2.approx") == 8 - by_fma
    assert worst_softmax_error(by_fma, text) < 1.8e-3


def test_without_the_exp2_unit_both_rows_of_a_thread_are_served_alike():
    for count in range(0, 17, 2):
        rows = [i // 2 % 2 for i in WITHOUT_MUFU[:count]]
        assert abs(sum(rows) - count / 2) <= 1 if count % 4 else sum(rows) == count / 2
    assert sorted(WITHOUT_MUFU) == list(range(16))


def test_nothing_to_do_without_the_exp2_unit_is_no_text():
    assert softmax_exp2_asm(16, 0) == ""


def test_exponentials_of_scores_are_limited():
    least, *_, most = softmax_exponentials([-math.inf, -1e30, -1000.0, 1e30], 1.0, 0.0, 4)
    assert 0 < least < 2.0**-125
    assert 2.0**126 < most < math.inf


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shl.b32 n, n, 23", "shl.b32 n, n, 22"),
        ("fma.rn.f32 f, x,", "fma.rn.f32 f, t,"),
        (f"0f{word(COEFFICIENTS[2][1]):08X}", f"0f{word(0.69):08X}"),
        ("fma.rn.f32 x, $14", "fma.rn.f32 x, $13"),
        (f"0f{word(STEPS):08X}", f"0f{word(256.0):08X}"),
    ],
)
def test_a_broken_text_for_scores_is_found(old, new):
    text = softmax_exp2_asm(8, 2)
    assert old in text
    assert worst_softmax_error(2, text.replace(old, new)) > 1.8e-3
