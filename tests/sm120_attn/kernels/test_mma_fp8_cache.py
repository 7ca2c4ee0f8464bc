"""Prefill over an e4m3 cache: where a warp's lanes take Q from, and where they leave O. test_emulated_checks.py has the
decode kernels, but not these: their descriptors begin before their memory."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import numpy as np

from sm120_attn.config import Config
from sm120_attn.kernels import mma, mma_16bit, mma_fp8_cache
from sm120_attn.kernels.attention import policy_of

BASE = 1024
LANE = np.arange(32)
G, T = LANE // 4, LANE % 4


class Warp:
    """The instructions of 32 lanes that these functions use. A register is an array of 32 numbers; memory has bytes."""

    def __init__(self) -> None:
        self.memory = np.full(1 << 16, 0x7F, np.uint8)

    def write_tile(self, rows: Any) -> None:
        """Write rows of bytes as TMA does: in panels of 128 bytes, whose bits 4 to 6 are combined with bits 7 to 9."""
        count, size = rows.shape
        for row in range(count):
            for first in range(0, size, 16):
                at = (first // 128 * count + row) * 128 + first % 128
                at = BASE + (at ^ (at >> 7 & 7) << 4)
                self.memory[at : at + 16] = rows[row, first : first + 16]

    def words_at(self, addresses: Any) -> Any:
        return self.memory[addresses[:, None] + np.arange(16)].view(np.uint32)

    def ldmatrix(self, address: Any, offset: int) -> list[Any]:
        return list(self.words_at(address + offset).reshape(4, 32))

    def load_shared(self, address: Any, offset: int, count: int) -> list[Any]:
        return list(self.words_at(address + offset).T[:count])

    def store_shared(self, address: Any, offset: int, values: Any) -> None:
        words = np.stack([np.asarray(x, np.uint32) for x in values], -1).view(np.uint8)
        self.memory[(address + offset)[:, None] + np.arange(words.shape[-1])] = words

    def kept(self, x: Any, lane: Any) -> Any:
        return x

    def bits(self, x: Any) -> Any:
        return x

    from_bits = bits

    def pack(self, dtype: str, low: Any, high: Any) -> Any:
        return np.stack([low, high], -1)


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> Warp:
    made = Warp()
    for module in (mma, mma_16bit, mma_fp8_cache):
        monkeypatch.setattr(module, "ptx", made)
    return made


CONFIGS = [
    Config(kv_dtype="e4m3", cache_rows=16, head_dim=head_dim, rows_per_warp=rows)
    for head_dim in (32, 48, 64, 80, 128, 192, 256) for rows in (16, 32)
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_queries_are_taken_from_where_tma_puts_them(warp: Warp, config: Config) -> None:
    """Given Q in swizzled panels, then a lane gets its values, and again when it has put them back as operands."""
    policy = policy_of(config)
    draw = np.random.default_rng(config.head_dim)
    rows = draw.standard_normal((config.rows_per_warp, config.head_dim)).astype(np.float16)
    warp.write_tile(np.pad(rows.view(np.uint8), ((0, 0), (0, -2 * config.head_dim % 128))))
    q_offsets, *_ = policy.lane_offsets(LANE)

    held = [policy.load_q(BASE, q_offsets, step) for step in range(config.k_steps)]
    for step in range(config.k_steps):
        policy.store_operands(BASE + 16 * LANE, step, held[step])

    for step in range(config.k_steps):
        again = policy.load_operands(BASE + 16 * LANE, step)
        for block in range(policy.blocks):
            for i in range(4):
                row = 16 * block + G + 8 * (i % 2)
                column = 16 * step + policy.q_halves[i // 2] + policy.q_lane_bytes // 2 * T
                pair = held[step][block][i].astype(np.uint32).view(np.float16).reshape(32, 2)
                assert np.array_equal(pair, np.stack([rows[row, column], rows[row, column + 1]], -1))
                assert np.array_equal(again[block][i], held[step][block][i])


@pytest.mark.parametrize("config", CONFIGS)
def test_rows_have_their_columns_in_order(warp: Warp, config: Config) -> None:
    """Given O as add_values leaves it, then words 2n and 2n + 1 of lane t are columns 16n + 4t to 16n + 4t + 3."""
    policy = policy_of(config)
    wanted = np.random.default_rng(1).random((config.rows_per_warp, config.head_dim))
    acc_o = {}
    for r, row in enumerate(policy.row_numbers(0, LANE)):
        block, values = policy.row_of(r)
        for chunk in range(config.k_steps):
            for j, i in enumerate(values):
                for odd in range(2):
                    acc_o[block, 2 * chunk + odd, i] = wanted[row, 16 * chunk + 4 * T + 2 * j + odd]

    for r, row in enumerate(policy.row_numbers(0, LANE)):
        words = policy.row_words(acc_o, r, 0.5)
        assert policy.o_lane_words == 2 and len(words) == config.head_dim // 8
        for number, pair in enumerate(words):
            column = 16 * (number // 2) + 4 * T + 2 * (number % 2)
            assert np.array_equal(pair, 0.5 * np.stack([wanted[row, column], wanted[row, column + 1]], -1))
