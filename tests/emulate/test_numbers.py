"""Arithmetic with one rounding against fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

np = pytest.importorskip("numpy")

import exact_numbers  # noqa: E402

from tritonhook.emulate import numbers, numbers64  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


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


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2", "e2m1", "e3m2", "e2m3"])
def test_every_code_survives(name):
    one = numbers.FORMATS[name]
    codes = np.arange(1 << one.bits, dtype=np.uint32)
    values = numbers.decode(codes, name)
    same = numbers.encode(values, name) == codes
    assert same[~np.isnan(values)].all()


# --- each function, with each of its options, at the edges --------------------------------------

MODES = ["rn", "rz", "rm", "rp"]


def flush(value, name="f32"):
    is_small = not isinstance(value, float) and abs(value) < Fraction(2) ** exact_numbers.FORMATS[name][2]
    return (-0.0 if value < 0 else Fraction(0)) if is_small else value


@pytest.mark.parametrize("name", [name for name in exact_numbers.FORMATS if name != "f64"])
def test_codes_have_their_values(name):
    """Each code of a small format, others at the edges."""
    bits = exact_numbers.FORMATS[name][0]
    codes = np.arange(1 << bits) if bits <= 8 else exact_numbers.codes_near_edges(name, np.random.default_rng(1), 3000)
    for code, found in zip(codes.tolist(), numbers.decode(codes.astype(np.uint32), name).tolist(), strict=True):
        expected = exact_numbers.value_of(code, name)
        assert found == expected or (expected != expected and found != found), hex(code)
        assert (found < 0 or str(found) == "-0.0") == exact_numbers.is_negative(expected) or found != found


@pytest.mark.parametrize("how", [{}, {"ftz": True}, {"finite": True}, {"unit": True}, {"relu": True}], ids=str)
@pytest.mark.parametrize("name", [name for name in exact_numbers.FORMATS if name != "f64"])
def test_a_number_is_rounded_once_to_each_format(name, how):
    _, fraction, least, *_ = exact_numbers.FORMATS[name]
    draw = np.random.default_rng(2)
    codes = exact_numbers.codes_near_edges(name, draw, 120)
    near = numbers.decode(codes, name)
    step = np.ldexp(1.0, np.maximum(np.frexp(near)[1] - 1, least) - fraction)
    x = np.concatenate([near + step * part for part in (0, 0.5, -0.5, 0.25, 0.75, 2.0**-20, -(2.0**-20))])
    x = np.concatenate([x, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-60, -1e-60, 1e60, -1e60, 0.5, 1.0, 1.5]])
    for mode in [*MODES, *["rna"] * ("ftz" not in how)]:
        found = numbers.encode(x, name, mode, **how)
        assert found.dtype == np.uint32
        for value, code in zip(x.tolist(), found.tolist(), strict=True):
            exact = Fraction(value) if np.isfinite(value) and value else value
            assert code == exact_numbers.code_of(exact, name, mode, **how), (mode, value, hex(code))


def test_tf32_has_ten_bits_of_fraction_and_keeps_nan():
    codes = np.array(
        [0x3F80_1000, 0x3F80_3000, 0x3F80_0FFF, 0xBF80_1001, 0x7F80_0000, 0x7F81_2345, 0xFFC0_3FFF], np.uint32
    )
    nearest = [0x3F80_0000, 0x3F80_4000, 0x3F80_0000, 0xBF80_2000, 0x7F80_0000, 0x7FFF_E000, 0x7FFF_E000]
    assert numbers.convert(codes, "f32", "tf32").tolist() == nearest
    assert numbers.convert(codes[[0, 5, 6]], "f32", "tf32", "rna").tolist() == [0x3F80_2000, 0x7F81_2000, 0xFFC0_2000]
    assert numbers.convert(codes[5:], "f32", "tf32", "rna", finite=True).tolist() == [0x7F81_0000, 0xFFC0_0000]
    assert numbers.convert(codes[3:4], "f32", "tf32", "rz", relu=True) == 0
    assert numbers.decode(codes[:2], "tf32").tolist() == [1.0, 1 + 2.0**-9 - 2.0**-10]
    assert numbers.encode(np.array([1e39, np.nan]), "tf32", "rz", finite=True).tolist() == [0x7F7F_E000, 0x7FFF_FFFF]


def test_scales_are_powers_of_two():
    x = np.array(
        [2.0**n * f for n in (-130, -127, -126, -1, 0, 1, 127) for f in (1, 1.25, 2 - 2.0**-40)] + [0.0, -3, 1e60]
    )
    down = [max(0, min(254, n + 127)) for n in (-130, -127, -126, -1, 0, 1, 127) for _ in range(3)] + [0, 128, 254]
    up = [max(0, min(254, n + 127 + f)) for n in (-130, -127, -126, -1, 0, 1, 127) for f in (0, 1, 1)] + [0, 129, 254]
    assert numbers.encode(x, "ue8m0", "rz").tolist() == down
    assert numbers.encode(x, "ue8m0", "rp").tolist() == up
    assert numbers.decode(np.array([0, 1, 127, 254], np.uint32), "ue8m0").tolist() == [
        2.0**-127,
        2.0**-126,
        1,
        2.0**127,
    ]
    assert np.isnan(numbers.decode(np.array([255], np.uint32), "ue8m0"))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_arithmetic_of_single_precision_rounds_once(mode, ftz, unit):
    draw = np.random.default_rng(4)
    a, b, c = (exact_numbers.codes_near_edges("f32", draw, 500) for _ in range(3))
    c[::3] = (a.view(np.float32) * b.view(np.float32)).view(np.uint32)[::3] ^ np.uint32(1 << 31)
    values = [
        tuple(exact_numbers.value_of(n, "f32") for n in row)
        for row in zip(*(v.tolist() for v in (a, b, c)), strict=True)
    ]
    if ftz:
        values = [tuple(map(flush, row)) for row in values]
    functions = {
        numbers.fma32: lambda x, y, z: exact_numbers.added(exact_numbers.multiplied(x, y), z, mode),
        numbers.add32: lambda x, y, z: exact_numbers.added(x, y, mode),
        numbers.mul32: lambda x, y, z: exact_numbers.multiplied(x, y),
    }
    for function, exact in functions.items():
        given = (a, b, c) if function is numbers.fma32 else (a, b)
        for row, code in zip(values, function(*given, mode, ftz, unit).tolist(), strict=True):
            assert code == exact_numbers.code_of(exact(*row), "f32", mode, ftz=ftz, unit=unit), (function, row)
    if unit:
        return
    quotients, inverses = numbers.div32(a, b, mode, ftz).tolist(), numbers.rcp32(b, mode, ftz).tolist()
    for (x, y, _), quotient, inverse in zip(values, quotients, inverses, strict=True):
        assert quotient == exact_numbers.code_of(exact_numbers.divided(x, y), "f32", mode, ftz=ftz), (x, y)
        assert inverse == exact_numbers.code_of(exact_numbers.divided(Fraction(1), y), "f32", mode, ftz=ftz), y
    for (x, _, _), code in zip(values, numbers.sqrt32(a, mode, ftz).tolist(), strict=True):
        exact = x if x == 0 or x == np.inf else np.nan if not x > 0 else exact_numbers.root(x)
        assert code == exact_numbers.code_of(exact, "f32", mode, ftz=ftz), x


@pytest.mark.parametrize("how", [{}, {"ftz": True}, {"unit": True}, {"relu": True}], ids=str)
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_both_halves_have_every_option(name, how):
    draw = np.random.default_rng(6)
    low, high = ([exact_numbers.codes_near_edges(name, draw, 300) for _ in range(3)] for _ in range(2))
    a, b, c = (x | y << np.uint32(16) for x, y in zip(low, high, strict=True))
    functions = {
        numbers.fma_halves: lambda x, y, z: exact_numbers.added(exact_numbers.multiplied(x, y), z),
        numbers.add_halves: lambda x, y, z: exact_numbers.added(x, y),
        numbers.mul_halves: lambda x, y, z: exact_numbers.multiplied(x, y),
    }
    for function, exact in functions.items():
        found = function(*((a, b, c) if function is numbers.fma_halves else (a, b)), name=name, **how)
        for part, codes in ((0, low), (16, high)):
            for *row, code in zip(
                *(v.tolist() for v in codes), (found >> np.uint32(part) & 0xFFFF).tolist(), strict=True
            ):
                values = [exact_numbers.value_of(n, name) for n in row]
                values = [flush(v, name) for v in values] if how.get("ftz") else values
                assert code == exact_numbers.code_of(exact(*values), name, **how), (function, values)
    assert (numbers.add_halves(a, b) == numbers.add_halves(a, b, name="f16")).all()


def test_pairs_of_singles_are_computed_apart():
    a, b = np.array([0x3F80_0000_4000_0000], np.uint64), np.array([0x4040_0000_BF80_0000], np.uint64)
    assert numbers.twice(numbers.add32, a, b) == 0x4080_0000_3F80_0000


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("signed", [False, True])
def test_numbers_become_integers_at_the_ends_of_the_range(signed, bits):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    ends = [float(one) for one in (low, high, low / 2, high / 2)]
    x = np.array([end + part for end in ends for part in (-1.5, -1, -0.5, 0, 0.25, 0.5, 1, 1.5)] + [1e300, -1e300, 2.5])
    for mode in [*MODES, "rna"]:
        expected = [max(low, min(high, exact_numbers.whole(Fraction(one), mode))) for one in x.tolist()]
        found = numbers.to_integer(x, bits, signed, mode)
        assert found.dtype == (np.int64 if signed else np.uint64) and found.tolist() == expected
    odd = np.array([np.inf, -np.inf, np.nan])
    of_nan = low if signed else 1 << bits - 1
    assert numbers.to_integer(odd, bits, signed, "rn").tolist() == [high, low, of_nan if bits == 64 else 0]
    assert numbers.to_integer(odd, bits, signed, "rn", True).tolist() == [high, low, of_nan]


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_integers_round_once_to_each_format(kind):
    whole = [
        0,
        1,
        (1 << 24) + 1,
        (1 << 25) + 2,
        (1 << 53) + 1,
        (1 << 54) + 2,
        (1 << 62) + 1,
        (1 << 63) - 1,
        65504,
        65520,
        65519,
    ]
    whole += [-n for n in whole] if kind is np.int64 else [(1 << 64) - 1, (1 << 63) + 1, 1 << 63]
    values = np.array(whole, kind)
    for target in ("f64", "f32", "f16", "bf16"):
        for mode in MODES:
            expected = [exact_numbers.code_of(Fraction(n), target, mode) for n in whole]
            assert numbers64.from_whole(values, target, mode).tolist() == expected, (target, mode)
    assert numbers64.from_whole(values, "f32", "rn", True).tolist() == [0x3F80_0000 * (n > 0) for n in whole]


def test_what_is_not_known_is_refused():
    x = np.array([1.0])
    for refused in (
        lambda: numbers.decode(x.view(np.uint64), "e8m7"),
        lambda: numbers.encode(x, "f64"),
        lambda: numbers.encode(x, "e8m7"),
        lambda: numbers.integral(x, "rx"),
    ):
        with pytest.raises(NotUnderstood):
            refused()


def test_what_the_bits_of_a_nan_decide_is_open():
    """Its sign, and whether a number that is added makes it another one; a number in a NaN's place is not."""
    nan, other, number = (np.array([code], np.uint64) for code in (0xFFFF << 48, 0x7FFF << 48, 0x4000 << 48))

    def is_open(function, found):
        return numbers.open_by_nans(
            *(function(one).tobytes() for one in (nan, found)),
            [function(numbers.other_nan(nan, "f64", n)).tobytes() for n in numbers.OTHER_NANS],
        )

    assert is_open(lambda codes: codes >> np.uint64(63), other)
    assert is_open(lambda codes: codes, other)
    assert not is_open(lambda codes: codes, number)
    assert is_open(lambda codes: (codes << np.uint64(1)) - np.uint64(1 << 53), number)
    given = [np.array([0x7FF8 << 48 | bits], np.uint64) for bits in (3, 5)]
    kinds = {int(numbers.other_nan(given[0], "f64", which, *given)[0]) for which in numbers.OTHER_NANS}
    assert kinds == {
        sign << 63 | 0x7FF8 << 48 | bits for sign in (0, 1) for bits in (0, 0x5A5A_5A5A_5A5A & (1 << 51) - 1)
    } | {int(one[0]) for one in given}
