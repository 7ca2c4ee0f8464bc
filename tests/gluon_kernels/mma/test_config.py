"""Configurations of the mma.sync attention: defaults, candidates, and what is refused."""

import re
from dataclasses import replace

import pytest

from gluon_kernels.config import CAUSAL
from gluon_kernels.mma.config import MmaConfig, candidates, default_config


@pytest.mark.parametrize("arch", [80, 90, 120, 121])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8e4nv"])
@pytest.mark.parametrize("causal", CAUSAL)
def test_default_configs_fit_the_gpu(arch, head_dim, dtype, causal):
    reason = default_config(arch, dtype, head_dim, causal).why_not(arch)
    assert reason is None if (arch, dtype) != (80, "fp8e4nv") else "fp8 from sm_89 on" in reason


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: the kernel is for sm_80"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of"),
        ({"dtype": "fp8e4nv"}, 80, "dtype fp8e4nv: mma.sync takes fp8 from sm_89"),
        ({"causal": True}, 90, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"head_dim": 96}, 90, "head_dim 96"),
        ({"warps": 2}, 90, "warps 2"),
        ({"block_m": 256}, 90, "block_m 256: 4 warps compute 16 or 32 rows each"),
        ({"block_n": 48}, 90, "block_n 48"),
        ({"stages": 3}, 90, "stages 3"),
        ({"parts": 3}, 90, "parts 3: 1, 2, 4 or 8"),
        ({"parts": 8}, 90, "parts 8: 1, 2, 4 or 8, each with at least the 16 keys"),
        ({"dtype": "fp8e4nv", "parts": 4}, 90, "parts 4: 1, 2, 4 or 8, each with at least the 32 keys"),
        (
            {"head_dim": 256, "block_n": 64, "stages": 2},
            120,
            "196608 bytes of shared memory: a CTA on sm_120 has 101376",
        ),
        ({"dtype": "fp8e4nv", "parts": 2, "sum_by_mma": True}, 90, "sum_by_mma with fp8: ptxas"),
        ({"name": "two words"}, 90, "name 'two words'"),
        ({"trigger": "luck"}, 90, "trigger 'luck': not one of None, 'name', 'pragma'"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(MmaConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


@pytest.mark.parametrize("trigger", ["name", "pragma"])
def test_every_candidate_comes_with_both_schedulers_and_can_run(trigger):
    config = default_config(90, "bf16", 128, None)
    found = list(candidates(config, 90, trigger))
    assert found[0] == config
    assert len(found) == len(set(found))
    assert all(c.why_not(90) is None for c in found)
    for one in found:
        assert {replace(one, trigger=of) for of in (None, trigger)} <= set(found)
        assert (one.dtype, one.head_dim, one.causal) == (config.dtype, config.head_dim, config.causal)
