"""Records of accesses: the last reads of shared memory, and pairs of conflicting accesses.

Memory is tracked in *units*. A unit has as many bytes as the kernel's smallest access, at most 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.words import Array

PART = 16  # lanes of tensor memory that are tracked together
PAGE = 64  # units in a page of `Reads`
READ_BYTES = 8  # bytes of the record of one warp's last read of a unit
READERS = 8  # so many warps can read all shared memory of a CTA, and there is room to record it
_LEAST_READ_BYTES = 192 << 20


@dataclass(frozen=True, slots=True)
class Access:
    """One access. what: "read", "write", ... pc: index of its instruction. actor: number of the warp, or of another
    actor of clocks.py."""

    what: str
    pc: int
    actor: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses that nothing orders.

    kind: "race" or "proxy" for shared memory; "tensor" for tensor memory; "global", "lanes", "constant" or "fence" for
    global memory; "gate" for a write to an mbarrier; "phase" for arrivals at a barrier; "accumulator" for registers of
    wgmma; "begin" or "end" for another CTA's shared memory. first: the access that was executed first. at: depending
    on the kind, the shared address, the column, the byte index in global memory, the barrier, or the CTA.
    """

    kind: str
    first: Access
    second: Access
    at: int


class Reads:
    """The last read of each unit by each warp of its cluster: its time and its instruction. A page is allocated at its
    first read. rows: warps of a cluster. size: number of units."""

    def __init__(self, rows: int, size: int) -> None:
        pages = rows * -(-size // PAGE)
        most = max(size * READERS * READ_BYTES, _LEAST_READ_BYTES) // (PAGE * READ_BYTES)
        self._page = np.full((rows, -(-size // PAGE)), -1, np.int32)
        self._times, self._pcs = (np.zeros((min(pages, most), PAGE), np.int32) for _ in "tp")
        self._used = 0

    def note(self, rows: Array, places: Array, times: Array, pc: int) -> None:
        pages = self._page[rows, places // PAGE]
        if (missing := pages < 0).any():
            is_new = np.zeros(self._page.shape, bool)
            is_new[rows[missing], places[missing] // PAGE] = True
            end = self._used + int(np.count_nonzero(is_new))
            if end > len(self._times):
                raise Unfinished(f"records of reads of shared memory take more than {self._times.nbytes * 2:,} bytes")
            self._page[is_new] = np.arange(self._used, end)
            self._used = end
            pages = self._page[rows, places // PAGE]
        self._times[pages, places % PAGE], self._pcs[pages, places % PAGE] = times, pc

    @property
    def is_used(self) -> bool:
        return self._used > 0

    def times(self, row: int, places: Array) -> Array | None:
        """Return the times at which a warp last read these units, 0 for never; None if it read none of them. row:
        number of the warp in its cluster."""
        pages = self._page[row, places // PAGE]
        if (pages < 0).all():
            return None
        return np.where(pages < 0, 0, self._times[pages, places % PAGE])

    def pc(self, row: int, place: int) -> int:
        return int(self.pcs(row, np.array([place]))[0])

    def pcs(self, row: int, places: Array) -> Array:
        """Return the instructions that last read these units. row: number of the warp in its cluster."""
        found: Array = self._pcs[self._page[row, places // PAGE], places % PAGE]
        return found
