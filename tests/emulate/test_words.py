"""Integers against Python's: each width, at the edges of its range, with counts at and beyond its bits."""

from __future__ import annotations

from itertools import product

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate import words  # noqa: E402

WIDTHS = [(np.uint16, 16), (np.int16, 16), (np.uint32, 32), (np.int32, 32), (np.uint64, 64), (np.int64, 64)]
COUNTS = [0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 1 << 31, (1 << 32) - 1]


def edges(bits):
    """Bits at both ends of the range, of both signs, and some between."""
    one = 1 << bits - 1
    some = [0, 1, 2, 3, one - 1, one, one + 1, 2 * one - 2, 2 * one - 1, one >> 3, 5 << bits // 2, (1 << bits // 2) - 1]
    rng = np.random.default_rng(bits)
    return some + [int(n) for n in rng.integers(0, 2 * one - 1, 8, np.uint64)]


def columns(kind, bits, *more):
    """Every combination of edges with themselves, and with other lists: arrays of the kind (others: uint32)."""
    rows = list(product(edges(bits), *more or (edges(bits),)))
    unsigned = f"u{bits // 8}"
    first, *others = zip(*rows, strict=True)
    kinds = [kind if not more else np.uint32] * len(others)
    return np.array(first, unsigned).view(kind), *(
        np.array(one, f"u{np.dtype(k).itemsize}").view(k) for one, k in zip(others, kinds, strict=True)
    )


def same(found, expected, kind):
    bits = 8 * np.dtype(kind).itemsize
    assert found.dtype == kind
    assert [int(n) % (1 << bits) for n in found] == [n % (1 << bits) for n in expected]


def pairs(a, b):
    return [(int(x), int(y)) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(("kind", "bits"), WIDTHS)
def test_products_quotients_and_remainders(kind, bits):
    a, b = columns(kind, bits)

    def toward_zero(x, y):
        return -1 if not y else (abs(x) // abs(y)) * (-1 if (x < 0) != (y < 0) else 1)

    with np.errstate(all="ignore"):
        quotient, remainder = words.quotient(a, b), words.remainder(a, b)
    same(words.high(a, b), [x * y >> bits for x, y in pairs(a, b)], kind)
    same(quotient, [toward_zero(x, y) for x, y in pairs(a, b)], kind)
    same(remainder, [x - toward_zero(x, y) * y if y else -1 for x, y in pairs(a, b)], kind)
    same(words.distance(a, b, b), [abs(x - y) + y for x, y in pairs(a, b)], kind)


def test_saturated_sums_end_at_the_range():
    a, b = columns(np.int32, 32)
    for function, name in ((np.add, "__add__"), (np.subtract, "__sub__")):
        exact = [getattr(x, name)(y) for x, y in pairs(a, b)]
        same(words.saturated(function)(a, b), [max(-(1 << 31), min(n, (1 << 31) - 1)) for n in exact], np.int32)


@pytest.mark.parametrize(("kind", "bits"), WIDTHS)
def test_shifts_by_any_count(kind, bits):
    a, count = columns(kind, bits, COUNTS)
    same(words.left(a, count), [x << n if n < bits else 0 for x, n in pairs(a, count)], kind)
    same(words.right(a, count), [x >> min(n, bits) for x, n in pairs(a, count)], kind)


@pytest.mark.parametrize("most", [32, 64])
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("kind", [None, np.uint64, np.int64])
def test_two_words_are_shifted_together(kind, wraps, most):
    low, high, count = (
        np.array(one, np.uint32) for one in zip(*product(edges(32)[:12], edges(32), COUNTS), strict=True)
    )
    both = words.joined(low, high)
    assert [int(n) for n in both] == [x | y << 32 for x, y in pairs(low, high)]
    by = [n % most if wraps else min(n, most) for n in count.tolist()]
    if kind is None:
        expected = [x << n if n < 64 else 0 for x, n in zip(both.tolist(), by, strict=True)]
    else:
        expected = [x >> n for x, n in zip(both.view(kind).tolist(), by, strict=True)]
    same(words.shifted(low, high, count, wraps, kind, most), expected, np.uint64)


@pytest.mark.parametrize("is_one_choice", [True, False])
def test_bytes_are_permuted(is_one_choice):
    a, b = columns(np.uint32, 32)
    draw = np.random.default_rng(5).integers(0, 1 << 32, (12, len(a)), np.uint32)
    for chosen in draw:
        chosen = np.full_like(chosen, chosen[0]) if is_one_choice else chosen
        expected = []
        for x, y, selector in zip(a.tolist(), b.tolist(), chosen.tolist(), strict=True):
            octets = (y << 32 | x).to_bytes(8, "little")
            nibbles = [selector >> at & 15 for at in (0, 4, 8, 12)]
            parts = [(255 * (octets[n & 7] >> 7)) if n & 8 else octets[n & 7] for n in nibbles]
            expected.append(int.from_bytes(bytes(parts), "little"))
        same(words.permuted(a, b, chosen), expected, np.uint32)


def test_one_thread_permutes():
    one = np.array([0x80112233], np.uint32)
    assert words.permuted(one, ~one, np.array([0xB4F3], np.uint32)).tolist() == [0xFFCC0080]


@pytest.mark.parametrize("wraps", [False, True])
def test_masks_of_bits(wraps):
    place, count = (np.array(one, np.uint32) for one in zip(*product(COUNTS, COUNTS), strict=True))
    ends = (lambda n: n % 32) if wraps else (lambda n: min(n, 32))
    same(
        words.bit_mask(place, count, wraps),
        [((1 << ends(n)) - 1) << ends(at) for at, n in pairs(place, count)],
        np.uint32,
    )


@pytest.mark.parametrize(("kind", "bits"), WIDTHS)
def test_bits_are_counted_found_and_reversed(kind, bits):
    a = np.array([1 << n for n in range(bits)] + [(1 << n) - 1 for n in range(bits + 1)] + edges(bits), f"u{bits // 8}")
    unsigned, a = a.tolist(), a.view(kind)
    differing = [(~x if x < 0 else x).bit_length() for x in a.tolist()]
    same(words.leading(a, False), [n - 1 for n in differing], np.uint32)
    same(words.leading(a, True), [bits - n if n else -1 for n in differing], np.uint32)
    same(words.population(a), [n.bit_count() for n in unsigned], np.uint32)
    same(words.reversed_bits(a), [int(f"{n:0{bits}b}"[::-1], 2) for n in unsigned], kind)
    if kind(0).dtype.kind == "u":
        same(words.bit_length(a), [n.bit_length() for n in unsigned], np.uint32)


@pytest.mark.parametrize(
    ("kinds", "first"),
    [((np.int8, np.uint8), 0), ((np.uint8, np.int8), 0), ((np.int16, np.int8), 0), ((np.uint16, np.uint8), 2)],
)
def test_products_of_parts_are_added(kinds, first):
    a, b = columns(np.uint32, 32)
    c = a ^ b[::-1]

    def parts(word, kind):
        size = np.dtype(kind).itemsize
        octets = int(word).to_bytes(4, "little")
        return [
            int.from_bytes(octets[at : at + size], "little", signed=kind(0).dtype.kind == "i")
            for at in range(0, 4, size)
        ]

    expected = [
        int(z) + sum(p * q for p, q in zip(parts(x, kinds[0]), parts(y, kinds[1])[first:], strict=False))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    same(words.dot(a, b, c, kinds, first), expected, np.uint32)


def test_halves_are_computed_apart_and_words_as_they_are():
    a, b = columns(np.uint32, 32)
    apart = [(x + y & 0xFFFF) | ((x >> 16) + (y >> 16) & 0xFFFF) << 16 for x, y in pairs(a, b)]
    same(words.in_halves(np.add, np.uint16)(a, b), apart, np.uint32)
    same(words.in_halves(np.add, np.int32)(a, b), [x + y for x, y in pairs(a, b)], np.uint32)
    least = [
        min((x >> at & 0xFFFF ^ 0x8000, x >> at & 0xFFFF) for x in pair)[1] << at
        for pair in pairs(a, b)
        for at in (0, 16)
    ]
    expected = [low | high for low, high in zip(least[::2], least[1::2], strict=True)]
    same(words.in_halves(np.minimum, np.int16)(a, b), expected, np.uint32)


def test_each_table_of_three_bits():
    for table in range(256):
        a, b, c = np.random.default_rng(table).integers(0, 1 << 32, (3, 3), np.uint32)
        expected = []
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
            rows = [(x >> n & 1) << 2 | (y >> n & 1) << 1 | z >> n & 1 for n in range(32)]
            expected.append(sum((table >> row & 1) << n for n, row in enumerate(rows)))
        for function in (words.looked_up(table), words.summed(table)):
            assert function(a, b, c).tolist() == expected, hex(table)
