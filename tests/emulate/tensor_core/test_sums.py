"""Sums of tensor cores, each against integers: align, cut off, add, round once."""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp

import pytest

np = pytest.importorskip("numpy")

from exact_numbers import FORMATS, code_of, codes_near_edges, is_negative, value_of  # noqa: E402

from tritonhook.emulate.tensor_core import architectures, sums  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def exponent(value, least):
    """Of a number; that of zero is none."""
    return -1000 if value == 0 else max(frexp(float(value))[1] - 1, least)


def cut(value):
    return -floor(-value) if value < 0 else floor(value)


def unusual(terms):
    """NaN or infinite, if a term is."""
    found = sum(float(x) * float(y) for x, y in terms)
    return found if not np.isfinite(found) else None


def one_sum(x, y, added, low, adds, powers=(0, 0)):
    """The code of one sum."""
    odd = unusual([*zip(x, y, strict=True), (added, 1)])
    if odd is not None:
        return code_of(odd, adds.result)
    x, y, added = [Fraction(n) for n in x], [Fraction(n) for n in y], Fraction(added)
    own = -14 if adds.result == "f16" else -126
    shifts = [p + q for p, q in zip(*powers, strict=True)] if powers != (0, 0) else [0] * len(x)
    each = [exponent(p, low[0]) + exponent(q, low[1]) + s for p, q, s in zip(x, y, shifts, strict=True)]
    highest = max([exponent(added, own), -133, *each])
    unit = Fraction(2) ** (highest - adds.fraction)
    total = cut(added / unit) + sum(cut(p * q * Fraction(2) ** s / unit) for p, q, s in zip(x, y, shifts, strict=True))
    exact = total * unit
    if adds.result == "f16":
        return code_of(exact, "f16")
    code = (
        code_of(exact, "f32", "rz", ftz=False) if abs(exact) < Fraction(2) ** 128 else 0x7F80_0000 | (exact < 0) << 31
    )
    return code & ~((1 << 23 - adds.kept) - 1) if code & 0x7F80_0000 != 0x7F80_0000 else code


@pytest.mark.parametrize(
    ("kinds", "adds"),
    [
        (("f16", "f16"), sums.Sums(25, 16)),
        (("f16", "f16"), sums.Sums(24, 8)),
        (("f16", "f16"), sums.Sums(24, 8, "f16")),
        (("bf16", "bf16"), sums.Sums(25, 16)),
        (("e4m3", "e5m2"), sums.Sums(13, 16, "f32", 13)),
        (("e5m2", "e4m3"), sums.Sums(13, 8, "f16", 13)),
        (("e2m1", "e3m2"), sums.Sums(25, 16)),
    ],
    ids=str,
)
def test_products_are_aligned_cut_and_added(kinds, adds):
    draw = np.random.default_rng(8)
    m, n, k = 5, 4, 16
    for round_ in range(8):
        a = codes_near_edges(kinds[0], draw, m * k).reshape(m, k)
        b = codes_near_edges(kinds[1], draw, k * n).reshape(k, n)
        c = codes_near_edges(adds.result, draw, m * n).reshape(m, n)
        if round_ % 4:  # few that are infinite or NaN
            a, b, c = (
                np.where(one & (1 << FORMATS[kind][0] - 1) - 1 > FORMATS[kind][3], 0, one).astype(np.uint32)
                for one, kind in ((a, kinds[0]), (b, kinds[1]), (c, adds.result))
            )
        found = sums.multiply(a, b, c, (*kinds, adds.result), adds)
        low = FORMATS[kinds[0]][2], FORMATS[kinds[1]][2]
        for row in range(m):
            for column in range(n):
                x = [value_of(int(one), kinds[0]) for one in a[row]]
                y = [value_of(int(one), kinds[1]) for one in b[:, column]]
                added = value_of(int(c[row, column]), adds.result)
                for begin in range(0, k, adds.depth):
                    part = slice(begin, begin + adds.depth)
                    code = one_sum(x[part], y[part], added, low, adds)
                    added = value_of(code, adds.result)
                    assert not (added == 0 and is_negative(added))
                assert found[row, column] == code, (row, column, round_)


def test_rows_of_several_warps_are_apart():
    draw = np.random.default_rng(9)
    a, b, c = (draw.integers(0, 0x7800, shape).astype(np.uint32) for shape in ((3, 16, 8), (3, 8, 8), (3, 16, 8)))
    kinds, adds = ("f16", "f16", "f32"), sums.Sums(25, 8)
    together = sums.multiply(a, b, c << 14, kinds, adds)
    assert all((together[w] == sums.multiply(a[w], b[w], c[w] << 14, kinds, adds)).all() for w in range(3))


@pytest.mark.parametrize("group", [1, 8])
def test_blocks_have_factors(group):
    draw = np.random.default_rng(10)
    m, n, k, wide = 3, 4, 32, 16
    kind = "e4m3" if group == 1 else "e2m1"
    a, b = (draw.integers(0, 1 << FORMATS[kind][0], shape).astype(np.uint32) for shape in ((m, k), (k, n)))
    a, b = (np.where((one & 0x7F) == 0x7F, 0, one) for one in (a, b)) if group == 1 else (a, b)
    c = draw.normal(size=(m, n)).astype(np.float32).view(np.uint32)
    powers = draw.integers(-9, 9, (m, k // wide)), draw.integers(-9, 9, (k // wide, n))
    adds = sums.Sums(25, 32) if group == 1 else sums.Sums(35, 64)
    scales = sums.Scales(np.ldexp(1.0, powers[0]), np.ldexp(1.0, powers[1]), group)
    found = sums.multiply_scaled(a, b, c, (kind, kind), scales, adds)
    low = FORMATS[kind][2]
    for row in range(m):
        for column in range(n):
            x, y = ([value_of(int(one), kind) for one in ones] for ones in (a[row], b[:, column]))
            added = value_of(int(c[row, column]), "f32")
            of_a = [int(powers[0][row, at // wide]) for at in range(k)]
            of_b = [int(powers[1][at // wide, column]) for at in range(k)]
            if group == 1:
                code = one_sum(x, y, added, (low, low), adds, (of_a, of_b))
            else:
                begins = range(0, k, group)
                each = [sum(Fraction(x[i]) * Fraction(y[i]) for i in range(at, at + group)) for at in begins]
                shifts = [of_a[at] + of_b[at] for at in begins]
                unit = Fraction(2) ** (max([exponent(added, -126), -133, *shifts]) - adds.fraction)
                terms = [value * Fraction(2) ** shift for value, shift in zip(each, shifts, strict=True)]
                code = code_of(sum(cut(one / unit) for one in [Fraction(added), *terms]) * unit, "f32", "rz")
            assert found[row, column] == code, (row, column)
    scales.a[1, 0] = np.nan
    scales.b[1, 2] = np.nan
    bad = sums.multiply_scaled(a, b, c, (kind, kind), scales, adds) == 0x7FFF_FFFF
    assert bad[1].all() and bad[:, 2].all() and bad.sum() == n + m - 1


@pytest.mark.parametrize("saturate", [False, True])
def test_integers_wrap_or_are_clamped(saturate):
    a, b = np.full((2, 16), -128.0), np.full((16, 2), 127.0)
    a[1] = 1.0
    c = np.array([[-(1 << 31), 5], [(1 << 31) - 1, -7]], np.int64)
    exact = np.array([[-128 * 127 * 16] * 2, [127 * 16] * 2]) + c
    wanted = np.clip(exact, -(1 << 31), (1 << 31) - 1) if saturate else exact
    found = sums.multiply_integers(a, b, c.astype(np.int32).view(np.uint32), saturate)
    assert found.dtype == np.uint32 and found.tolist() == (wanted & 0xFFFF_FFFF).tolist()


def test_products_of_doubles_are_a_chain_of_fma():
    draw = np.random.default_rng(11)
    a, b, c = draw.normal(size=(2, 3, 4)), draw.normal(size=(2, 4, 5)), draw.normal(size=(2, 3, 5))
    found = sums.multiply_f64(a.view(np.uint64), b.view(np.uint64), c.view(np.uint64)).view(np.float64)
    for w, i, j in np.ndindex(2, 3, 5):
        total = float(c[w, i, j])
        for k in range(4):
            total = float(Fraction(float(a[w, i, k])) * Fraction(float(b[w, k, j])) + Fraction(total))
        assert found[w, i, j] == total


@pytest.mark.parametrize("result", ["f32", "f16"])
def test_fp8_of_hopper_is_two_products_of_halves(result):
    draw = np.random.default_rng(12)
    a, b = (draw.integers(0, 0x70, shape).astype(np.uint32) for shape in ((2, 32), (32, 3)))
    a[:, ::3] |= 0x80
    values = [[value_of(int(one), "e4m3") for one in ones] for ones in (*a, *b.T)]
    c = np.array([[code_of(Fraction(n) / 3 * 100, result) for n in range(-2, 1)]] * 2, np.uint32)
    found = sums.hopper_fp8(a, b, c, ("e4m3", "e4m3"), result)
    adds = sums.Sums(25, 16, result)
    for row in range(2):
        for column in range(3):
            total = Fraction(0)
            for first in (0, 2):
                k = [at for at in range(32) if at % 4 in (first, first + 1)]
                x, y = ([values[number][at] for at in k] for number in (row, 2 + column))
                total = value_of(one_sum(x, y, total, (-14, -14), adds), result)
            wanted = code_of(Fraction(total) + Fraction(value_of(int(c[row, column]), result)), result)
            assert found[row, column] == wanted


@pytest.mark.parametrize(
    ("arch", "kind", "k", "result", "wanted"),
    [
        ("sm_80", "f16", 16, "f32", sums.Sums(24, 8)),
        ("sm_86", "bf16", 8, "f32", sums.Sums(24, 8)),
        ("sm_87", "tf32", 8, "f32", sums.Sums(24, 4)),
        ("sm_88", "f16", 4, "f16", sums.Sums(24, 4, "f16")),
        ("sm_89", "f16", 16, "f16", sums.Sums(24, 8, "f16")),
        ("sm_89", "e4m3", 32, "f32", sums.Sums(13, 16, "f32", 13)),
        ("sm_89", "e5m2", 8, "f16", sums.Sums(13, 8, "f16", 13)),
        ("sm_90a", "tf32", 8, "f32", sums.Sums(25, 8)),
        ("sm_100a", "e2m1", 32, "f32", sums.Sums(25, 32)),
        ("sm_120a", "e4m3", 32, "f16", sums.Sums(25, 32, "f16")),
        ("sm_103a", "f16", 16, "f32", sums.Sums(25, 16)),
    ],
)
def test_each_architecture_adds_in_its_way(arch, kind, k, result, wanted):
    assert architectures.mma_sums(arch, kind, k, result) == wanted


def test_products_of_warpgroups_and_of_blocks_keep_their_bits():
    assert architectures.wgmma_sums("f16", 16, "f16") == sums.Sums(25, 16, "f16")
    assert architectures.wgmma_sums("e5m2", 32, "f32") == sums.Sums(13, 32, "f32", 13)
    assert architectures.scaled_sums("mxf8f6f4") == sums.Sums(25, 32)
    assert architectures.scaled_sums("mxf4") == architectures.scaled_sums("mxf4nvf4") == sums.Sums(35, 64)


@pytest.mark.parametrize(
    ("arch", "kind", "named"),
    [
        ("sm_80", "e4m3", "e4m3"), ("sm_89", "e2m1", "sm_89"), ("sm_90", "e5m2", "sm_90"),
        ("sm_75", "f16", "sm_75"), ("sm_99", "f16", "sm_99"), ("sm_130", "f16", "sm_130"),
    ],
)  # fmt: skip
def test_products_that_an_architecture_has_not(arch, kind, named):
    with pytest.raises(NotUnderstood, match=named):
        architectures.mma_sums(arch, kind, 16, "f32")


@pytest.mark.parametrize("k", [8, 32])
def test_many_products_are_each_what_it_is_alone(k: int) -> None:
    """More of them than columns: they are added in another order of axes."""
    random = np.random.default_rng(k)
    a = random.integers(0, 0x7C00, (11, 16, k)).astype(np.uint16)
    b = random.integers(0x8000, 0xFC00, (11, k, 8)).astype(np.uint16)
    c = random.standard_normal((11, 16, 8)).astype(np.float32).view(np.uint32)
    one = sums.Sums(25, 16)
    together = sums.multiply(a, b, c, ("f16", "f16", "f32"), one)
    alone = [sums.multiply(*each, ("f16", "f16", "f32"), one) for each in zip(a, b, c, strict=True)]
    assert np.array_equal(together, np.stack(alone)) and len(np.unique(together)) > 1000
