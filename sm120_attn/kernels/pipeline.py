"""Ring: the barriers of a ring of tiles in shared memory, between one load warp and the compute warps.

Each slot has a full and an empty barrier. Load warp and compute warps number the tiles by `count`: its low bits are the
slot, and the next higher bit is the phase of the barriers.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from . import inline_ptx as ptx


@dataclass(frozen=True)
class Ring:
    slots: int  # a power of two
    readers: int  # number of compute warps; each arrives once at an empty barrier
    barriers: Any  # pointer to the full barriers of all slots, followed by the empty barriers
    spare_registers: bool

    @classmethod
    def allocate(cls, smem, slots: int, readers: int, spare_registers: bool) -> "Ring":
        return cls(slots, readers, smem.allocate_array(cutlass.Int64, 2 * slots), spare_registers)

    def init(self):
        """Initialise the barriers. Called by one thread, before any thread waits."""
        for i in range(self.slots):
            cute.arch.mbarrier_init(self.barriers + i, 1)
            cute.arch.mbarrier_init(self.barriers + self.slots + i, self.readers)

    def slot(self, count):
        return 0 if self.slots == 1 else count % self.slots

    def phase(self, count):
        if self.spare_registers:  # the shift saves four instructions per tile, but needs registers
            return (count >> (self.slots.bit_length() - 1)) & 1
        return (count // self.slots) & 1

    def full(self, count):
        return self.barriers + self.slot(count)

    def empty(self, count):
        return self.barriers + self.slots + self.slot(count)

    def wait_full(self, count):
        cute.arch.mbarrier_wait(self.full(count), self.phase(count))

    def wait_empty(self, count):
        """Wait until the slot is free. A slot's first tile does not wait: the phase before it counts as complete."""
        cute.arch.mbarrier_wait(self.empty(count), self.phase(count) ^ Int32(1))

    def release(self, count, lane):
        """Free the slot. Called by all lanes of a compute warp, after their last read."""
        cute.arch.sync_warp()
        ptx.arrive_by_one(self.empty(count).toint(), lane)
