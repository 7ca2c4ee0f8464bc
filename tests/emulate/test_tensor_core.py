"""Sums of tensor cores, and who holds which number."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.numbers import encode  # noqa: E402
from tritonhook.emulate.tensor_core import architectures, fragments, shared_tiles, sums  # noqa: E402
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


def test_unknown_tensor_cores_are_said():
    with pytest.raises(NotUnderstood, match="sm_70"):
        architectures.mma_sums("sm_70", "f16", 8, "f32")
    with pytest.raises(NotUnderstood, match="e4m3"):
        architectures.mma_sums("sm_90a", "e4m3", 32, "f32")


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


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize(("kind", "registers"), [("a", 2), ("a", 4), ("b", 1), ("b", 2)])
def test_fragments_lie_as_the_isa_says(kind, registers, bits):
    draw = np.random.default_rng(1).integers(0, 1 << 32, (registers, 64), np.uint32)
    matrix = (fragments.matrix_a if kind == "a" else fragments.matrix_b)(draw, bits)
    for register, lane, number, row, column in fragment_places(kind, bits, registers):
        for warp in (0, 1):
            expected = int(draw[register, 32 * warp + lane]) >> number * bits & (1 << bits) - 1
            assert matrix[warp, row, column] == expected


@pytest.mark.parametrize(("bits", "registers"), [(16, 2), (32, 4), (32, 64), (16, 32), (32, 2)])
def test_accumulators_come_back(bits, registers):
    draw = np.random.default_rng(2).integers(0, 1 << 32, (registers, 128), np.uint32)
    matrix = fragments.matrix_c(draw, bits)
    assert (fragments.registers_of_c(matrix, bits) == draw).all()
    if bits == 32 and registers == 64:
        group = matrix.reshape(-1, 64, 128)[0]
        warp, lane, register = 2, 13, 21
        row = 16 * warp + lane // 4 + 8 * (register // 2 & 1)
        assert group[row, register // 4 * 8 + lane % 4 * 2 + (register & 1)] == draw[register, warp * 32 + lane]


def test_ldmatrix_and_back():
    rows = np.arange(2 * 4 * 64, dtype=np.uint16).reshape(2, 4, 8, 8)
    for transposed in (False, True):
        registers = fragments.loaded(rows, transposed)
        lane, matrix = 14, 2
        pair = int(registers[matrix, 32 + lane])
        first = (2 * (lane % 4), lane // 4) if transposed else (lane // 4, 2 * (lane % 4))
        second = (first[0] + 1, first[1]) if transposed else (first[0], first[1] + 1)
        assert pair == int(rows[1, matrix][first]) | int(rows[1, matrix][second]) << 16
        assert (fragments.stored(registers, transposed) == rows).all()


@pytest.mark.parametrize("is_k_major", [True, False])
@pytest.mark.parametrize("row", [16, 32, 64, 128])
def test_tiles_of_wgmma_have_a_place_for_each_number(row, is_k_major):
    per_row = row // 2
    leading, stride = (4096, 8 * row) if row > 16 or not is_k_major else (128, 256)
    if not is_k_major:
        leading, stride = (16 * row, 8 * row) if row > 16 else (1024, 128)
    one = shared_tiles.Descriptor(1024, leading, stride, row)
    found = shared_tiles.addresses(one, 64, 16, 2, is_k_major)
    assert found.shape == (64, 16) and len(np.unique(found)) == 64 * 16 and (found % 2 == 0).all()
    if row == 128 and is_k_major:
        assert found[3, 8] == 1024 + 3 * 128 + (16 ^ 3 * 16) and per_row == 64


def test_descriptor_fields():
    bits = 0x1000 >> 4 | (2048 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62
    assert shared_tiles.Descriptor.of(bits) == shared_tiles.Descriptor(0x1000, 2048, 1024, 128)
    with pytest.raises(NotUnderstood):
        shared_tiles.Descriptor.of(1 << 49)
