"""The lane addresses of Q, K and V against the layouts that PTX gives for ldmatrix and mma.m16n8k16, in Python.

Shared memory is a dictionary from byte address to (row, column); TMA's 128-byte swizzle puts 16-byte chunk c of row r
at c ^ (r % 8). The kernel's own address functions are used, so that a wrong one shows here, without a GPU.
"""

from types import SimpleNamespace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

from sm120_attn.config import Config
from sm120_attn.kernels import mma, mma_16bit


class Memory:
    """A tile of rows x (64 x panels) 16-bit values at address 0, as TMA writes it; loads give (row, column) pairs."""

    def __init__(self, rows: int, panels: int, swizzled: bool = True):
        self.at = {}
        for panel in range(panels):
            for row in range(rows):
                for column in range(64):
                    chunk = column // 8 ^ (row % 8 if swizzled else 0)
                    address = (panel * rows + row) * 128 + chunk * 16 + column % 8 * 2
                    self.at[address] = row, 64 * panel + column

    def ldmatrix(self, addresses, transpose):
        """PTX ldmatrix .x4: [lane][register] = two elements."""
        matrices = [[[self.at[a + 2 * c] for c in range(8)] for a in addresses[8 * i : 8 * i + 8]] for i in range(4)]
        if transpose:
            matrices = [[list(column) for column in zip(*m, strict=True)] for m in matrices]
        return [[tuple(m[lane // 4][2 * (lane % 4) : 2 * (lane % 4) + 2]) for m in matrices] for lane in range(32)]


def loads(monkeypatch, memory, call):
    """What every lane gets from the one ldmatrix that `call(offsets_low, offsets_high)` makes."""
    asked = []

    def fake(address, offset, transpose=False):
        asked.append((address + offset, transpose))
        return [0, 1, 2, 3]

    monkeypatch.setattr(mma, "ptx", SimpleNamespace(ldmatrix=fake))
    monkeypatch.setattr(mma_16bit, "ptx", SimpleNamespace(ldmatrix=fake))
    for lane in range(32):
        call(lane)
    addresses, transposes = zip(*asked, strict=True)
    assert len(asked) == 32
    return memory.ldmatrix(addresses, transposes[0])


def offsets_of(policy, lane):
    """The lane's offsets, without the instruction that keeps them in registers."""
    real, mma_16bit.ptx = mma_16bit.ptx, SimpleNamespace(kept=lambda x, lane: x)
    try:
        return policy.lane_offsets(lane)
    finally:
        mma_16bit.ptx = real


POLICY = mma_16bit.Mma16(Config(head_dim=128, rows_per_warp=16, tile_n=64))


@pytest.mark.parametrize("step", range(8))
def test_q_is_an_a_operand(monkeypatch, step):
    """Register 0: row g, columns 2t; 1: row g+8; 2 and 3: the same, 8 columns on."""
    got = loads(monkeypatch, Memory(16, 2), lambda lane: POLICY.load_q(0, offsets_of(POLICY, lane)[0], step))
    for lane in range(32):
        g, column = lane // 4, 16 * step + 2 * (lane % 4)
        for register, (row, shift) in enumerate([(g, 0), (g + 8, 0), (g, 8), (g + 8, 8)]):
            assert got[lane][register] == ((row, column + shift), (row, column + shift + 1))


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("column", range(4))
def test_k_is_two_b_operands(monkeypatch, step, column):
    """Registers 0, 1: key g of the first eight, columns 2t and 2t+8; 2, 3: the same of the next eight keys."""

    def call(lane):
        POLICY.load_k(offsets_of(POLICY, lane)[1][step % 4], step // 4, column)

    got = loads(monkeypatch, Memory(64, 2), call)
    for lane in range(32):
        key, depth = 16 * column + lane // 4, 16 * step + 2 * (lane % 4)
        for register, (more, shift) in enumerate([(0, 0), (0, 8), (8, 0), (8, 8)]):
            assert got[lane][register] == ((key + more, depth + shift), (key + more, depth + shift + 1))


@pytest.mark.parametrize("tile_n", [32, 64])
@pytest.mark.parametrize("step", range(2))
def test_v_is_two_b_operands_after_the_transpose(monkeypatch, step, tile_n):
    """Registers 0, 1: column g, keys 2t and 2t+8; 2, 3: the same eight columns on."""
    policy = mma_16bit.Mma16(Config(head_dim=128, rows_per_warp=16, tile_n=tile_n))
    for column in range(8):
        asked = []

        def fake(address, offset, transpose=False, asked=asked):
            asked.append(address + offset)
            assert transpose
            return [0, 1, 2, 3]

        monkeypatch.setattr(mma_16bit, "ptx", SimpleNamespace(ldmatrix=fake, mma_m16n8k16=lambda *a: [0] * 4))
        output = {(0, n, i): 0 for n in range(16) for i in range(4)}
        for lane in range(32):
            policy.add_values(output, [[0] * 4], 0, offsets_of(policy, lane)[0], step)
        got = Memory(tile_n, 2).ldmatrix(asked[column::8], transpose=True)
        for lane in range(32):
            key, depth = 16 * step + 2 * (lane % 4), 16 * column + lane // 4
            for register, (more, shift) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8)]):
                assert got[lane][register] == ((key + more, depth + shift), (key + more + 1, depth + shift))


def test_no_two_lanes_of_a_phase_share_a_bank():
    """ldmatrix reads eight rows of 16 bytes at a time: they must be in eight different 16-byte columns of the banks."""
    for offsets in (0, 1):
        for step in range(4):
            addresses = [offsets_of(POLICY, lane)[offsets][step] for lane in range(32)]
            for phase in range(4):
                assert len({a // 16 % 8 for a in addresses[8 * phase : 8 * phase + 8]}) == 8


def test_a_tile_without_the_swizzle_is_told_apart(monkeypatch):
    """Given memory that is not swizzled, when the same lanes read it, then they get something else."""
    call = lambda lane: POLICY.load_q(0, offsets_of(POLICY, lane)[0], 1)  # noqa: E731

    assert loads(monkeypatch, Memory(16, 2), call) != loads(monkeypatch, Memory(16, 2, swizzled=False), call)
