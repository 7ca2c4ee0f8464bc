"""Configurations of the Hopper attention: defaults, candidates, and what is refused."""

import re
from dataclasses import replace

import pytest

from gluon_kernels.config import CAUSAL, SHARED_BYTES
from gluon_kernels.hopper.config import HopperConfig, candidates, default_config

DTYPES = ("bf16", "fp16", "fp8e4nv", "fp8e5")


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", CAUSAL)
def test_default_configs_and_candidates_fit_hopper(dtype, head_dim, causal):
    config = default_config(90, dtype, head_dim, causal)
    assert config.why_not(90) is None
    found = list(candidates(config, 90))
    assert found[0] == config
    assert 1 < len(found) == len(set(found))
    for one in found:
        assert one.why_not(90) is None
        assert not (one.q_early and one.shared_out), "the next Q would be loaded over O"
        assert (one.dtype, one.head_dim, one.causal, one.name) == (dtype, head_dim, causal, config.name)
    assert {one.guess for one in found} == {False, True}


@pytest.mark.parametrize(
    ("head_dim", "causal", "queries", "fields"),
    [
        (128, None, 255, {"guess": False, "codes": False, "consumers": 2, "turns": False, "keep_q": False}),
        (128, None, 256, {"overlap": True, "turns": True, "q_early": False, "consumer_registers": 232}),
        (128, "top-left", 1024, {"overlap": True, "turns": False, "q_early": False}),
        (128, "top-left", 4096, {"overlap": True, "turns": True}),
        (64, None, 1, {"guess": False, "codes": False, "consumers": 2, "keep_q": False}),
        (64, None, 1024, {"overlap": True, "consumers": 2, "turns": True, "uneven": False}),
        (64, None, 4096, {"consumers": 3, "turns": True, "keep_q": False, "consumer_registers": 160}),
        (64, "top-left", 4096, {"overlap": True, "consumers": 2, "turns": True}),
        (64, "top-left", 8192, {"consumers": 3, "turns": True, "keep_q": False, "uneven": True}),
        (256, None, 4096, {"overlap": False, "turns": True, "keep_q": False, "consumer_registers": 240}),
        (256, "top-left", 256, {"overlap": False, "turns": True, "keep_q": False, "q_early": False}),
        (256, "top-left", 255, {"guess": False, "codes": False}),
    ],
)
def test_fp8_takes_what_was_fastest_and_exact_maxima_for_few_rows(head_dim, causal, queries, fields):
    config = default_config(90, "fp8e4nv", head_dim, causal, queries)
    many = queries >= 256
    guess = many and head_dim < 256
    rough = {"codes": many, "guess": guess, "int_max": many and not guess, "overlap": guess, "keep_q": many}
    wanted = rough | {"by_fma": 0, "block_n": 128} | fields
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert config.transpose_v == (head_dim < 256)
    with_lse = default_config(90, "fp8e4nv", head_dim, causal, queries, lse=True)
    assert (with_lse.codes, with_lse.overlap, with_lse.guess) == (False, False, guess)
    assert with_lse.int_max == (many and head_dim == 256)
    assert with_lse.by_fma == ({64: 2, 128: 1}[head_dim] if guess else 0)
    assert (with_lse.consumers, with_lse.block_n, with_lse.keep_q) == (config.consumers, 128, False)


@pytest.mark.parametrize(
    ("head_dim", "causal", "queries", "fields"),
    [
        (64, None, 1024, {"consumers": 2, "guess": True, "keep_q": True, "turns": True, "uneven": False}),
        (64, None, 2048, {"consumers": 3, "int_max": True, "turns": True, "uneven": True, "ordered": True}),
        (64, "top-left", 4095, {"consumers": 2, "guess": True, "keep_q": True, "turns": True, "ordered": True}),
        (64, "bottom-right", 4096, {"consumers": 3, "int_max": True, "keep_q": False, "turns": True, "uneven": True}),
        (128, None, 1024, {"guess": True, "turns": False, "uneven": False, "ordered": False}),
        (128, "top-left", 1024, {"guess": True, "turns": True, "q_early": True, "ordered": True, "uneven": False}),
        (128, "top-left", 2048, {"guess": True, "turns": False, "keep_q": False}),
        (256, None, 4096, {"guess": True, "block_n": 64, "uneven": False, "ordered": False}),
        (256, "top-left", 4096, {"guess": True, "block_n": 64, "uneven": True, "q_early": False}),
    ],
)
def test_sixteen_bits_take_what_was_fastest(head_dim, causal, queries, fields):
    for dtype in ("bf16", "fp16"):
        config = default_config(90, dtype, head_dim, causal, queries)
        assert {name: getattr(config, name) for name in fields} == fields
        assert not config.overlap and config.guess != config.int_max
        assert config == default_config(90, dtype, head_dim, causal, queries, lse=True)


def test_two_consumers_leave_registers_to_the_warps_that_transpose_for_codes():
    codes = HopperConfig("fp8e4nv", guess=True, codes=True, transpose_v=True)
    assert codes.consumer_registers == 232
    for other in ({"codes": False}, {"transpose_v": False}):
        assert replace(codes, **other).consumer_registers == 240, other
    three = replace(codes, head_dim=64, consumers=3)
    assert three.consumer_registers == 160 and three.why_not(90) is None


def test_codes_take_shared_memory_for_their_ones_and_keep_what_few_keys_guess():
    codes = HopperConfig("fp8e4nv", guess=True, codes=True, kv_stages=2)
    assert codes.shared_bytes == replace(codes, codes=False).shared_bytes + 8 * 128
    assert (codes.margin_bits, codes.head_bits) == (0, 5)
    assert (replace(codes, dtype="fp8e5").margin_bits, replace(codes, dtype="fp8e5").head_bits) == (3, 7)
    assert (replace(codes, codes=False).margin_bits, replace(codes, codes=False).head_bits) == (3, 3)


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: wgmma exists on sm_90 only"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of"),
        ({"head_dim": 96}, 90, "head_dim 96: not one of 64, 128, 256"),
        ({"causal": True}, 90, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"consumers": 4}, 90, "consumers 4: 2 or 3 warpgroups fit beside"),
        ({"block_n": 96}, 90, "block_n 96: 64, 128 or 256"),
        ({"consumers": 3}, 90, "160 registers for the tiles of block_n 128: a thread of 3 consumers has 160"),
        ({"head_dim": 256}, 90, "224 registers for the tiles of block_n 128"),
        ({"kv_stages": 1}, 90, "kv_stages 1: must be 2 to 4, as each has named barriers"),
        ({"kv_stages": 5, "head_dim": 64}, 90, "kv_stages 5: must be 2 to 4"),
        ({"kv_stages": 3}, 90, "shared bytes for 3 kv_stages: a CTA has 232448"),
        ({"guess": True, "dtype": "fp8e4nv", "block_n": 256, "head_dim": 64}, 90, "block_n 256: with guess 64 or 128"),
        ({"by_fma": 2}, 90, "by_fma 2: 0 to 16, and 0 without guess"),
        ({"guess": True, "by_fma": 17}, 90, "by_fma 17: 0 to 16"),
        ({"codes": True, "guess": True}, 90, "codes with bf16: only fp8 has them"),
        ({"transpose_v": True, "dtype": "fp8e4nv", "head_dim": 64, "block_n": 256}, 90, "256: transpose_v writes rows"),
        ({"transpose_v": True, "dtype": "fp8e4nv", "head_dim": 256}, 90, "kv_stages 1: must be 2 to 4"),
        ({"consumers": 3, "head_dim": 64, "keep_q": True}, 90, "144 registers for the tiles of block_n 128"),
        ({"overlap": True}, 90, "overlap without guess"),
        ({"keep_q": True, "head_dim": 256, "block_n": 64}, 90, "240 registers for the tiles of block_n 64"),
        ({"int_max": True, "guess": True}, 90, "int_max with guess: maxima are searched only where"),
        ({"transpose_v": True}, 90, "transpose_v with bf16: wgmma reads 16-bit V as it is"),
        (
            {"guess": True, "overlap": True, "dtype": "fp8e4nv", "head_dim": 256},
            90,
            "224 registers for the tiles of block_n 128",
        ),
        ({"name": "two words"}, 90, "name 'two words': Triton takes letters"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(HopperConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_stages_fill_shared_memory_but_no_more():
    config = HopperConfig(dtype="fp8e4nv", head_dim=256, block_n=128)
    assert config.stages == 2
    assert config.shared_bytes <= SHARED_BYTES < replace(config, kv_stages=3).shared_bytes


def test_fp8_probabilities_stay_in_the_range_of_the_type():
    for dtype, largest in (("fp8e4nv", 448), ("fp8e5", 57344)):
        config = HopperConfig(dtype=dtype)
        assert largest / 4 < 2 ** (config.head_bits + config.lazy_bits) < largest
        assert 2 ** (replace(config, guess=True, codes=True).head_bits + 3) < largest
    assert HopperConfig().head_bits == 0


@pytest.mark.parametrize(
    ("dtype", "largest"), [("fp8e4nv", 448), ("fp8e5", 57344), ("fp16", 65504), ("bf16", 2.0**127)]
)
def test_guessed_probabilities_stay_in_range_and_a_true_maximum_is_never_doubted(dtype, largest):
    config = HopperConfig(dtype=dtype, guess=True)
    assert 128 / 4 * 2**config.head_bits <= config.most_lane_sum <= largest
