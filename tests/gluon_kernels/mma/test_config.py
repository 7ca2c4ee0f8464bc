"""Configurations of the mma.sync attention: defaults, candidates, and what is refused."""

import re
from dataclasses import replace
from itertools import product

import pytest

from gluon_kernels.config import CAUSAL
from gluon_kernels.mma import config as mma
from gluon_kernels.mma.config import MmaConfig, candidates, default_config


@pytest.mark.parametrize("arch", [80, 90, 120, 121])
def test_default_configs_fit_the_gpu(arch):
    for head_dim, dtype, causal in product((64, 128, 256), ("bf16", "fp16", "fp8e4nv"), CAUSAL):
        reason = default_config(arch, dtype, head_dim, causal).why_not(arch)
        assert reason is None if (arch, dtype) != (80, "fp8e4nv") else "fp8 from sm_89 on" in reason


@pytest.mark.parametrize(
    ("dtype", "head_dim", "reason"), [("fp32", 64, "dtype 'fp32'"), ("bf16", 96, "head_dim 96"), ("fp8e5", 64, "fp8e5")]
)
def test_what_no_kernel_has_gets_a_configuration_that_says_so(dtype, head_dim, reason):
    found = default_config(90, dtype, head_dim, "top-left")
    assert reason in found.why_not(90) and found.causal == "top-left"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"block_m": 64},
        {"warps": 8},
        {"warps": 8, "block_m": 256},
        {"block_n": 32, "parts": 2},
        {"block_n": 128, "parts": 8},
        {"stages": 1, "keep_q": True},
        {"dtype": "fp16", "parts": 4, "sum_by_mma": True},
        {"dtype": "fp8e4nv", "block_n": 32},
        {"dtype": "fp8e4nv", "block_n": 128, "parts": 4},
        {"block_m": 64, "head_dim": 256, "block_n": 32, "trigger": "pragma"},
    ],
    ids=str,
)
def test_what_the_kernel_can_do_is_not_refused(change):
    assert replace(MmaConfig(), **change).why_not(90) is None


@pytest.mark.parametrize(("stages", "arch"), [(1, 120), (2, 80), (2, 90)])
def test_shared_memory_is_taken_to_the_last_byte(stages, arch, monkeypatch):
    config = MmaConfig(stages=stages)
    for spare in (0, 1):
        monkeypatch.setitem(mma.SHARED_BYTES, arch, config.shared_bytes - spare)
        assert (config.why_not(arch) is None) == (spare == 0)


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: the kernel is for sm_80, sm_90, sm_120, sm_121"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of fp16, bf16, fp8e4nv"),
        ({"dtype": "fp8e4nv"}, 80, "dtype fp8e4nv: mma.sync takes fp8 from sm_89"),
        ({"causal": True}, 90, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"head_dim": 96}, 90, "head_dim 96: not one of 64, 128, 256"),
        ({"warps": 2}, 90, "warps 2"),
        ({"block_m": 256}, 90, "block_m 256: must be 16 or 32 times warps, which is 4"),
        ({"block_m": 192}, 90, "block_m 192: must be 16 or 32 times warps, which is 4"),
        ({"block_n": 48}, 90, "block_n 48"),
        ({"block_n": 256, "stages": 1}, 90, "block_n 256: must be 32, 64 or 128"),
        ({"stages": 3}, 90, "stages 3"),
        ({"parts": 3}, 90, "parts 3: must be 1, 2, 4 or 8"),
        ({"parts": 8}, 90, "parts 8: must be 1, 2, 4 or 8; a part needs at least the 16 keys"),
        ({"dtype": "fp8e4nv", "parts": 4}, 90, "parts 4: must be 1, 2, 4 or 8; a part needs at least the 32 keys"),
        (
            {"head_dim": 256, "block_n": 64, "stages": 2},
            120,
            "needs 196608 bytes of shared memory; a CTA on sm_120 has 101376",
        ),
        ({"dtype": "fp8e4nv", "parts": 2, "sum_by_mma": True}, 90, "sum_by_mma must be False for fp8: ptxas"),
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
