"""Floating-point instructions and conversions against NumPy and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

np = pytest.importorskip("numpy")

from emulated import compute, run_both  # noqa: E402

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 1e-40, -1e-45, 3e38, -3e38, np.inf, -np.inf, np.nan, 255.5, 65504.0, 1e10]


def floats(seed, dtype=np.float32, count=128):
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(count) * 10.0 ** rng.integers(-6, 6, count)
    found[: len(SPECIAL)] = SPECIAL
    found[len(SPECIAL) : 2 * len(SPECIAL)] = SPECIAL[::-1]
    with np.errstate(all="ignore"):
        return rng.permutation(found).astype(dtype)


def bits(values):
    return values.view(f"u{values.itemsize}")


def check(lines, function, count, dtype=np.float32):
    given = [floats(seed, dtype) for seed in range(count)]
    found = compute(lines, given[0].itemsize, **dict(zip("abc", map(bits, given), strict=False))).view(dtype)
    with np.errstate(all="ignore"):
        wanted = function(*given).astype(dtype)
    assert np.array_equal(bits(found)[~np.isnan(wanted)], bits(wanted)[~np.isnan(wanted)])
    assert np.isnan(found[np.isnan(wanted)]).all()


def fused(a, b, c):
    """a * b + c with one rounding."""
    found = a * b + c
    for n, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        if np.isfinite([x, y, z]).all():
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            near = np.float32(float(exact)) if exact else found[n]
            low, high = np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))
            options = [one for one in (low, near, high) if np.isfinite(one)]
            if exact and abs(exact) < Fraction(3.4e38):
                found[n] = min(options, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(np.uint32)) & 1))
    return found


def flushed(x):
    return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x)


def least(a, b):
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where((a < b) | ((a == b) & np.signbit(a)), a, b)))


@pytest.mark.parametrize(
    "lines, function, count",
    [
        ("add.f32 d, a, b;", np.add, 2),
        ("sub.rn.f32 d, a, b;", np.subtract, 2),
        ("mul.f32 d, a, b;", np.multiply, 2),
        ("fma.rn.f32 d, a, b, c;", fused, 3),
        ("div.rn.f32 d, a, b;", np.divide, 2),
        ("sqrt.rn.f32 d, a;", np.sqrt, 1),
        ("rcp.rn.f32 d, a;", lambda a: np.float32(1) / a, 1),
        ("add.ftz.f32 d, a, b;", lambda a, b: flushed(flushed(a) + flushed(b)), 2),
        ("add.sat.f32 d, a, b;", lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1) + np.float32(0)), 2),
        ("neg.f32 d, a;", np.negative, 1),
        ("abs.f32 d, a;", np.abs, 1),
        ("copysign.f32 d, a, b;", lambda a, b: np.copysign(b, a), 2),
        ("min.f32 d, a, b;", least, 2),
        ("max.f32 d, a, b;", lambda a, b: -least(-a, -b), 2),
        ("max.NaN.f32 d, a, b;", np.maximum, 2),
        ("max.f32 d, a, b, c;", lambda a, b, c: -least(least(-a, -b), -c), 3),  # of sm_100 and newer
        ("min.NaN.f32 d, a, b, c;", lambda a, b, c: np.minimum(np.minimum(a, b), c), 3),
        ("cvt.rni.f32.f32 d, a;", np.rint, 1),
        ("cvt.rzi.f32.f32 d, a;", np.trunc, 1),
        ("cvt.ftz.rn.f32.f32 d, a;", flushed, 1),
        ("mov.f32 d, 0f40490FDB;", lambda a: np.full_like(a, np.float32(np.pi)), 1),
        ("setp.lt.f32 %p2, a, b; selp.f32 d, a, b, %p2;", lambda a, b: np.where(a < b, a, b), 2),
        ("setp.geu.f32 %p2, a, b; selp.f32 d, a, b, %p2;", lambda a, b: np.where(~(a < b), a, b), 2),
        ("setp.nan.f32 %p2, a, b; selp.f32 d, 0f3F800000, 0f00000000, %p2;", lambda a, b: np.isnan(a) | np.isnan(b), 2),
    ],
)
def test_single_precision(lines, function, count):
    check(lines + (" add.f32 %r11, a, a;" if " a" not in lines else ""), function, count)


@pytest.mark.parametrize("lines, function", [("add.rn.f64 d, a, b;", np.add), ("mul.rn.f64 d, a, b;", np.multiply)])
def test_double_precision(lines, function):
    check(lines, function, 2, np.float64)


def test_two_halves_are_computed_apart():
    a, b = floats(1, np.float16, 256), floats(2, np.float16, 256)
    words = [one.view(np.uint32) for one in (a, b)]
    found = compute("add.rn.f16x2 d, a, b;", 4, a=words[0], b=words[1]).view(np.float16)
    with np.errstate(all="ignore"):
        wanted = a + b
    usual = ~np.isnan(wanted)
    assert np.array_equal(found.view(np.uint16)[usual], wanted.view(np.uint16)[usual])


def test_numbers_become_narrower_and_wider():
    a, b = floats(1), floats(2)
    words = compute("cvt.rn.f16x2.f32 d, a, b;", 4, a=bits(a), b=bits(b))
    with np.errstate(all="ignore"):
        halves = a.astype(np.float16).view(np.uint16), b.astype(np.float16).view(np.uint16)
    usual = ~(np.isnan(a) | np.isnan(b))
    assert ((words >> 16) == halves[0])[usual].all() and ((words & 0xFFFF) == halves[1])[usual].all()
    wide = compute("cvt.f32.bf16 d, a;", 4, a=np.arange(128, dtype=np.uint16) * np.uint16(500))
    assert wide[:120].tolist() == [(500 * n & 0xFFFF) << 16 for n in range(120)]


@pytest.mark.parametrize(
    "kind, low, high",
    [("s32", -(1 << 31), (1 << 31) - 1), ("u32", 0, (1 << 32) - 1), ("s16", -(1 << 15), (1 << 15) - 1), ("u8", 0, 255)],
)
def test_integers_are_clamped_to_their_range(kind, low, high):
    a = floats(3)
    found = compute(f"cvt.rni.{kind}.f32 d, a;", 4, a=bits(a))
    with np.errstate(all="ignore"):
        wanted = [0 if np.isnan(x) else int(max(low, min(high, np.rint(np.float64(x))))) & 0xFFFFFFFF for x in a]
    assert found.tolist() == wanted


def test_integers_become_numbers():
    a = np.arange(-64, 64, dtype=np.int32) * np.int32(33333333)
    assert (
        compute("cvt.rn.f32.s32 d, a;", 4, a=a.view(np.uint32)).view(np.float32).tolist()
        == a.astype(np.float32).tolist()
    )


@pytest.mark.parametrize(
    "lines, function, error",
    [
        ("ex2.approx.ftz.f32 d, a;", np.exp2, 2**-21),
        ("rcp.approx.ftz.f32 d, a;", np.reciprocal, 2**-22),
        ("lg2.approx.f32 d, a;", np.log2, 2**-20),
        ("div.full.f32 d, a, b;", np.divide, 2**-21),
    ],
)
def test_approximations_are_near(lines, function, error):
    a, b = (np.abs(floats(seed)) for seed in (4, 5))
    usual = (a > 1e-3) & (a < 100) & (b > 1e-3) & (b < 1e3)
    names = {"a": bits(a), "b": bits(b)} if " b" in lines else {"a": bits(a)}
    found = compute(lines, 4, **names).view(np.float32)[usual]
    wanted = function(*(one.astype(np.float64) for one in (a, b)[: len(names)]))[usual]
    assert (np.abs(found - wanted) <= error * np.maximum(np.abs(wanted), 1e-3)).all()


@pytest.mark.parametrize(("relu", "wanted"), [("", 0x3C00_B800), (".relu", 0x3C00_0000)])
def test_two_fp8_in_a_register_become_two_halves(relu, wanted):
    codes = np.full(32, 0x38B0, np.uint32)  # 1 and -0.5 in e4m3
    found = compute(f".reg .b16 %h; cvt.u16.u32 %h, a; cvt.rn{relu}.f16x2.e4m3x2 d, %h;", 4, a=codes)
    assert (found == wanted).all()


def test_one_by_the_root_of_a_float64():
    a = np.resize([4, 2, 0, -0.0, np.inf, -1, np.nan, 5e-324, 1e-310, 1e300, 0.3, 7e-20], 32)
    body = """.reg .f64 x; mad.wide.u32 %rd1, %r20, 8, %rd20; ld.global.f64 x, [%rd1]; rsqrt.approx.f64 x, x;
    st.global.f64 [%rd1], x;"""
    (found,) = run_both(body, a.view(np.uint64))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found.view(np.float64), 1 / np.sqrt(a), rtol=1e-15)
