"""Configs and plans: what can be built, what is refused with which reason, and what is picked for a shape."""

from dataclasses import replace
from itertools import product

import pytest

from sm120_attn.config import Config, why_not
from sm120_attn.planner import Shape, plan

GOOD = Config(rows_per_warp=32, stages_k=1, stages_v=1)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"arch": "sm_80"}, "arch"),
        ({"dtype": "fp32"}, "dtype"),
        ({"kernel": "wgmma"}, "kernel"),
        ({"head_dim": 24}, "head_dim"),
        ({"head_dim": 100}, "head_dim"),
        ({"head_dim": 264}, "head_dim"),
        ({"align": "left"}, "align"),
        ({"rows_per_warp": 64}, "rows_per_warp"),
        ({"warps": 6}, "warps"),
        ({"tile_n": 48}, "tile_n"),
        ({"stages_k": 3}, "stages"),
        ({"ctas_per_sm": 2}, "ctas_per_sm"),
        ({"split_keys": True}, "split_keys"),
        ({"tile_n": 128}, "registers"),
        ({"stages_k": 2}, "shared memory"),
        ({"kernel": "cp_async", "stages_k": 2}, "cp_async"),
    ],
)
def test_each_limit_is_named_with_its_value(change, word):
    """Given one impossible field, when asked, then the reason names it and its value."""
    reason = why_not(replace(GOOD, **change))

    assert reason is not None and word in reason
    value = str(next(iter(change.values())))
    assert value in reason or word in ("registers", "shared memory", "cp_async", "split_keys")


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_there_is_a_plan_for_every_head_dim_and_length(dtype):
    for head_dim, seqlen, causal in product(range(32, 257, 8), (1, 64, 1000, 100_000), (False, True)):
        shape = Shape("sm_120a", dtype, head_dim, 2, 8, 2, seqlen, seqlen, causal=causal)
        chosen = plan(shape)
        assert why_not(chosen.config) is None
        assert chosen.config.head_dim == head_dim and chosen.config.causal == causal
        assert chosen.reason


FP8 = Config(dtype="e4m3", out_dtype="bf16", tile_n=128, q_in_registers=True)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"out_dtype": ""}, "out_dtype"),
        ({"out_dtype": "e4m3"}, "out_dtype"),
        ({"fp8_mma": "best"}, "fp8_mma"),
        ({"kernel": "cp_async", "stages_k": 1, "stages_v": 1}, "kernel"),
        ({"head_dim": 76}, "head_dim"),
        ({"split_keys": True, "tile_n": 32}, "split_keys"),
        ({"rows_per_warp": 32}, "registers"),
        ({"stages_k": 4}, "shared memory"),
        ({"dtype": "bf16", "tile_n": 64}, "out_dtype"),
        ({"dtype": "fp16", "tile_n": 64, "out_dtype": "", "fp8_mma": "plain"}, "fp8_mma"),
    ],
)
def test_limits_of_fp8_are_named(change, word):
    assert why_not(FP8) is None
    assert word in (why_not(replace(FP8, **change)) or "")


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_there_is_a_plan_for_every_fp8_head_dim(dtype):
    for head_dim, out_dtype in product(range(32, 257, 8), ("bf16", "fp16", "fp32")):
        chosen = plan(Shape("sm_120a", dtype, head_dim, 2, 8, 2, 1000, 1000, out_dtype=out_dtype)).config
        assert why_not(chosen) is None
        assert (chosen.dtype, chosen.output_dtype, chosen.fp8_mma) == (dtype, out_dtype, "native")


@pytest.mark.parametrize(("dtype", "keys", "two_level"), [
    ("e4m3", 2048, False), ("e4m3", 2049, True), ("e5m2", 65536, True), ("bf16", 65536, False),
])  # fmt: skip
def test_long_sums_of_fp8_products_are_made_on_two_levels(dtype, keys, two_level):
    """Given keys of which the tensor cores might lose a part, when planned, then their sums are added up in fp32."""
    out_dtype = "bf16" if dtype != "bf16" else ""
    for head_dim in (64, 128, 256):
        found = plan(Shape("sm_120a", dtype, head_dim, 4, 16, 16, 4096, keys, out_dtype=out_dtype)).config
        assert found.two_level == two_level and ("two_level" in found.name) == two_level
        assert why_not(found) is None
