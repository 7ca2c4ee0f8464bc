"""Which kernel a call over a cache gets, over how many CTAs its keys are split, and how a split is divided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sm120_attn.config import Config
from sm120_attn.config import why_not as why_no_prefill
from sm120_attn.kernels.decode.config import DecodeConfig, why_not
from sm120_attn.kv_cache.planner import MOST_SPLITS, CacheShape, plan_cache, splits

BASE = CacheShape("sm_120a", "bf16", 128, batch=1, heads=32, heads_kv=8, seqlen_q=1, capacity=131072, sms=170)


def test_one_sequence_is_split_until_the_gpu_is_full() -> None:
    found = plan_cache(BASE)
    assert found.split and isinstance(found.config, DecodeConfig) and found.config.split
    assert 0.9 <= 8 * found.num_splits / 170 <= 1


def test_a_full_gpu_and_a_short_cache_are_not_split() -> None:
    assert plan_cache(replace(BASE, batch=85)).num_splits == 1
    assert plan_cache(replace(BASE, capacity=64)).num_splits == 1


def test_there_are_never_more_splits_than_tiles_of_keys() -> None:
    assert splits(1, 10_000, 1_000_000) <= MOST_SPLITS
    for tiles in range(1, 40):
        assert splits(1, 170, tiles) <= max(-(-tiles // 4), 1)


@pytest.mark.parametrize(("queries", "kernel"), [(1, DecodeConfig), (16, DecodeConfig), (17, Config)])
def test_many_queries_get_the_prefill_kernel(queries: int, kernel: type) -> None:
    assert isinstance(plan_cache(replace(BASE, seqlen_q=queries, page_size=16)).config, kernel)


@pytest.mark.parametrize(("page_size", "rows"), [(0, 64), (16, 16), (32, 32), (64, 64), (256, 64)])
def test_a_box_of_prefill_is_never_larger_than_a_page(page_size: int, rows: int) -> None:
    config = plan_cache(replace(BASE, seqlen_q=500, page_size=page_size)).config
    assert isinstance(config, Config)
    assert (config.cache_rows, config.paged) == (rows, page_size > 0)


@pytest.mark.parametrize("arch", ["sm_120a", "sm_90a"])
@pytest.mark.parametrize("head_dim", range(32, 257, 8))
def test_every_head_dim_has_both_kernels(arch: str, head_dim: int) -> None:
    for queries in (1, 8, 100):
        config = plan_cache(replace(BASE, arch=arch, head_dim=head_dim, seqlen_q=queries, page_size=16)).config
        wrong = why_not(config) if isinstance(config, DecodeConfig) else why_no_prefill(config)
        assert wrong is None and config.shared_bytes <= 99 * 1024


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"arch": "sm_80"}, "arch 'sm_80'"),
        ({"dtype": "e4m3"}, "dtype 'e4m3': must be bf16 or fp16"),
        ({"head_dim": 260}, "head_dim 260"),
        ({"rows_per_warp": 64}, "rows_per_warp 64"),
        ({"tile_n": 64}, "tile_n 64: must be 16 or 32"),
        ({"stages": 5}, "stages 5: must be 1 to 4"),
        ({"rows_per_warp": 8}, "rows_per_warp 8 with a cache in bf16: must be 16 or 32"),
        ({"group_keys": 32}, "group_keys 32: must be 16"),
        ({"heads_per_cta": 3}, "heads_per_cta 3: must be 1, 2 or 4"),
        ({"heads_per_cta": 2, "head_dim": 256, "stages": 1}, "heads_per_cta 2: must be 1 if Q is in shared memory"),
        ({"ctas_per_sm": 5}, "ctas_per_sm 5: must be 2 to 4"),
        ({"stages": 4}, "bytes of shared memory: a CTA has"),
        ({"head_dim": 256, "rows_per_warp": 32, "stages": 1}, "about 304 registers"),
    ],
)
def test_a_kernel_that_cannot_be_is_explained(fields: dict, said: str) -> None:
    assert said in (why_not(replace(DecodeConfig(), **fields)) or "")


@pytest.mark.parametrize(
    ("head_dim", "tile_n", "row_bytes"),
    [(64, 16, 64), (64, 32, 32), (64, 64, 32), (128, 16, 64), (128, 32, 64), (192, 16, 128), (256, 32, 128)],
)
def test_rows_of_nvfp4_share_a_panel_row_where_they_fill_it(head_dim: int, tile_n: int, row_bytes: int) -> None:
    """row_bytes: what a row of a tile takes in shared memory, without its scales; two values have a byte."""
    config = DecodeConfig(kv_dtype="nvfp4", head_dim=head_dim, tile_n=tile_n)
    assert config.data_bytes == tile_n * row_bytes >= max(1024, tile_n * head_dim // 2)
    assert replace(config, kv_dtype="mxfp8").data_bytes == tile_n * -(-head_dim // 128) * 128


@pytest.mark.parametrize("head_dim", [64, 128, 192, 256])
@pytest.mark.parametrize(("heads", "queries"), [(64, 1), (32, 2), (32, 4), (8, 16)])
def test_few_rows_over_nvfp4_are_columns_of_an_mma(head_dim: int, heads: int, queries: int) -> None:
    rows = heads // 8 * queries
    config = plan_cache(replace(BASE, head_dim=head_dim, heads=heads, seqlen_q=queries, kv_dtype="nvfp4")).config
    assert isinstance(config, DecodeConfig) and (config.rows_per_warp == 8) == (rows <= 8)
    assert why_not(config) is None and (rows > 8 or config.stages <= 2)
