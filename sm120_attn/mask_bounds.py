"""Bounds: which keys a query may see, computed from the arguments causal and window of `attention`."""

from __future__ import annotations

from typing import NamedTuple

# Window size that means no limit: more keys than any sequence has, but row + ALL still fits into int32.
ALL = 2**30

TILE = 64  # rows and keys of the smallest tiles among which the planner chooses


def whole_tiles(length: int) -> int:
    """Round a length up to whole tiles, which is exact enough for the planner."""
    return -(-length // TILE) * TILE


class Bounds(NamedTuple):
    """The band of visible keys around the diagonal. causal: no key after the diagonal is visible.

    left, right: number of visible keys on that side of the diagonal; -1: all. right is -1 if causal.
    """

    causal: bool
    left: int
    right: int

    @property
    def window(self) -> bool:
        """Whether a window, apart from causality, hides keys from a query."""
        return self.left >= 0 or self.right >= 0

    @property
    def sides(self) -> tuple[int, int]:
        """The values of a kernel's arguments window_left and window_right."""
        left, right = (ALL if keys < 0 else min(keys, ALL) for keys in (self.left, self.right))
        return left, 0 if self.causal else right


def bounds(causal: bool, window: tuple[int | None, int | None] | None) -> Bounds:
    """Make Bounds from the arguments of `attention`. A window that ends at the diagonal becomes causal.

    Raises ValueError for a window that is not a pair.
    """
    if window is not None and not (isinstance(window, (tuple, list)) and len(window) == 2):
        raise ValueError(f"window is {window!r}: must be (left, right), numbers of keys, each -1 or None for all keys")
    left, right = (None, None) if window is None else window
    left, right = (-1 if keys is None else keys for keys in (left, right))
    return Bounds(True, left, -1) if causal or right == 0 else Bounds(False, left, right)
