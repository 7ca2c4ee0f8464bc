"""exp2 computed with multiply-adds: the PTX text, run on the emulated machine."""

import math
import random

import pytest

np = pytest.importorskip("numpy")

from emulated import run_body  # noqa: E402

from gluon_kernels.device.exp2_polynomial import COEFFICIENTS, exp2_asm, word  # noqa: E402


def exp2s(text: str, xs: list[float]):
    """Give each thread a pair of numbers, and return the results as float64."""
    pairs = np.array(xs, np.float32).view(np.uint64)
    body = "mad.wide.u32 %rd9, %r20, 8, %rd20; ld.global.v2.b32 {%r2, %r3}, [%rd9];\n"
    body += text.replace("$", "%r")
    body += "\nmad.wide.u32 %rd9, %r20, 8, %rd21; st.global.v2.b32 [%rd9], {%r0, %r1};"
    _, found = run_body(body, pairs, np.zeros_like(pairs), target="sm_100a", threads=len(pairs) // 2, grid=2)
    return found.view(np.float32).astype(np.float64)


def worst_error(text: str) -> float:
    """Return the largest relative error over the scores."""
    return float(np.abs(exp2s(text, SCORES) / np.exp2(np.array(SCORES, np.float32), dtype=np.float64) - 1).max())


RANDOM = random.Random(0)
SCORES = [-RANDOM.uniform(0, 125) for _ in range(2000)] + [-i / 64 for i in range(-9 * 64, 16 * 64)]


@pytest.mark.parametrize(("degree", "most"), [(2, 1.8e-3), (3, 7.6e-5)])
def test_it_errs_less_than_the_rounding_of_a_probability(degree, most):
    assert worst_error(exp2_asm(degree)) < most


@pytest.mark.parametrize("degree", COEFFICIENTS)
def test_far_below_the_maximum_it_is_next_to_nothing(degree):
    found = exp2s(exp2_asm(degree), [-126.0, -127.5, -1e30, -math.inf])
    assert ((found >= 0) & (found < 2.0**-125)).all()


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
    assert not worst_error(text.replace(old, new)) <= 7.6e-5
