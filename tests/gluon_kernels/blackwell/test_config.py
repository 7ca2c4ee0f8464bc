"""Configurations of the Blackwell attention: what they accept, and what follows from them."""

import re
from dataclasses import replace

import pytest

from gluon_kernels.blackwell import config as blackwell
from gluon_kernels.blackwell.config import ROLE_REGS, AttentionConfig
from tests.gluon_kernels.support.blackwell_configs import CONFIGS, describe


@pytest.mark.parametrize("config", CONFIGS, ids=describe)
def test_default_configs_fit_blackwell(config):
    assert config.why_not(100) is None
    assert config.why_not(103) is None
    config.require(100)


@pytest.mark.parametrize(
    "change",
    [
        *({"fma_parts": n, "exp_parts": n} for n in (1, 2, 4)),
        *({"out_parts": n} for n in (1, 2, 4)),
        *({"softmax_regs": n, "block_n": n} for n in (64, 128)),
        {"softmax_regs": 232},  # leaves the correction what the single warps have
        {"kv_stages": 2},
    ],
    ids=str,
)
def test_what_the_kernel_can_do_is_not_refused(change):
    assert replace(AttentionConfig(), **change).why_not(100) is None


def test_shared_memory_is_taken_to_the_last_byte(monkeypatch):
    config = AttentionConfig(kv_stages=3)
    for spare in (0, 1):
        monkeypatch.setattr(blackwell, "SHARED_BYTES", config.shared_bytes - spare)
        assert (config.why_not(100) is None) == (spare == 0)


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 90, "arch 90: tcgen05"),
        ({}, 120, "arch 120: tcgen05"),
        ({"dtype": "fp32"}, 100, "dtype 'fp32': not one of fp8e5, fp8e4nv, fp16, bf16"),
        ({"head_dim": 96}, 100, "head_dim 96"),
        ({"head_dim": 256}, 100, "head_dim 256"),
        ({"block_m": 128}, 100, "block_m 128: must be 256, two halves"),
        ({"block_n": 96}, 100, "block_n 96"),
        ({"kv_stages": 1}, 100, "kv_stages 1: must be 2 or more, as the MMA holds V"),
        ({"dtype": "bf16", "head_dim": 128, "kv_stages": 4}, 100, "kv_stages 4 needs "),
        ({"exp_parts": 3}, 100, "exp_parts 3"),
        ({"fma_parts": 5}, 100, "fma_parts 5: must be 0 to 4, the number of exp_parts"),
        ({"out": "fp32"}, 100, "dtype 'fp32': not one of fp8e5"),
        ({"fma_parts": -1}, 100, "fma_parts -1: must be 0 to 4"),
        ({"out_parts": 8}, 100, "out_parts 8"),
        ({"softmax_regs": 190}, 100, "softmax_regs 190: must be a multiple of 8"),
        ({"softmax_regs": 120}, 100, "softmax_regs 120: must be a multiple of 8, enough for 128 scores"),
        ({"softmax_regs": 240}, 100, "softmax_regs 240: must be a multiple of 8, enough for 128 scores, at most 232"),
        ({"name": "two words"}, 100, "name 'two words': must have only letters"),
        ({"name": "$dollar"}, 100, "name '$dollar': must have only letters"),
        ({"name": ""}, 100, "name '': must have only letters"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(AttentionConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_only_a_ragged_kernel_takes_any_length():
    config = AttentionConfig()
    assert config.why_not(100, 512, 384) is None
    assert config.why_not(100, 500, 384) == "seqlen_q 500: must be a multiple of 256 for a kernel without `ragged`"
    with pytest.raises(ValueError, match="seqlen_k 1: must be a multiple of 128"):
        config.require(100, 512, 1)
    assert replace(config, ragged=True).why_not(100, 500, 1) is None


def test_registers_of_all_partitions_fit_an_sm():
    for config in CONFIGS:
        threads = 2 * 128 * config.softmax_regs + 128 * config.correction_regs + 128 * ROLE_REGS
        assert threads <= 65536
