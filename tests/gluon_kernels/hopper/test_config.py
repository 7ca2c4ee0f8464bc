"""Configurations of the Hopper attention: defaults, candidates, and what is refused."""

import re
from dataclasses import replace
from itertools import product

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


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: wgmma exists on sm_90 only"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of"),
        ({"head_dim": 96}, 90, "head_dim 96: not one of 64, 128, 256"),
        ({"causal": True}, 90, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"own_sums": 2}, 90, "own_sums 2: must be 1 for bf16, whose sums already have 24 bits"),
        ({"own_sums": 8, "dtype": "fp8e5"}, 90, "own_sums 8: head_dim / own_sums, the columns of a sum, must be"),
        ({"own_sums": 2, "dtype": "fp8e5", "block_n": 64}, 90, "own_sums 2: block_m 128 and block_n 64 must be"),
        ({"consumers": 4}, 90, "consumers 4: must be 2 or 3, the warpgroups that fit beside"),
        ({"block_n": 96}, 90, "block_n 96: must be 64 or 128 keys"),
        ({"consumers": 3}, 90, "block_n 128 needs 160 + 24 registers in a thread; a thread of 3 consumers has 160"),
        ({"head_dim": 256}, 90, "block_n 128 needs 224 + 24 registers"),
        ({"dtype": "fp8e4nv", "block_n": 256, "head_dim": 64}, 90, "block_n 256: must be 64 or 128 keys"),
        ({"consumers": 3, "head_dim": 64, "keep_q": True}, 90, "block_n 128 needs 144 + 24 registers"),
        ({"keep_q": True, "head_dim": 256, "block_n": 64}, 90, "block_n 64 needs 240 + 24 registers"),
        ({"dtype": "fp8e4nv", "head_dim": 256}, 90, "block_n 128 needs 224 + 24 registers"),
        ({"name": "two words"}, 90, "name 'two words': must have only letters"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(HopperConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_what_a_thread_has_registers_for_has_two_to_four_stages_in_shared_memory():
    fields = product(DTYPES, (64, 128, 256), CAUSAL, (2, 3), (64, 128), (False, True))
    configs = [HopperConfig(*three, consumers=c, block_n=n, keep_q=q) for *three, c, n, q in fields]
    able = [config for config in configs if config.why_not(90) is None]
    assert {config.stages for config in able} == {2, 3, 4}
    for config in able:
        _, k, wide, _ = parts_of(config)
        assert config.shared_bytes == used(config) <= SHARED_BYTES
        assert config.stages == 4 or used(config) + k + wide > SHARED_BYTES


def parts_of(config):
    """Bytes of Q and O; of a block of K; of V with 16 bits; of all V with 8 bits."""
    q_and_o = config.block_m * config.head_dim * (config.element_bytes + (0 if config.shared_out else 2))
    keys = config.block_n * config.head_dim
    return q_and_o, keys * config.element_bytes, 2 * keys, 2 * keys if config.fp8 else 0


def used(config):
    q_and_o, k, wide, narrow = parts_of(config)
    return q_and_o + config.stages * (k + wide) + narrow + 1024


@pytest.mark.parametrize("dtype", ["fp8e4nv", "fp8e5", "fp16", "bf16"])
def test_only_fp8_adds_up_rounded_probabilities_and_not_with_the_widest_heads(dtype):
    found = [HopperConfig(dtype, head_dim, block_n=64).options.half_sums for head_dim in (64, 128, 256)]
    assert found == ([True, True, False] if dtype.startswith("fp8") else [False] * 3)


@pytest.mark.parametrize(
    ("dtype", "largest"), [(d, 65504) for d in ("fp8e4nv", "fp8e5", "fp16")] + [("bf16", 2.0**127)]
)
def test_probabilities_stay_in_range_and_a_true_maximum_is_never_doubted(dtype, largest):
    options = HopperConfig(dtype=dtype).options
    assert 128 / 4 <= options.most_lane_sum <= largest
