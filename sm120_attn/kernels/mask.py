"""Which keys a query sees: tile ranges for a CTA or a warp, and -inf for scores inside a tile. No memory is touched.

Query i of a sequence sees keys lo(i) <= key < hi(i). Tiles are walked from the right, so that the tiles that need a
mask at the diagonal or at the sequence's end come first, and the loop over all others has no mask in it.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Float32, Int32

from . import inline_ptx as ptx


@dataclass(frozen=True)
class Band:
    """The visible keys of one sequence. left, right: Int32 or None for no bound on that side."""

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
        """First key that this query no longer sees."""
        return self.seqlen_k if self.right is None else cutlass.min(self.seqlen_k, row + self.right + 1)

    def lo(self, row):
        """First key that this query sees; None: there is no bound on the left."""
        return None if self.left is None else row - self.left


@dataclass(frozen=True)
class Tiles:
    """Tiles for some rows, walked from last - 1 down to first; open ones, which need no mask, in between."""

    first: Any
    last: Any
    open_first: Any
    open_last: Any

    def within(self, outer: "Tiles") -> "Tiles":
        """The same for some of the rows of `outer`, cut to its range, also where they need none."""
        bounds = (self.first, self.last, self.open_first, self.open_last)
        return Tiles(*(cutlass.min(cutlass.max(x, outer.first), outer.last) for x in bounds))


def tiles_of(band: Band, row, rows: int, tile_n: int) -> Tiles:
    """The tiles that the queries row .. row + rows - 1 need; none if all are beyond the sequence."""
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


def hide(scores, policy, band: Band, row_of_lane, keys_of_lane, first_key):
    """Scores of keys that their query does not see become -inf.

    row_of_lane: query of the thread's first row; keys_of_lane: see policy.key_offsets.
    """
    hidden = Float32(-float("inf"))
    starts = [first_key + offset for offset in keys_of_lane]
    for r in range(policy.rows):
        block, values = policy.row_of(r)
        row = row_of_lane + 16 * block + 8 * (r % 2)
        his = [band.hi(row) - start for start in starts]
        los = None if band.left is None else [band.lo(row) - start for start in starts]
        for n in range(policy.columns):
            kind = n % len(starts)
            for i in values:
                key = 8 * n + i % 2
                seen = his[kind] > key
                if los is not None:
                    seen = seen & (los[kind] <= key)
                scores[block][n][i] = ptx.select(seen, scores[block][n][i], hidden)
