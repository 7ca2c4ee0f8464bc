"""Accesses that are kept: the last reads of shared memory, and two in conflict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.words import Array

PART = 16  # lanes of tensor memory that are told apart
PAGE = 64  # units whose reads by a warp are kept together
READ_BYTES = 8  # of a unit: its last read by one warp
READERS = 8  # warps of which room is kept for reads of all of a CTA's memory
_LEAST_READ_BYTES = 192 << 20


@dataclass(frozen=True, slots=True)
class Access:
    """pc: of the instruction. actor: the warp, or the copies of an mbarrier. what: "read", "write", ..."""

    what: str
    pc: int
    actor: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of one byte of shared memory that nothing orders; of one kind: "race" or "proxy"; "tensor": of one
    column of tensor memory; "global", "constant", "fence": of global memory; "gate": of an mbarrier; "phase": arrivals
    at a barrier; "begin", "end": of another CTA's shared memory. first: the earlier one, as it was executed. at: the
    shared address, the column, the index in global memory, the barrier, or the CTA."""

    kind: str
    first: Access
    second: Access
    at: int


class Reads:
    """The last read of each unit by each warp of its cluster: when, and by which instruction. Pages are made where
    there is a read."""

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
                raise Unfinished(f"more reads of shared memory than {self._times.nbytes * 2:,} bytes can keep")
            self._page[is_new] = np.arange(self._used, end)
            self._used = end
            pages = self._page[rows, places // PAGE]
        self._times[pages, places % PAGE], self._pcs[pages, places % PAGE] = times, pc

    @property
    def is_used(self) -> bool:
        return self._used > 0

    def times(self, row: int, places: Array) -> Array | None:
        """When each place was read by the warp of a row, 0 for never; None if none was."""
        pages = self._page[row, places // PAGE]
        if (pages < 0).all():
            return None
        return np.where(pages < 0, 0, self._times[pages, places % PAGE])

    def pc(self, row: int, place: int) -> int:
        return int(self.pcs(row, np.array([place]))[0])

    def pcs(self, row: int, places: Array) -> Array:
        """By which instruction each place was read."""
        found: Array = self._pcs[self._page[row, places // PAGE], places % PAGE]
        return found
