"""Comparisons, minima and maxima of numbers with NaN and both zeros, against Python's."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

import exact_numbers  # noqa: E402

from tritonhook.emulate.comparisons import FLOATS, JOINS, WHOLE, extreme, shown  # noqa: E402

CODES = {
    "f32": [
        0,
        1 << 31,
        1,
        0x80000001,
        0x3F800000,
        0xBF800000,
        0x7F7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7F800001,
        0xFFFFFFFF,
    ],
    "f16": [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFFFF],
    "bf16": [0, 0x8000, 1, 0x8001, 0x3F80, 0xBF80, 0x7F7F, 0x7F80, 0xFF80, 0x7F81, 0xFFFF],
    "f64": [
        n << 32 | n & 1
        for n in (0, 1 << 31, 1, 0x80000001, 0x3FF00000, 0xBFF00000, 0x7FF00000, 0xFFF00000, 0x7FF00001, 0xFFF40001)
    ],
}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def pairs(kind):
    dtype = np.uint64 if kind == "f64" else np.uint32
    return (np.array(one, dtype) for one in zip(*((x, y) for x in CODES[kind] for y in CODES[kind]), strict=True))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64"])
def test_numbers_are_compared_by_value(kind):
    a, b = pairs(kind)
    values = [
        (exact_numbers.value_of(x, kind), exact_numbers.value_of(y, kind))
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    basic = {
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y,
        "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y,
    }
    unordered = [any(isinstance(n, float) and math.isnan(n) for n in row) for row in values]
    for name, function in FLOATS.items():
        ordered = {"num": lambda x, y: True, "nan": lambda x, y: False}.get(name) or basic[
            name.removesuffix("u") if len(name) > 2 else name
        ]
        of_nan = name == "nan" or (len(name) == 3 and name.endswith("u"))
        wanted = [of_nan if odd else ordered(*row) for row, odd in zip(values, unordered, strict=True)]
        assert function(shown(a, kind), shown(b, kind)).tolist() == wanted, name
    assert WHOLE["f"](a, b).tolist() == [False] * len(a) and WHOLE["t"](a, b).tolist() == [True] * len(a)


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64"])
def test_extremes_order_zeros_and_prefer_numbers(kind, lower, nan):
    a, b = pairs(kind)
    canonical = exact_numbers.FORMATS[kind][5]
    found = extreme(a, b, lower, nan, kind)
    assert found.dtype == a.dtype
    for x, y, one in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        values = {code: exact_numbers.value_of(code, kind) for code in (x, y)}
        good = [code for code in (x, y) if values[code] == values[code]]
        if nan and kind == "f64":
            continue  # no instruction does so
        if not good or (nan and len(good) < 2):
            assert one == (y | 1 << 51 if kind == "f64" and not nan else canonical)  # executed: the second, quiet
        else:
            order = sorted(good, key=lambda code: (values[code], not exact_numbers.is_negative(values[code])))
            assert one == order[0 if lower else -1], (hex(x), hex(y))
    both = np.where(np.arange(len(a)) % 2 == 0, True, False)  # by thread
    assert (
        extreme(a, b, both, nan, kind)
        == np.where(both, extreme(a, b, True, nan, kind), extreme(a, b, False, nan, kind))
    ).all()


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_extremes_of_sizes_have_the_product_of_the_signs_and_subnormal_numbers_may_be_flushed(kind):
    a, b = pairs(kind)
    bits, canonical = exact_numbers.FORMATS[kind][0], exact_numbers.FORMATS[kind][5]
    sign = 1 << bits - 1
    found = extreme(a, b, True, False, kind, ftz=True, signs=True)
    flushed = [np.where(np.isin(one & ~np.uint32(sign), [1]), one & np.uint32(sign), one) for one in (a, b)]
    wanted = extreme(flushed[0] & np.uint32(sign - 1), flushed[1] & np.uint32(sign - 1), True, False, kind)
    wanted = np.where(wanted == canonical, wanted, wanted ^ (a ^ b) & np.uint32(sign))
    assert found.tolist() == wanted.tolist()


def test_joins():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert {name: join(a, b).tolist() for name, join in JOINS.items()} == {
        "and": [True, False, False, False],
        "or": [True, True, True, False],
        "xor": [False, True, True, False],
    }
