"""The order of tiles of different lengths."""

from dataclasses import replace
from itertools import product

import pytest

from gluon_kernels.config import CAUSAL, causal_offset
from gluon_kernels.hopper.config import HopperConfig
from gluon_kernels.hopper.tile_order import TILE_OVERHEAD_BLOCKS, consumer_blocks, tile_order, tile_work


@pytest.mark.parametrize("consumers", [2, 3])
@pytest.mark.parametrize(
    ("heads", "qheads_per_kvhead", "seqlen_q", "seqlen_k", "causal"),
    [
        (64, 1, 4096, 4096, "top-left"),
        (64, 1, 4096, 4096, "bottom-right"),
        (16, 8, 16384, 16384, "top-left"),
        (24, 4, 1000, 4000, "bottom-right"),
        (24, 4, 4000, 1000, "bottom-right"),
        (1, 1, 1, 1, "top-left"),
        (256, 1, 1024, 1024, None),
    ],
)
def test_each_tile_is_taken_once_and_no_cta_has_much_more_to_do(
    heads, qheads_per_kvhead, seqlen_q, seqlen_k, causal, consumers
):
    config = HopperConfig(head_dim=64, causal=causal, consumers=consumers)
    tiles_m = -(-seqlen_q // config.block_m)
    programs = min(132, heads * tiles_m)
    order = tile_order(config, heads, qheads_per_kvhead, seqlen_q, seqlen_k, programs)
    assert sorted(order) == list(range(heads * tiles_m))

    work = [0] * programs
    for i, tile in enumerate(order):
        work[i % programs] += tile_work(config, tile // heads, seqlen_q, seqlen_k) + TILE_OVERHEAD_BLOCKS
    longest = max(tile_work(config, m, seqlen_q, seqlen_k) for m in range(tiles_m)) + TILE_OVERHEAD_BLOCKS
    mean = sum(work) / programs
    assert max(work) <= mean + longest / 2 or programs == len(order)
    if heads == 64:
        assert max(work) < 1.03 * mean


@pytest.mark.parametrize("consumers", [2, 3])
def test_blocks_of_a_consumer_cover_what_its_rows_see_and_few_more(consumers):
    for causal, seqlen_q, seqlen_k in product(CAUSAL, (1, 127, 129, 300, 1000), (1, 64, 129, 1000)):
        config = HopperConfig(head_dim=64, causal=causal, consumers=consumers)
        for m, i in product(range(-(-seqlen_q // config.block_m)), range(consumers)):
            first = m * config.block_m + i * 64
            blocks = consumer_blocks(config, m, i, seqlen_q, seqlen_k)
            if first >= seqlen_q:
                assert blocks == 1 or consumers == 2
                continue
            end = min(seqlen_q, first + 64)
            seen = max(0, min(seqlen_k, end + causal_offset(causal, seqlen_q, seqlen_k))) if causal else seqlen_k
            assert seen <= blocks * config.block_n
            assert (blocks - 1) * config.block_n <= max(0, seen + (first + 64 - end))
    assert tile_work(replace(HopperConfig(head_dim=64), consumers=3), 5, 1024, 1024) == (8 + 1 + 1) / 3
    causal = HopperConfig(head_dim=64, causal="top-left")
    assert tile_work(replace(causal, consumers=3), 0, 1024, 1024) == (1 + 1 + 2) / 3
    assert tile_work(causal, 1, 1024, 1024) == 2
    shifted = HopperConfig(head_dim=64, causal="bottom-right")
    assert tile_work(shifted, 0, 128, 192) == 2, "the last of two consumers has the longest rows"
