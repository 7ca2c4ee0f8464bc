"""Which tile of queries a CTA works on, and where its sequence lies. Integers only.

Tiles of one head follow each other, so that the CTAs that run at one time share K and V in L2. With a causal mask the
last rows have the most keys: long tiles first, so that the short ones fill the gaps at the end.
"""

from dataclasses import dataclass
from typing import Any

from cutlass import Int32


@dataclass(frozen=True)
class Work:
    """One tile: queries first_row .. of one head of one sequence; start_q, start_k: its place in packed tensors."""

    first_row: Any
    head: Any
    head_kv: Any
    batch: Any
    start_q: Any
    start_k: Any
    seqlen_q: Any
    seqlen_k: Any


@dataclass(frozen=True)
class Problem:
    """What all tiles share: sizes as Int32, cu_seqlens tensors or None."""

    heads: Any
    heads_kv: Any
    tiles_m: Any
    seqlen_q: Any
    seqlen_k: Any
    cu_seqlens_q: Any
    cu_seqlens_k: Any


def work_of(config, problem: Problem, index) -> Work:
    """The tile of this index, 0 .. tiles_m * heads * batch - 1."""
    tile = index % problem.tiles_m
    head_and_batch = index // problem.tiles_m
    head = head_and_batch % problem.heads
    batch = head_and_batch // problem.heads
    if config.causal:
        tile = problem.tiles_m - 1 - tile
    start_q, start_k = Int32(0), Int32(0)
    seqlen_q, seqlen_k = problem.seqlen_q, problem.seqlen_k
    if config.varlen:
        start_q, start_k = problem.cu_seqlens_q[batch], problem.cu_seqlens_k[batch]
        seqlen_q = problem.cu_seqlens_q[batch + 1] - start_q
        seqlen_k = problem.cu_seqlens_k[batch + 1] - start_k
    head_kv = head // (problem.heads // problem.heads_kv)
    return Work(tile * config.tile_m, head, head_kv, batch, start_q, start_k, seqlen_q, seqlen_k)
