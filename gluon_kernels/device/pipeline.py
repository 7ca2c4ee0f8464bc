"""Synchronise partitions by rings of slots. Each slot has an empty and a ready barrier, which count one arrival.

A waiting partition keeps a phase bit for a barrier; it starts at 0 and flips once per round. `wait_ready` waits until
the current round is complete. `wait_empty` waits until the previous round is complete, so it passes at once in the
first round of a new ring, and no partition has to arrive in advance.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import mbarrier

from .triton_compat import aggregate


@gluon.jit
def make_barriers(count: gl.constexpr):
    """Allocate [count] mbarriers in shared memory. One arrival completes a round of each."""
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(count):
        mbarrier.init(bars.index(i), count=1)
    return bars


@aggregate
class Counter:
    """A position in a ring: the slot, and the phase bit, which flips when the slots wrap around."""

    slot: gl.tensor
    phase: gl.tensor
    depth: gl.constexpr

    @gluon.must_use_result
    @gluon.jit
    def next(self):
        slot = self.slot + 1
        wrapped = slot == self.depth
        return Counter(gl.where(wrapped, 0, slot), gl.where(wrapped, self.phase ^ 1, self.phase), self.depth)


@gluon.jit
def counter(depth: gl.constexpr):
    return Counter(gl.to_tensor(0), gl.to_tensor(0), depth)


@aggregate
class Ring:
    """Barriers of slots that a producer fills (ready) and a consumer empties (empty)."""

    ready: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor

    @gluon.jit
    def wait_ready(self, slot, phase):
        mbarrier.wait(self.ready.index(slot), phase)

    @gluon.jit
    def wait_empty(self, slot, phase):
        mbarrier.wait(self.empty.index(slot), phase ^ 1)

    @gluon.jit
    def mark_ready(self, slot):
        mbarrier.arrive(self.ready.index(slot), count=1)

    @gluon.jit
    def mark_empty(self, slot):
        mbarrier.arrive(self.empty.index(slot), count=1)


@gluon.jit
def make_ring(depth: gl.constexpr):
    return Ring(make_barriers(depth), make_barriers(depth))
