"""Sums of tensor cores, and who holds which number."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.numbers import encode  # noqa: E402
from tritonhook.emulate.tensor_core import architectures, fragments, products, sums  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def dot(kind, a, b, c, adds):
    """One sum of numbers, as a float."""
    rows = encode(np.array([a], np.float64), kind)
    columns = encode(np.array([b], np.float64), kind).T
    added = encode(np.array([[c]], np.float64), adds.result)
    found = sums.multiply(rows, columns, added, (kind, kind, adds.result), adds)
    return float(found.view(np.float32)[0, 0]) if adds.result == "f32" else int(found[0, 0])


@pytest.mark.parametrize(("arch", "kept"), [("sm_80", 24), ("sm_90a", 25), ("sm_100a", 25), ("sm_120a", 25)])
def test_a_product_below_the_last_kept_bit_is_cut_off(arch, kept):
    adds = architectures.mma_sums(arch, "f16", 16, "f32")
    ones = [1.0] * 16
    for bit, survives in ((kept, True), (kept + 1, False)):
        small = 2.0 ** -(bit - 14)
        found = dot("f16", [1.0, -1.0, 2.0**-14] + [0.0] * 13, [1.0, 1.0, small, *ones[3:]], 0.0, adds)
        assert (found != 0) == survives
    assert dot("f16", [-(2.0**-14)], [2.0 ** -(kept - 13)], 0.0, sums.Sums(kept, 16)) != 0


def test_the_sum_is_cut_towards_zero_and_f16_rounds_to_nearest():
    hopper = sums.Sums(25, 16)
    assert dot("f16", [1.0, 2.0**-11], [1.0, 1.5 * 2.0**-12], 0.0, hopper) == 1 + 2.0**-23
    assert dot("f16", [-1.0, -(2.0**-11)], [1.0, 1.75 * 2.0**-12], 0.0, hopper) == -(1 + 2.0**-23)
    half = sums.Sums(25, 16, "f16")
    assert dot("f16", [1.0, 2.0**-10], [1.0, 0.75], 0.0, half) == 0x3C01


def test_fp8_of_hopper_keeps_13_bits():
    adds = architectures.wgmma_sums("e4m3", 32, "f32")
    one = [1.0] + [0.0] * 31
    assert dot("e4m3", one, one, 2.0**-13, adds) == 1 + 2.0**-13
    assert dot("e4m3", one, one, 2.0**-13 + 2.0**-14, adds) == 1 + 2.0**-13
    assert dot("e4m3", one, one, 2.0**-14, adds) == 1.0


def test_ampere_adds_in_two_halves():
    a, b = [2.0**12] + [0.0] * 7 + [-(2.0**12)] + [0.0] * 7, [2.0**12] + [0.0] * 7 + [2.0**12] + [0.0] * 7
    a[1], b[1], a[9], b[9] = 1.0, 0.5, 1.0, 0.5
    assert dot("f16", a, b, 0.0, architectures.mma_sums("sm_80", "f16", 16, "f32")) == 0.0
    assert dot("f16", a, b, 0.0, architectures.mma_sums("sm_90", "f16", 16, "f32")) == 1.0


@pytest.mark.parametrize(
    ("factors", "count", "small", "wanted"),
    [
        ((7, 71), 15, 2.0**-158, 2.0**-149),  # 497 + 15 units of 2^-158 are the least number
        ((10, 101), 14, 2.0**-159, 0.0),  # 1010 + 14 of 2^-159 would be, but the small ones are cut off
    ],
)
def test_products_are_aligned_to_2_to_the_minus_133_at_least(factors, count, small, wanted):
    """Executed on sm_90: so no product below 2^-158 counts."""
    a, b = [factors[0] * 2.0**-79], [factors[1] * small * 2.0**79]
    a, b = (one + [2.0**-79] * count + [0.0] * (15 - count) for one in (a, b))
    b[1:] = [small * 2.0**79] * 15
    assert dot("bf16", a, b, 0.0, sums.Sums(25, 16)) == wanted


def test_infinite_and_nan():
    hopper, inf = sums.Sums(25, 16), float("inf")
    assert dot("f16", [inf, 1.0], [1.0, 1.0], 0.0, hopper) == inf
    assert np.isnan(dot("f16", [inf, inf], [1.0, -1.0], 0.0, hopper))
    assert np.isnan(dot("f16", [inf, 0.0], [0.0, 1.0], 0.0, hopper))
    assert dot("bf16", [2.0**127, 2.0**127], [2.0, 2.0], 0.0, hopper) == inf


def test_block_scales_multiply_their_blocks():
    a = encode(np.ones((1, 64)), "e2m1")
    b = encode(np.full((64, 1), 2.0), "e2m1")
    factor = np.array([[1.0, 2.0, 4.0, 8.0]])
    scales = sums.Scales(factor, np.ones((4, 1)), group=16)
    found = sums.multiply_scaled(
        a, b, np.zeros((1, 1), np.uint32), ("e2m1", "e2m1"), scales, architectures.scaled_sums("mxf4nvf4")
    )
    assert found.view(np.float32) == 32 * 15


# --- who holds what ----------------------------------------------------------------------------------


def fragment_places(kind, bits, registers):
    """Row and column of each number by the formulas of the PTX ISA, one thread at a time."""
    held = 32 // bits
    for register in range(registers):
        for lane in range(32):
            for number in range(held):
                group, thread = lane >> 2, lane & 3
                along = thread * held + number
                if kind == "a":
                    yield register, lane, number, group + 8 * (register & 1), along + 4 * held * (register >> 1)
                else:
                    yield register, lane, number, along + 4 * held * register, group


# --- products of warps -------------------------------------------------------------------------------


def held(kind, registers, bits, matrix):
    """The registers of a warp that hold a matrix of codes."""
    found = np.zeros((registers, 32), np.uint32)
    for register, lane, number, row, column in fragment_places(kind, bits, registers):
        found[register, lane] |= np.uint32(int(matrix[row, column]) << number * bits)
    return found


@pytest.mark.parametrize(
    ("kinds", "k", "arch"),
    [
        (("f32", "f16", "f16"), 16, "sm_80"),
        (("f32", "bf16", "bf16"), 16, "sm_90a"),
        (("f32", "tf32", "tf32"), 8, "sm_90a"),
        (("f32", "e4m3", "e4m3"), 32, "sm_90a"),
        (("f32", "e5m2", "e4m3"), 32, "sm_120a"),
        (("s32", "s8", "s8"), 32, "sm_80"),
        (("s32", "u8", "s8"), 32, "sm_90a"),
        (("s32", "s4", "u4"), 64, "sm_80"),
    ],
)
def test_products_of_small_integers_are_exact(kinds, k, arch):
    draw, bits = np.random.default_rng(3), fragments.width(kinds[1])
    low = [0 if kind[0] == "u" else -8 if kind == "s4" else -2 for kind in kinds[1:]]
    high = [{"u4": 16, "u8": 256, "s4": 8}.get(kind, 3) for kind in kinds[1:]]
    a, b = (draw.integers(*of, shape) for of, shape in zip(zip(low, high, strict=True), ((16, k), (k, 8)), strict=True))
    c = draw.integers(-5, 5, (16, 8))
    whole = kinds[0] == "s32"
    codes = [(x & (1 << bits) - 1) if whole else encode(x.astype(float), kind) for x, kind in zip((a, b), kinds[1:])]  # noqa: B905
    given = [held(kind, k * bits // width, bits, x) for kind, width, x in zip("ab", (64, 128), codes, strict=True)]
    added = np.zeros((4, 32), np.int32 if whole else np.float32)
    places = [(n, lane, lane // 4 + 8 * (n >> 1), lane % 4 * 2 + (n & 1)) for n in range(4) for lane in range(32)]
    for n, lane, row, column in places:
        added[n, lane] = c[row, column]
    found = products.of_warp(kinds, k, arch)(*given, added.view(np.uint32)).view(added.dtype)
    wanted = a @ b + c
    assert found.shape == (4, 32)
    assert all(found[n, lane] == wanted[row, column] for n, lane, row, column in places)


@pytest.mark.parametrize(
    ("kinds", "arch", "saturate", "what"),
    [
        (("f32", "s8", "s8"), "sm_80", False, "a product of s8 and s8 to f32"),
        (("s32", "f16", "s8"), "sm_80", False, "a product of f16 and s8 to s32"),
        (("f32", "f16", "u4"), "sm_80", False, "a product of f16 and u4 to f32"),
        (("f32", "f16", "f16"), "sm_80", True, "a product of f16 and f16 to f32"),
        (("bf16", "f16", "f16"), "sm_80", False, "a product of f16 and f16 to bf16"),
    ],
)
def test_products_of_kinds_that_there_are_not(kinds, arch, saturate, what):
    with pytest.raises(NotUnderstood) as caught:
        products.of_warp(kinds, 16, arch, saturate)
    assert str(caught.value) == str(NotUnderstood(what))


@pytest.mark.parametrize("saturate", [False, True])
def test_integers_that_are_too_great(saturate):
    ones, most = np.full((4, 32), 0x7F7F7F7F, np.uint32), np.full((4, 32), (1 << 31) - 1, np.uint32)
    found = products.of_warp(("s32", "s8", "s8"), 32, "sm_80", *([saturate] if saturate else []))(ones, ones[:2], most)
    assert (found == (most[0, 0] if saturate else (1 << 31) - 1 + 32 * 127 * 127)).all()


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (2, 1), (2, 2), (2, 4)])
def test_products_of_doubles_lie_as_the_isa_says(rows, blocks):
    """m8n8k4; m16n8k4, k8 and k16. Two warps."""
    draw, k = np.random.default_rng(4), 4 * blocks
    a, b, c = (draw.integers(-9, 9, (2, *of)) for of in ((8 * rows, k), (k, 8), (8 * rows, 8)))
    numbers, lanes = np.arange(rows * max(2, blocks))[:, None], np.arange(64)
    warp, group, thread = lanes // 32, lanes % 32 // 4, lanes % 4
    of_a, of_b, of_c = (numbers[:count] for count in (rows * blocks, blocks, 2 * rows))
    row_c, column_c = group + 8 * (of_c // 2), 2 * thread + of_c % 2
    given = (
        a[warp, group + 8 * (of_a % rows), thread + 4 * (of_a // rows)],
        b[warp, thread + 4 * of_b, group],
        c[warp, row_c, column_c],
    )
    found = products.of_doubles(*(one.astype(np.float64).view(np.uint64) for one in given)).view(np.float64)
    assert found.tolist() == (a @ b + c)[warp, row_c, column_c].tolist()


@pytest.mark.parametrize("given", [(), ((1, 1), (3, 2)), ((2, 0), (0, 3))])
def test_scaled_products_have_a_factor_for_each_row_and_column(given):
    """Factors are powers of two, 127 is one. given: the byte, and which lanes of each four hold it, for A and B."""
    (byte_a, pair), (byte_b, thread) = given or ((0, 0), (0, 0))
    draw = np.random.default_rng(5)
    a, b, c = (draw.integers(-2, 3, shape) for shape in ((16, 32), (32, 8), (16, 8)))
    rows, columns = draw.integers(0, 4, 16), draw.integers(0, 4, 8)
    scales = np.full((2, 32), 0x99999999, np.uint32)
    for where, byte, lane, power in (
        *((0, byte_a, row % 8 * 4 + 2 * pair + row // 8, rows[row]) for row in range(16)),
        *((1, byte_b, column * 4 + thread, columns[column]) for column in range(8)),
    ):
        scales[where].view(np.uint8)[4 * lane + byte] = 127 + power
    group, column = (
        np.arange(32) // 4 + 8 * (np.arange(4)[:, None] // 2),
        np.arange(32) % 4 * 2 + np.arange(4)[:, None] % 2,
    )
    held_a, held_b = held("a", 4, 8, encode(a.astype(float), "e4m3")), held("b", 2, 8, encode(b.astype(float), "e5m2"))
    added = c[group, column].astype(np.float32).view(np.uint32)
    found = products.scaled(("e4m3", "e5m2"), *given)(held_a, held_b, added, *scales).view(np.float32)
    wanted = (a @ b) * 2 ** (rows[:, None] + columns) + c
    assert found.tolist() == wanted[group, column].tolist()
