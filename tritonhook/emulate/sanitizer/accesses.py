"""Accesses that are kept: the last reads of shared memory, and two in conflict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.geometry import WARP
from tritonhook.emulate.words import Array

PART = 16  # lanes of tensor memory that are told apart
PAGE = 256  # units whose reads by a warp are kept together
READ_BYTES = 8  # of a unit: its last read by one warp
READERS = 8  # warps of which room is kept for reads of all of a CTA's memory
_LEAST_READ_BYTES = 192 << 20
_RECENT = 32  # instructions
_THREADS = 1 << 24  # more than a machine has


@dataclass(frozen=True, slots=True)
class Access:
    """pc: of the instruction. actor: the warp, or the copies of an mbarrier. what: "read", "write", ..."""

    what: str
    pc: int
    actor: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of one byte of shared memory that nothing orders; of one kind: "race" or "proxy"; "tensor": of one
    column of tensor memory; "global", "constant", "fence": of global memory; "gate": of an mbarrier; "begin", "end": of
    another CTA's shared memory. first: the earlier one, as it was executed. at: the shared address, the column, the
    index in global memory, or the CTA."""

    kind: str
    first: Access
    second: Access
    at: int


class Recent:
    """The latest accesses of some instructions, for races of lanes of one warp. unit: bytes that are told apart."""

    def __init__(self, threads: int, unit: int) -> None:
        self.unit = unit
        self._met = np.zeros(threads // WARP, np.int32)  # how often the lanes of each warp have met
        self._of: dict[int, tuple[Array, Array, int, Array]] = {}

    def met(self, warps: Array) -> None:
        """Lanes of these warps have exchanged values: what they had read is read."""
        self._met = self._met.copy()
        self._met[warps] += 1

    def note(self, pc: int, threads: Array, index: Array, size: int) -> None:
        self._of.pop(pc, None)
        self._of[pc] = threads, index, size, self._met
        if len(self._of) > _RECENT:
            del self._of[next(iter(self._of))]

    def by_others(self, pc: int, threads: Array, units: Array, are_reads: bool) -> Array:
        """Whether another lane of each thread's warp has accessed each unit by an instruction. Of reads: since its
        lanes have met. Of writes: and the thread itself has not."""
        if (found := self._of.get(pc)) is None:
            return np.full(len(units), not are_reads)
        others, index, size, met = found
        all_units = (index // self.unit)[:, None] + np.arange(max(1, size // self.unit))
        keys = np.sort((all_units * _THREADS + others[:, None]).reshape(-1))
        first, own = units * _THREADS + threads // WARP * WARP, units * _THREADS + threads
        low, high, at = (np.searchsorted(keys, one) for one in (first, first + WARP, own))
        has_own = keys[np.minimum(at, len(keys) - 1)] == own
        if not are_reads:
            return (high > low) & ~has_own
        some: Array = (high - low > has_own) & (met == self._met)[threads // WARP]
        return some


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
            new = np.unique(np.stack([rows[missing], places[missing] // PAGE]), axis=1)
            end = self._used + new.shape[1]
            if end > len(self._times):
                raise Unfinished(f"more reads of shared memory than {self._times.nbytes * 2:,} bytes can keep")
            self._page[new[0], new[1]] = np.arange(self._used, end)
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
