"""Visible keys and lengths, from what a caller says to the numbers that kernels are chosen by and take."""

from __future__ import annotations

from typing import NamedTuple

# "All keys" as a window's side: more than any sequence has, and small enough for row + side to stay in int32.
ALL = 2**30

TILE = 64  # rows and keys of the smallest tiles that a choice between kernels is about


def whole_tiles(length: int) -> int:
    """The length up to the end of its last tile: all that a choice between kernels has to know of it."""
    return -(-length // TILE) * TILE


class Bounds(NamedTuple):
    """causal: it ends at the diagonal. left, right: keys to either side of it, -1 for all; right is -1 if causal."""

    causal: bool
    left: int
    right: int

    @property
    def window(self) -> bool:
        """Whether more than causality limits what a query sees."""
        return self.left >= 0 or self.right >= 0

    @property
    def sides(self) -> tuple[int, int]:
        """left and right as arguments of a kernel."""
        left, right = (ALL if keys < 0 else min(keys, ALL) for keys in (self.left, self.right))
        return left, 0 if self.causal else right


def bounds(causal: bool, window: tuple[int | None, int | None] | None) -> Bounds:
    """A window that ends at the diagonal is causal, and causality ends a window there: one kernel does for both.

    Raises ValueError for a window that is no pair.
    """
    if window is not None and not (isinstance(window, (tuple, list)) and len(window) == 2):
        raise ValueError(f"window is {window!r}: must be (left, right), keys to either side, -1 or None for all")
    left, right = (None, None) if window is None else window
    left, right = (-1 if keys is None else keys for keys in (left, right))
    return Bounds(True, left, -1) if causal or right == 0 else Bounds(False, left, right)
