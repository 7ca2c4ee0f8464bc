"""exp2 computed with multiply-adds: the PTX text, run instruction by instruction on fp32 words."""

import math
import random

import pytest

from gluon_kernels.device.exp2_polynomial import COEFFICIENTS, exp2_asm, word
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
