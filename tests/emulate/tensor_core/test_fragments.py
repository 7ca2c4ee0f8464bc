"""Which lane holds which number, as the PTX ISA's tables of fragments say."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.tensor_core import fragments  # noqa: E402

WARPS = 3


def held(registers, bits):
    """The numbers in registers (count, threads): by register, thread and place in the register."""
    places = range(32 // bits)
    return {
        (r, t, n): int(word) >> bits * n & (1 << bits) - 1
        for r, row in enumerate(registers.tolist())
        for t, word in enumerate(row)
        for n in places
    }


def registers_of(count, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 32, (count, 32 * WARPS), np.uint32)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("s4", 4), ("u8", 8), ("s8", 8), ("e4m3", 8), ("f16", 16), ("bf16", 16), ("tf32", 32), ("s32", 32), ("e2m1", 4)],
)
def test_widths(kind, bits):
    assert fragments.width(kind) == bits


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_registers_hold_numbers_from_the_lowest_on(bits):
    registers = registers_of(2)
    numbers = fragments.unpack(registers, bits)
    assert numbers.shape == (2, 32 * WARPS, 32 // bits)
    assert {at: int(one) for at, one in np.ndenumerate(numbers)} == held(registers, bits)
    if bits > 4:
        assert (fragments.pack(numbers, bits) == registers).all() and fragments.pack(numbers, bits).dtype == np.uint32


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_rows_of_a_and_columns_of_b(count, bits):
    """A: register r has rows g + 8 (r % 2), and k from 4 numbers of a register on for r // 2. B: k alike."""
    registers, each = registers_of(count), 32 // bits
    a, b = fragments.matrix_a(registers, bits), fragments.matrix_b(registers, bits)
    assert a.shape == (WARPS, 8 * min(count, 2), 4 * each * max(count // 2, 1)) and b.shape == (
        WARPS,
        4 * each * count,
        8,
    )
    for (r, thread, n), number in held(registers, bits).items():
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        assert a[warp, g + 8 * (r % 2), r // 2 * 4 * each + t * each + n] == number
        assert b[warp, r * 4 * each + t * each + n, g] == number


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_rows_and_columns_of_c(tiles, bits):
    registers = registers_of(tiles * (4 if bits == 32 else 2))
    c = fragments.matrix_c(registers, bits)
    assert c.shape == (WARPS, 16, 8 * tiles)
    for (r, thread, n), number in held(registers, bits).items():
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        place = r * (32 // bits) + n  # of two numbers side by side, two rows 8 apart, then the next 8 columns
        assert c[warp, g + 8 * (place // 2 % 2), place // 4 * 8 + 2 * t + place % 2] == number
    back = fragments.registers_of_c(c, bits)
    assert back.dtype == np.uint32 and (back == registers).all()


@pytest.mark.parametrize("byte", range(4))
def test_scales_lie_in_a_byte_of_some_lanes(byte):
    codes = (np.arange(32 * WARPS) * 7 % 255).astype(np.uint32)
    (registers,) = registers_of(1)
    shift = np.uint32(8 * byte)
    registers = registers & ~(np.uint32(255) << shift) | codes << shift
    for pair in range(2):
        rows = fragments.scales_of_rows(registers, byte, pair)
        assert rows.shape == (WARPS, 16, 1)
        for warp in range(WARPS):
            lanes = [32 * warp + 4 * (row % 8) + 2 * pair + row // 8 for row in range(16)]
            assert rows[warp, :, 0].tolist() == [2.0 ** (int(codes[lane]) - 127) for lane in lanes]
    for thread in range(4):
        columns = fragments.scales_of_columns(registers, byte, thread)
        assert columns.shape == (WARPS, 1, 8)
        for warp in range(WARPS):
            lanes = [32 * warp + 4 * g + thread for g in range(8)]
            assert columns[warp, 0].tolist() == [2.0 ** (int(codes[lane]) - 127) for lane in lanes]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_matrices_go_through_shared_memory(matrices, transposed):
    rows = np.random.default_rng(1).integers(0, 1 << 16, (WARPS, matrices, 8, 8), np.uint16)
    registers = fragments.loaded(rows, transposed)
    assert registers.shape == (matrices, 32 * WARPS)
    for (m, thread, n), number in held(registers, 16).items():
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        at = (2 * t + n, g) if transposed else (g, 2 * t + n)
        assert rows[(warp, m, *at)] == number
    assert (fragments.stored(registers, transposed) == rows).all()


@pytest.mark.parametrize("matrices", [1, 2])
def test_bytes_are_transposed(matrices):
    rows = np.random.default_rng(1).integers(0, 256, (WARPS, matrices, 16, 16), np.uint8)
    registers = fragments.loaded_bytes(rows)
    assert registers.shape == (2 * matrices, 32 * WARPS)
    for (r, thread, n), number in held(registers, 8).items():
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        assert rows[warp, r // 2, 4 * t + n, g + 8 * (r % 2)] == number
