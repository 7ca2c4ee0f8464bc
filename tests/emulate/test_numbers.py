"""Arithmetic with one rounding against fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate import mufu, numbers, numbers64  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


SPECIAL32 = np.array(
    [
        *(0, 1 << 31, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x7F7FFFFF),
        *(0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x33800000, 0x4B800000, 0x00800001, 0x34000000),
    ],
    np.uint32,
)


def words(count, seed=1):
    """Random numbers of 32 bits, half of them of like size, and each pair of special ones among them."""
    draw = np.random.default_rng(seed)
    found = draw.integers(0, 1 << 32, (3, count), np.uint32)
    near = (draw.integers(0, 1 << 24, (3, count), np.uint32) + np.uint32(0x3F000000)) ^ (found & np.uint32(1 << 31))
    found = np.where(draw.random((3, count)) < 0.5, found, near)
    special = draw.choice(SPECIAL32, (3, count))
    return np.where(draw.random((3, count)) < 0.15, special, found)


def rounded(exact, one, mode):
    """The nearest number of a format with unlimited exponent above, as a fraction, by integers alone."""
    if exact == 0:
        return Fraction(0)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, one.least) - one.mantissa)
    whole, rest = divmod(exact, step)
    above = {
        "rn": rest > step / 2 or (rest == step / 2 and whole % 2 == 1),
        "rz": exact < 0 and rest > 0,
        "rm": False,
        "rp": rest > 0,
        "rna": rest > step / 2 or (rest == step / 2 and exact > 0),
    }[mode]
    return (whole + above) * step


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_fma32_rounds_once(mode):
    a, b, c = words(4000)
    product = (a.view(np.float32) * b.view(np.float32)).view(np.uint32)
    c = np.where(np.arange(4000) % 3 == 0, product ^ np.uint32(1 << 31), c)  # cancellation
    found = numbers.decode(numbers.fma32(a, b, c, mode), "f32")
    x, y, z = (numbers.decode(one, "f32") for one in (a, b, c))
    for i in range(4000):
        if not np.isfinite([x[i], y[i], z[i]]).all():
            continue
        exact = Fraction(x[i]) * Fraction(y[i]) + Fraction(z[i])
        expected = rounded(exact, numbers.FORMATS["f32"], mode)
        if abs(expected) > Fraction(numbers.FORMATS["f32"].largest):
            goes_up = mode == "rn" or (mode == "rp" and exact > 0) or (mode == "rm" and exact < 0)
            assert np.isinf(found[i]) == goes_up and np.signbit(found[i]) == (exact < 0)
        else:
            assert Fraction(found[i]) == expected, (x[i], y[i], z[i])


def test_nan_of_32_bits_is_canonical_and_zero_has_its_sign():
    inf, nan, one, zero, minus = (np.array([n], np.uint32) for n in (0x7F800000, 0x7F812345, 0x3F800000, 0, 1 << 31))
    for found in (
        numbers.fma32(inf, zero, one),
        numbers.add32(nan, one),
        numbers.mul32(one, nan),
        numbers.div32(zero, zero),
    ):
        assert found == 0x7FFFFFFF
    assert numbers.add32(one, one | minus, "rm") == 1 << 31 and numbers.add32(one, one | minus) == 0
    assert numbers.fma32(minus, one, minus) == 1 << 31


def test_ftz_keeps_the_sign():
    small, half = np.array([0x80000010], np.uint32), np.array([0x3F000000], np.uint32)
    least = np.array([0x80800000], np.uint32)
    assert numbers.add32(small, np.zeros_like(small), ftz=True) == 0
    assert numbers.mul32(least, half, ftz=True) == 1 << 31 and numbers.mul32(least, half) == 0x80400000


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "e2m1", "e3m2", "e2m3"])
def test_formats_of_few_bits_round_as_fractions_do(name):
    one = numbers.FORMATS[name]
    draw = np.random.default_rng(3)
    exact = np.ldexp(draw.standard_normal(3000), draw.integers(one.least - one.mantissa - 2, 6, 3000))
    exact = exact.astype(np.float32).astype(np.float64)
    for mode in ("rn", "rz", "rp", "rm", "rna"):
        codes = numbers.encode(exact, name, mode, finite=True)
        found = numbers.decode(codes, name)
        for x, y in zip(exact, found, strict=True):
            expected = rounded(Fraction(x), one, mode)
            largest = Fraction(one.largest)
            assert Fraction(y) == max(-largest, min(largest, expected)), (name, mode, x)


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "e2m1", "e3m2", "e2m3"])
def test_every_code_survives(name):
    one = numbers.FORMATS[name]
    codes = np.arange(1 << one.bits, dtype=np.uint32)
    values = numbers.decode(codes, name)
    same = numbers.encode(values, name) == codes
    assert same[~np.isnan(values)].all()


def test_fp8_of_nan_and_of_what_is_too_large():
    x = np.array([np.nan, 1e6, -1e6, 464.0, 465.0, np.inf])
    assert numbers.encode(x, "e4m3", finite=True).tolist() == [0x7F, 0x7E, 0xFE, 0x7E, 0x7E, 0x7E]
    assert numbers.encode(x, "e5m2", finite=True).tolist()[:3] == [0x7F, 0x7B, 0xFB]
    assert numbers.encode(x, "e2m1", finite=True).tolist()[:3] == [0x7, 0x7, 0xF]
    assert numbers.encode(np.array([1.0, 0.3, 2.0**-130, np.nan]), "ue8m0", "rp").tolist() == [127, 126, 0, 255]


def test_halves_round_once():
    draw = np.random.default_rng(5)
    a, b, c = draw.integers(0, 1 << 32, (3, 3000), np.uint32)
    for name in ("f16", "bf16"):
        found = numbers.fma_halves(a, b, c, name=name)
        for part in (0, 16):
            x, y, z, r = (numbers.decode(w >> np.uint32(part) & np.uint32(0xFFFF), name) for w in (a, b, c, found))
            fine = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & np.isfinite(r)
            for i in np.flatnonzero(fine):
                exact = Fraction(x[i]) * Fraction(y[i]) + Fraction(z[i])
                assert Fraction(r[i]) == rounded(exact, numbers.FORMATS[name], "rn")


@pytest.mark.parametrize("mode", ["rn", "rz", "rp"])
def test_fma64_rounds_once(mode):
    draw = np.random.default_rng(7)
    a, b, c = draw.integers(0, 1 << 63, (3, 600), np.uint64)
    near = draw.standard_normal((3, 600))
    near[2, ::2] = -(near[0] * near[1])[::2]
    x, y, z = (np.where(np.arange(600) % 4 == 0, v.view(np.float64), n) for v, n in zip((a, b, c), near, strict=True))
    found = numbers64.fma64(*(v.view(np.uint64) for v in (x, y, z)), mode).view(np.float64)
    for i in range(600):
        if not np.isfinite([x[i], y[i], z[i]]).all():
            continue
        expected = rounded(Fraction(x[i]) * Fraction(y[i]) + Fraction(z[i]), numbers.FORMATS["f64"], mode)
        if abs(expected) <= Fraction(numbers.FORMATS["f64"].largest):
            assert Fraction(found[i]) == expected


def test_integers_are_clamped_and_rounded():
    x = np.array([2.5, -2.5, 3e9, -3e9, np.nan, 0.7])
    assert numbers.to_integer(x, 32, True, "rn").tolist() == [2, -2, 2**31 - 1, -(2**31), 0, 1]
    assert numbers.to_integer(x, 32, False, "rz").tolist() == [2, 0, 3 * 10**9, 0, 0, 0]
    assert numbers.to_integer(x, 64, True, "rz", True).tolist()[4] == -(2**63)
    assert numbers.to_integer(x, 64, False, "rz").tolist()[4] == 2**63
    values = np.array([2**63 - 1, 2**62 + 1, (1 << 25) + 1, -(1 << 25) - 1], np.int64)
    assert numbers.encode(numbers.from_integer(values), "f32", "rz").view(np.float32).tolist() == [
        np.nextafter(np.float32(2**63), np.float32(0)),
        2.0**62,
        2.0**25,
        -(2.0**25),
    ]
    assert numbers64.from_integer64(values, "rp").view(np.float64)[0] == 2.0**63


def test_special_functions_are_exact_where_the_answer_is():
    x = np.array([0.0, 1.0, -1.0, 3.0, -126.0, 128.0], np.float32).view(np.uint32)
    assert mufu.mufu("ex2", x).view(np.float32).tolist() == [1, 2, 0.5, 8, 2.0**-126, np.inf]
    assert mufu.mufu("rcp", np.array([0, 1 << 31, 1], np.uint32)).tolist() == [0x7F800000, 0xFF800000, 0x7F800000]
    with pytest.raises(NotUnderstood):
        mufu.mufu("erf", x)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_square_roots_are_rounded_to_the_side(mode):
    draw = np.random.default_rng(3)
    x = np.concatenate([draw.random(50) * 1e300, draw.random(50), [4.0, 2.0, 5e-324]])
    found = numbers64.sqrt64(x.view(np.uint64), mode).view(np.float64)
    for one, root in zip(x, found, strict=True):
        exact, inward = Fraction(float(one)), -np.inf if mode == "rp" else np.inf
        beyond = Fraction(float(np.nextafter(root, inward))) ** 2
        square = Fraction(float(root)) ** 2
        assert (square >= exact > beyond) if mode == "rp" else (square <= exact < beyond)
