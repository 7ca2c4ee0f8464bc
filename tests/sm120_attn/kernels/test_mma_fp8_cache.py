"""FP16 queries over an e4m3 cache: S and O of one warp against numpy, instruction by instruction, with real bytes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import numpy as np

from sm120_attn.config import Config
from sm120_attn.kernels import mma, mma_16bit, mma_fp8_cache
from sm120_attn.kernels.attention import policy_of
from sm120_attn.kernels.decode.config import DecodeConfig
from tests.sm120_attn.support.numpy_warp import DECODE, LANE, G, Instructions, T, bytes_of, encode

K_BASE, V_BASE = 1024, 32 * 1024


class Warp(Instructions):
    """Registers of 16-bit values are pairs of numbers, [32, 2]."""

    def widen_e4m3(self, word: Any) -> list[Any]:
        values = DECODE[bytes_of(word)]
        return [values[:, :2], values[:, 2:]]

    def mma_m16n8k16(self, dtype: str, a: Any, b: Any, c: Any) -> list[Any]:
        assert dtype == "fp16"
        left, right, sums = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
        for number, register in enumerate(a):
            for i in range(2):
                left[G + 8 * (number % 2), 8 * (number // 2) + 2 * T + i] = register[:, i]
        for number, register in enumerate(b):
            for i in range(2):
                right[8 * number + 2 * T + i, G] = register[:, i]
        for i in range(4 if c is not None else 0):
            sums[G + 8 * (i // 2), 2 * T + i % 2] = c[i]
        d = left @ right + sums
        return [d[G + 8 * (i // 2), 2 * T + i % 2] for i in range(4)]


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warp]:
    made = Warp()
    for module in (mma, mma_16bit, mma_fp8_cache):
        monkeypatch.setattr(module, "ptx", made)
    return made


def tile(rng: Any, keys: int, columns: int) -> Any:
    return encode(rng.standard_normal((keys, columns)))


def padded(codes: Any) -> Any:
    """Rows of whole panels, as cp.async fills them."""
    return np.pad(codes, ((0, 0), (0, -codes.shape[1] % 128)))


def operands_of(policy: Any, rows: Any, step: int) -> list[Any]:
    """The A operands of rows [16 * blocks, head_dim], as Decode.q_operands loads them."""
    found = []
    for block in range(policy.blocks):
        registers = []
        for i in range(4):
            row = 16 * block + G + 8 * (i % 2)
            column = 16 * step + policy.q_halves[i // 2] + policy.q_lane_bytes // 2 * T
            registers.append(np.stack([rows[row, column], rows[row, column + 1]], -1))
        found.append(registers)
    return found


@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 128, 160, 256])
@pytest.mark.parametrize(("rows_per_warp", "tile_n"), [(16, 16), (16, 32), (32, 32)])
def test_scores_are_the_products(warp: Warp, head_dim: int, rows_per_warp: int, tile_n: int) -> None:
    rng = np.random.default_rng(head_dim)
    config = DecodeConfig(kv_dtype="e4m3", head_dim=head_dim, rows_per_warp=rows_per_warp, tile_n=tile_n)
    policy = policy_of(config)
    rows, keys = rng.standard_normal((rows_per_warp, head_dim)), tile(rng, tile_n, head_dim)
    warp.write_tile(K_BASE, padded(keys))

    scores = policy.new_scores()
    _, k_offsets, _ = policy.lane_offsets(LANE)
    policy.add_scores(scores, lambda step: operands_of(policy, rows, step), K_BASE, k_offsets)

    wanted = rows @ DECODE[keys].T
    for block in range(policy.blocks):
        for n in range(policy.columns):
            for i in range(4):
                got = wanted[16 * block + G + 8 * (i // 2), 8 * n + 2 * T + i % 2]
                assert np.allclose(scores[block][n][i], got)


@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 128, 160, 256])
@pytest.mark.parametrize(("rows_per_warp", "tile_n"), [(16, 16), (16, 32), (32, 32)])
def test_output_is_in_its_place(warp: Warp, head_dim: int, rows_per_warp: int, tile_n: int) -> None:
    rng = np.random.default_rng(head_dim)
    config = DecodeConfig(kv_dtype="e4m3", head_dim=head_dim, rows_per_warp=rows_per_warp, tile_n=tile_n)
    policy = policy_of(config)
    values, probs = tile(rng, tile_n, head_dim), rng.random((rows_per_warp, tile_n))
    warp.write_tile(V_BASE, padded(values))
    acc_o = {
        (block, n, i): np.zeros(32)
        for block in range(policy.blocks) for n in range(policy.out_columns) for i in range(4)
    }  # fmt: skip
    *_, v_offsets = policy.lane_offsets(LANE)

    for step in range(tile_n // 16):
        p = [
            policy.p_operand(
                [
                    [probs[16 * block + G + 8 * (i // 2), 16 * step + 8 * n + 2 * T + i % 2] for i in range(4)]
                    for n in range(2)
                ],
                step,
            )
            for block in range(policy.blocks)
        ]
        policy.add_values(acc_o, p, V_BASE, v_offsets, step)

    wanted = probs @ DECODE[values]
    found = np.full_like(wanted, np.nan)
    for r, row in enumerate(policy.row_numbers(0, LANE)):
        for offset, parts in policy.row_parts(acc_o, r):
            column = (offset + policy.o_lane_bytes * T) // 4
            for i, part in enumerate(parts):
                found[row, column + i] = part
    assert np.allclose(found, wanted)


PREFILL = [
    Config(kv_dtype="e4m3", cache_rows=16, head_dim=head_dim, rows_per_warp=rows)
    for head_dim in (32, 48, 64, 80, 128, 192, 256) for rows in (16, 32)
]  # fmt: skip


@pytest.mark.parametrize("config", PREFILL)
def test_queries_of_a_prefill_are_taken_from_where_tma_puts_them(warp: Warp, config: Config) -> None:
    """Given Q in swizzled panels, then a lane gets its values, and again when it has put them back as operands."""
    rng = np.random.default_rng(config.head_dim)
    policy = policy_of(config)
    rows = rng.standard_normal((config.rows_per_warp, config.head_dim)).astype(np.float16)
    warp.write_tile(K_BASE, padded(rows.view(np.uint8)))
    q_offsets, *_ = policy.lane_offsets(LANE)

    held = [policy.load_q(K_BASE, q_offsets, step) for step in range(config.k_steps)]
    for step in range(config.k_steps):
        policy.store_operands(K_BASE + 16 * LANE, step, held[step])

    for step in range(config.k_steps):
        again = policy.load_operands(K_BASE + 16 * LANE, step)
        for block, wanted in enumerate(operands_of(policy, rows, step)):
            for i in range(4):
                pair = held[step][block][i].astype(np.uint32).view(np.float16).reshape(32, 2)
                assert np.array_equal(pair, wanted[i])
                assert np.array_equal(again[block][i], held[step][block][i])


@pytest.mark.parametrize("config", PREFILL)
def test_rows_of_a_prefill_have_their_columns_in_order(warp: Warp, config: Config) -> None:
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
        for offset, parts in policy.row_parts(acc_o, r):  # as decode writes them
            for i, part in enumerate(parts):
                assert np.array_equal(part, wanted[row, offset // 4 + 4 * T + i])


def test_q_becomes_fp16_by_a_power_of_two_that_keeps_it_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given rows of any size, when they are made FP16, then the largest is from 2^14 to 2^15, and factors are exact."""

    def from_bits(x: Any) -> Any:
        return np.uint32(x).view(np.float32)

    fake = SimpleNamespace(
        bits=lambda x: int(np.float32(x).view(np.uint32)), from_bits=from_bits, warp_max=lambda x: x,
        widened=lambda dtype, x: from_bits(int(x) << 16), upper=lambda x: int(x) >> 16,
        max_bits=lambda dtype, a, b: max(a & 0xFFFF, b & 0xFFFF) | max(a >> 16, b >> 16) << 16,
    )  # fmt: skip
    monkeypatch.setattr(mma_fp8_cache, "ptx", fake)
    monkeypatch.setattr(mma_fp8_cache, "cutlass", SimpleNamespace(min=min, max=max))
    monkeypatch.setattr(mma_fp8_cache, "Int32", int)
    policy = policy_of(DecodeConfig(kv_dtype="e4m3"))
    for largest in (1e-12, 3e-5, 0.7, 1.0, 2.0, 1e4, 3e12):
        word = int(np.float32(-largest).view(np.uint32)) >> 16
        for words in ([word, 0, 1 << 16], [1, word << 16], [word << 16 | 1, 0]):
            factor, inverse = policy.q_factor(words)
            assert factor * inverse == 1 and 2**14 <= abs(from_bits(word << 16)) * inverse < 2**15
