"""A ring of tiles in shared memory between one load warp and the compute warps. Only barriers; data lies elsewhere.

A slot has parts with a full and an empty barrier each. Tiles are numbered by `count` on both sides: its low bits are
the slot, the bit above them the phase.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from . import instructions as ptx


@dataclass(frozen=True)
class Ring:
    slots: int
    parts: int
    readers: int  # compute warps; each arrives once
    barriers: Any  # pointer: full barriers of all slots and parts, then empty ones

    @classmethod
    def allocate(cls, smem, slots: int, parts: int, readers: int) -> "Ring":
        return cls(slots, parts, readers, smem.allocate_array(cutlass.Int64, 2 * slots * parts))

    def init(self):
        """By one thread, before anybody waits."""
        for i in range(self.slots * self.parts):
            cute.arch.mbarrier_init(self.barriers + i, 1)
            cute.arch.mbarrier_init(self.barriers + self.slots * self.parts + i, self.readers)

    def slot(self, count):
        return 0 if self.slots == 1 else count % self.slots

    def phase(self, count):
        return (count // self.slots) & 1

    def full(self, count, part: int):
        return self.barriers + self.slot(count) * self.parts + part

    def empty(self, count, part: int):
        return self.barriers + (self.slots * self.parts + part) + self.slot(count) * self.parts

    def wait_full(self, count, part: int):
        cute.arch.mbarrier_wait(self.full(count, part), self.phase(count))

    def wait_empty(self, count, part: int):
        """Passes at once for the first tile of a slot: the phase before the first counts as complete."""
        cute.arch.mbarrier_wait(self.empty(count, part), self.phase(count) ^ Int32(1))

    def release(self, count, part: int, lane):
        """By all lanes of a compute warp, after their last read."""
        cute.arch.sync_warp()
        ptx.arrive_by_one(self.empty(count, part).toint(), lane)


@dataclass(frozen=True)
class Turns:
    """Two warps of one scheduler, w and w + 4, have the tensor cores in turns. Named barriers of 64 threads.

    open: once, so that the lower warp has the first turn. take: wait for one's turn. give: it is the other's. Both take
    and give as often as each other. What the upper warp gave last is nobody's; the CTA ends with it.
    """

    warp: Any

    def mine(self):
        return 1 + self.warp

    def other(self):
        return 1 + (self.warp ^ 4)

    @cute.jit
    def open(self):
        if self.warp >= 4:
            self.give()

    def take(self):
        cute.arch.sync_warp()
        cute.arch.barrier(barrier_id=self.mine(), number_of_threads=64)

    def give(self):
        cute.arch.sync_warp()
        cute.arch.barrier_arrive(barrier_id=self.other(), number_of_threads=64)
