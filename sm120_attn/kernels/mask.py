"""Mask: which keys a query sees. Ranges of tiles for a CTA or a warp, and -inf for scores inside a tile.

Query i of a sequence sees keys lo(i) <= key < hi(i). The loop over the tiles starts at the last keys. So the tiles that
need a mask, at the diagonal or at the end of the sequence, come first, and the loop over the other tiles has no mask.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Float32, Int32

from . import inline_ptx as ptx


@dataclass(frozen=True)
class Band:
    """Which keys the queries of one sequence see. left, right: Int32, or None for no limit on that side."""

    seqlen_q: Any
    seqlen_k: Any
    left: Any  # lo(i) = i - left
    right: Any  # hi(i) = i + right + 1

    @classmethod
    def of(cls, config, seqlen_q, seqlen_k, window_left, window_right):
        offset = seqlen_k - seqlen_q if config.align == "bottom-right" else Int32(0)
        left = window_left - offset if config.window else None
        right = None
        if config.window and not config.causal:
            right = window_right + offset
        elif config.causal:
            right = offset
        return cls(seqlen_q, seqlen_k, left, right)

    def hi(self, row):
        """Compute hi(row): one more than the last key that query `row` sees."""
        return self.seqlen_k if self.right is None else cutlass.min(self.seqlen_k, row + self.right + 1)

    def lo(self, row):
        """Compute lo(row): the first key that query `row` sees; None without a limit on the left."""
        return None if self.left is None else row - self.left


@dataclass(frozen=True)
class Tiles:
    """The tiles that some rows need: first to last - 1. Tiles open_first to open_last - 1 need no mask."""

    first: Any
    last: Any
    open_first: Any
    open_last: Any

    def within(self, outer: "Tiles") -> "Tiles":
        """Limit these tiles to the range of `outer`."""
        bounds = (self.first, self.last, self.open_first, self.open_last)
        return Tiles(*(cutlass.min(cutlass.max(x, outer.first), outer.last) for x in bounds))


def tiles_of(band: Band, row, rows: int, tile_n: int) -> Tiles:
    """Compute the tiles of keys that queries row to row + rows - 1 see; none if all rows are past the sequence."""
    end_row = cutlass.min(row + rows, band.seqlen_q) - 1
    zero = Int32(0)
    last = ptx.select(row < band.seqlen_q, (cutlass.max(band.hi(end_row), zero) + (tile_n - 1)) // tile_n, zero)
    first, open_first = zero, zero
    if band.left is not None:
        first = cutlass.min(cutlass.max(band.lo(row), zero) // tile_n, last)
    open_last = cutlass.max(cutlass.min(cutlass.max(band.hi(row), zero) // tile_n, last), first)
    if band.left is not None:
        open_first = cutlass.max(
            cutlass.min((cutlass.max(band.lo(end_row), zero) + (tile_n - 1)) // tile_n, open_last), first
        )
    return Tiles(first, last, open_first, open_last)


def hide(scores, policy, band: Band, queries, keys_of_lane, first_key):
    """Set a score to -inf if its query does not see its key.

    queries: query numbers of the thread's rows; keys_of_lane: see policy.key_offsets; first_key: the tile's first key.
    """
    hidden = Float32(-float("inf"))
    starts = [first_key + offset for offset in keys_of_lane]
    for r in range(policy.rows):
        block, values = policy.row_of(r)
        row = queries[r]
        his = [band.hi(row) - start for start in starts]
        los = None if band.left is None else [band.lo(row) - start for start in starts]
        for n in range(policy.columns):
            kind = n % len(starts)
            for i in values:
                key = 8 * n + policy.key_of(i)
                seen = his[kind] > key
                if los is not None:
                    seen = seen & (los[kind] <= key)
                scores[block][n][i] = ptx.select(seen, scores[block][n][i], hidden)
