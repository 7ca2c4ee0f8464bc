"""float64 against fractions, and against what GPUs make of NaN."""

from __future__ import annotations

from fractions import Fraction

import pytest

np = pytest.importorskip("numpy")

import exact_numbers  # noqa: E402
from exact_numbers import code_of, codes_near_edges, value_of  # noqa: E402

from tritonhook.emulate import numbers, numbers64  # noqa: E402

MODES = ["rn", "rz", "rm", "rp"]
NAN, ONE, SIGN = 0xFFF8_0000_0000_0000, 0x3FF0_0000_0000_0000, 1 << 63


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def quiet_nan(*codes):
    """What a result that is NaN becomes: the first of these codes that is NaN, made quiet."""
    return next((code | 1 << 51 for code in codes if code & ~SIGN > 0x7FF0_0000_0000_0000), NAN)


def arrays(draw, count):
    """Three arrays of codes: at the edges; products that c cancels; sizes whose products meet the range's ends."""
    a, b, c = (codes_near_edges("f64", draw, count) for _ in range(3))
    x, y = (np.ldexp(draw.standard_normal(count), draw.integers(-540, 520, count)) for _ in range(2))
    a[::4], b[::4] = x.view(np.uint64)[::4], y.view(np.uint64)[::4]
    product = (a.view(np.float64) * b.view(np.float64)).view(np.uint64)
    c[::3] = product[::3] ^ np.uint64(SIGN)
    c[1::6] = product[1::6]
    return a, b, c


@pytest.mark.parametrize("mode", MODES)
def test_arithmetic_of_double_precision_rounds_once(mode):
    a, b, c = arrays(np.random.default_rng(MODES.index(mode)), 500)
    functions = {
        numbers64.fma64: lambda x, y, z: exact_numbers.added(exact_numbers.multiplied(x, y), z, mode),
        numbers64.add64: lambda x, y: exact_numbers.added(x, y, mode),
        numbers64.mul64: exact_numbers.multiplied,
        numbers64.div64: exact_numbers.divided,
        numbers64.sqrt64: lambda x: x if x in (0, np.inf) else np.nan if not x > 0 else exact_numbers.root(x),
    }
    orders = (1, 2, 0), (1, 0), (1, 0), (0, 1), (0,)  # whose NaN is kept (executed on an H100)
    for (function, exact), order in zip(functions.items(), orders, strict=True):
        given = (a, b, c)[: len(order)]
        for row, code in zip(
            zip(*(v.tolist() for v in given), strict=True), function(*given, mode).tolist(), strict=True
        ):
            expected = exact(*(value_of(n, "f64") for n in row))
            wanted = (
                quiet_nan(*(row[number] for number in order))
                if expected != expected
                else code_of(expected, "f64", mode)
            )
            assert code == wanted, (function, [hex(n) for n in row], hex(wanted))
        assert (function(*given) == function(*given, "rn")).all()


def test_zeros_have_the_sign_that_the_mode_gives_them():
    one, zero, minus = (np.array([n], np.uint64) for n in (ONE, 0, SIGN))
    for mode in MODES:
        negative = SIGN if mode == "rm" else 0
        assert numbers64.add64(one, one ^ minus, mode) == negative == numbers64.add64(zero, minus, mode)
        assert numbers64.add64(minus, minus, mode) == SIGN == numbers64.fma64(minus, one, minus, mode)
        assert numbers64.mul64(minus, one, mode) == SIGN and numbers64.mul64(minus, minus, mode) == 0
        tiny = np.array([1], np.uint64)
        assert numbers64.fma64(tiny, tiny ^ minus, zero, mode) == (SIGN | 1 if mode == "rm" else SIGN), mode
        assert numbers64.fma64(tiny, tiny, zero, mode) == (1 if mode == "rp" else 0), mode


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_numbers_become_narrower_and_wider(mode, ftz):
    draw = np.random.default_rng(9)
    narrow = codes_near_edges("f32", draw, 400)
    near = numbers64.widen64(narrow).view(np.float64) * (1 + draw.integers(-3, 4, 400) * 2.0**-25)
    wide = np.concatenate([near.view(np.uint64), codes_near_edges("f64", draw, 100)])
    wide = np.concatenate([wide, np.array([0x7FF0_0000_2000_0001, 0xFFFF_FFFF_FFFF_FFFF], np.uint64)])
    for code, found in zip(wide.tolist(), numbers64.narrow64(wide, "f32", mode, ftz).tolist(), strict=True):
        value = value_of(code, "f64")
        kept = code >> 32 & 1 << 31 | 0x7FC0_0000 | code >> 29 & 0x7F_FFFF
        assert found == (kept if value != value else code_of(value, "f32", mode, ftz=ftz)), hex(code)
    assert (numbers64.between(wide, "f64", "f32", mode, ftz=ftz) == numbers64.narrow64(wide, "f32", mode, ftz)).all()
    for code, found in zip(narrow.tolist(), numbers64.widen64(narrow).tolist(), strict=True):
        value = value_of(code, "f32")
        kept = (code & 1 << 31) << 32 | 0x7FF8_0000_0000_0000 | (code & 0x7F_FFFF) << 29
        assert found == (kept if value != value else code_of(value, "f64")), hex(code)
    kept = numbers.flush32(narrow) if ftz else narrow
    assert (numbers64.between(narrow, "f32", "f64", mode, ftz=ftz) == numbers64.widen64(kept)).all()


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("whole", ["", "rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("source", "target"), [(s, t) for s in ("f64", "f32", "f16") for t in ("f64", "f32", "f16")])
def test_one_format_becomes_another(source, target, whole, unit):
    if not whole and not unit and "f64" in (source, target) and "f16" in (source, target):
        return  # no instruction does so
    codes = codes_near_edges(source, np.random.default_rng(3), 200)
    for ftz in (False, True):
        found = numbers64.between(codes, source, target, "rz", whole, ftz, unit=unit)
        for code, one in zip(codes.tolist(), found.tolist(), strict=True):
            value = value_of(code, source)
            if ftz and source == "f32" and not code & 0x7F80_0000:
                value = -0.0 if code >> 31 else Fraction(0)
            if source == target == "f64" and not whole and not unit:
                assert one == code
                continue
            if value != value and source == target == "f64" and not unit:
                assert one == quiet_nan(code)
                continue
            if value != value and not unit and (source, target) in (("f64", "f32"), ("f32", "f64")) and not whole:
                continue  # see above
            if whole and isinstance(value, Fraction):
                value = Fraction(exact_numbers.whole(value, whole)) or (-0.0 if value < 0 else Fraction(0))
            assert one == code_of(value, target, "rz", ftz=ftz and target == "f32", unit=unit), hex(code)


def test_a_double_becomes_an_integer_and_its_subnormal_numbers_stay():
    codes = np.array([1, 0xC004_0000_0000_0000, NAN], np.uint64)  # 5e-324, -2.5
    assert numbers64.to_whole(codes, "f64", 32, True, "rp", True).tolist() == [1, -2, -(1 << 31)]
    small = np.array([1, 0x7FC0_0000], np.uint32)
    assert numbers64.to_whole(small, "f32", 32, False, "rp", False).tolist() == [1, 0]
    assert numbers64.to_whole(small, "f32", 32, False, "rp", True).tolist() == [0, 0]


def test_options_reach_small_formats():
    codes = np.array([0x7F00_0000, 0xBF80_0000], np.uint32)
    assert numbers64.between(codes, "f32", "f16", finite=True).tolist() == [0x7BFF, 0xBC00]
    assert numbers64.between(codes, "f32", "f16", relu=True).tolist() == [0x7C00, 0]
