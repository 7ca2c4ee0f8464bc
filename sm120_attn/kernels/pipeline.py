"""A ring of tiles in shared memory between one load warp and the compute warps. Only barriers; data lies elsewhere.

A slot has a full and an empty barrier. Tiles are numbered by `count` on both sides: its low bits are the slot, the bit
above them the phase.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from . import inline_ptx as ptx


@dataclass(frozen=True)
class Ring:
    slots: int
    readers: int  # compute warps; each arrives once
    barriers: Any  # pointer: full barriers of all slots, then empty ones

    @classmethod
    def allocate(cls, smem, slots: int, readers: int) -> "Ring":
        return cls(slots, readers, smem.allocate_array(cutlass.Int64, 2 * slots))

    def init(self):
        """By one thread, before anybody waits."""
        for i in range(self.slots):
            cute.arch.mbarrier_init(self.barriers + i, 1)
            cute.arch.mbarrier_init(self.barriers + self.slots + i, self.readers)

    def slot(self, count):
        return 0 if self.slots == 1 else count % self.slots

    def phase(self, count):
        return (count // self.slots) & 1

    def full(self, count):
        return self.barriers + self.slot(count)

    def empty(self, count):
        return self.barriers + self.slots + self.slot(count)

    def wait_full(self, count):
        cute.arch.mbarrier_wait(self.full(count), self.phase(count))

    def wait_empty(self, count):
        """Passes at once for the first tile of a slot: the phase before the first counts as complete."""
        cute.arch.mbarrier_wait(self.empty(count), self.phase(count) ^ Int32(1))

    def release(self, count, lane):
        """By all lanes of a compute warp, after their last read."""
        cute.arch.sync_warp()
        ptx.arrive_by_one(self.empty(count).toint(), lane)
