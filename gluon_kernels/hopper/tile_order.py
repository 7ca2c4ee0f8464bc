"""The order in which the CTAs of the Hopper attention take their tiles, where tiles differ in length."""

from __future__ import annotations

from itertools import zip_longest

from ..config import causal_offset
from .config import CONSUMER_ROWS, HopperConfig

# Estimated fixed time of a tile, in units of one key block's time. It only affects the order of the tiles.
TILE_OVERHEAD_BLOCKS = 2


def tile_order(
    config: HopperConfig,
    batch_heads: int,
    qheads_per_kvhead: int,
    seqlen_q: int,
    seqlen_k: int,
    programs: int,
    tiles_m: int | None = None,
) -> list[int]:
    """List tile numbers, m * batch_heads + head, in the order of processing. CTA i takes elements i, i + programs, ...

    `tiles_m`: number of tiles of a head; None: computed from seqlen_q. Pass it if the lengths are rounded up.

    Heads come in sections whose K and V stay in the L2 cache, with the longest tiles of a section first. In each round
    the longest tile goes to the CTA with the least work so far. A CTA that always got the first tile of a round would
    have 10 to 50 % more work than the mean.
    """
    tiles_m = -(-seqlen_q // config.block_m) if tiles_m is None else tiles_m
    section = config.section(seqlen_k, qheads_per_kvhead, programs // tiles_m)
    lengths = [tile_work(config, m, seqlen_q, seqlen_k) for m in range(tiles_m)]
    tiles = [
        m * batch_heads + head
        for first in range(0, batch_heads, section)
        for m in sorted(range(tiles_m), key=lambda m: (-lengths[m], -m))
        for head in range(first, min(first + section, batch_heads))
    ]
    work = [0.0] * programs
    taken: list[list[int]] = [[] for _ in range(programs)]
    for start in range(0, len(tiles), programs):
        longest_first = sorted(tiles[start : start + programs], key=lambda tile: -lengths[tile // batch_heads])
        least_first = sorted(range(programs), key=work.__getitem__)
        for program, tile in zip(least_first, longest_first, strict=False):
            taken[program].append(tile)
            work[program] += lengths[tile // batch_heads] + TILE_OVERHEAD_BLOCKS
    # The last round may be short. In the kernel its tiles go to the first CTAs.
    taken.sort(key=len, reverse=True)
    return [tile for tiles_of_round in zip_longest(*taken) for tile in tiles_of_round if tile is not None]


def tile_work(config: HopperConfig, m: int, seqlen_q: int, seqlen_k: int) -> float:
    """Compute the mean number of key blocks per consumer of the m-th tile."""
    if not config.uneven:
        return consumer_blocks(config, m, config.consumers - 1, seqlen_q, seqlen_k)
    blocks = [consumer_blocks(config, m, i, seqlen_q, seqlen_k) for i in range(config.consumers)]
    return sum(blocks) / config.consumers


def consumer_blocks(config: HopperConfig, m: int, consumer: int, seqlen_q: int, seqlen_k: int) -> int:
    """Count the key blocks that one consumer of the m-th tile computes: those that its rows see, at least 1."""
    first = m * config.block_m + consumer * CONSUMER_ROWS
    if config.uneven and first >= seqlen_q:
        return 1
    seen = seqlen_k
    if config.causal:
        seen = min(seen, first + CONSUMER_ROWS + causal_offset(config.causal, seqlen_q, seqlen_k))
    return max(1, -(-seen // config.block_n))
