"""Scheduler: which tile of queries a CTA works on, and where its sequence is. Integers only.

Heads are taken in groups whose K and V fit into L2 together. Within a group the first tile of all heads comes first,
then the second tile of all heads, and so on. With a causal mask the order of the tiles is reversed: the last rows see
the most keys, so long tiles come first, and short tiles fill the gaps at the end.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from . import inline_ptx as ptx
from .given import Given

# Most bytes of K and V of a group of heads. This is a quarter to two thirds of the L2 of an H100 (50 MB), a GB203 (64
# MB) and a GB202 (96 to 128 MB).
L2_SHARE_BYTES = 32 << 20


@dataclass(frozen=True)
class Work:
    """One tile: the queries from first_row on, of one head of one sequence.

    start_q, start_k: where the sequence begins in packed tensors.
    """

    first_row: Any
    head: Any
    head_kv: Any
    batch: Any
    start_q: Any
    start_k: Any
    seqlen_q: Any
    seqlen_k: Any


class Divisors(NamedTuple):
    """The divisors in `work_of`, prepared by the host so that a division becomes a multiplication."""

    group_tiles: Any
    group: Any
    last_group: Any  # heads of the last group
    heads: Any
    qheads_per_kvhead: Any

    @classmethod
    def of(cls, num_heads, num_heads_kv, tiles_m, group, total):
        heads = total // tiles_m
        last = heads - (heads - 1) // group * group
        return cls(*map(divisor, (group * tiles_m, group, last, num_heads, num_heads // num_heads_kv)))


class Problem(NamedTuple):
    """Sizes that all tiles share, Int32."""

    num_heads: Any
    num_heads_kv: Any
    tiles_m: Any
    group: Any  # query heads of a group
    total: Any  # tiles_m * num_heads * batch
    seqlen_q: Any
    seqlen_k: Any
    divisors: Divisors


def divisor(number):
    v2 = getattr(cute, "FastDivmodDivisorV2", None)  # since 4.6.3, which deprecates FastDivmodDivisor
    return (v2 or cute.FastDivmodDivisor)(number)


def heads_per_group(config, num_heads, num_heads_kv, seqlen_k):
    """Count the query heads whose K and V together fit into L2_SHARE_BYTES; at least those that share one key head."""
    kv_bytes = Int64(seqlen_k) * (2 * config.head_dim * config.kv_element_bytes)
    kv_heads = cutlass.max(Int64(L2_SHARE_BYTES) // cutlass.max(kv_bytes, Int64(1)), Int64(1))
    return Int32(cutlass.min(kv_heads, Int64(1 << 16))) * (num_heads // num_heads_kv)


def place_of(problem: Problem, index):
    """Find the tile, the sequence and the query head of the CTA with this index."""
    group, by = problem.group, problem.divisors
    number, within = divmod(index, by.group_tiles)
    is_last = (number + 1) * group * problem.tiles_m >= problem.total
    (tile, at), (last_tile, last_at) = divmod(within, by.group), divmod(within, by.last_group)
    tile, at = ptx.select(is_last, last_tile, tile), ptx.select(is_last, last_at, at)
    return tile, *divmod(number * group + at, by.heads)


def place_by_division(problem: Problem, index):
    """Compute place_of without divisors, because with FP8 and head_dim 256 they would spill three registers."""
    heads = problem.total // problem.tiles_m
    first_head = index // (problem.group * problem.tiles_m) * problem.group
    within = index - first_head * problem.tiles_m
    here = cutlass.min(problem.group, heads - first_head)
    at = first_head + within % here
    return within // here, at // problem.num_heads, at % problem.num_heads


def work_of(config, problem: Problem, given: Given, index) -> Work:
    """Find the tile of the CTA with this index."""
    tile, batch, head = (place_by_division if config.fp8 and config.head_dim == 256 else place_of)(problem, index)
    if config.causal:
        tile = problem.tiles_m - 1 - tile
    start_q, start_k = Int32(0), Int32(0)
    seqlen_q, seqlen_k = problem.seqlen_q, problem.seqlen_k
    if config.varlen:
        start_q = given.cu_seqlens_q[batch]
        seqlen_q = given.cu_seqlens_q[batch + 1] - start_q
    if config.cache_rows:
        seqlen_k = cutlass.max(given.cache_seqlens[batch], Int32(0))
    elif config.varlen:
        start_k = given.cu_seqlens_k[batch]
        seqlen_k = given.cu_seqlens_k[batch + 1] - start_k
    head_kv = head // problem.divisors.qheads_per_kvhead
    return Work(tile * config.tile_m, head, head_kv, batch, start_q, start_k, seqlen_q, seqlen_k)
