"""The machine that executes decoded instructions: threads of several CTAs at once, in groups with one program counter.

A front end (`ptx`, `sass`) decodes a kernel once into `Instruction`s, whose `step(group)` is a closure: it executes the
instruction for a group of threads. `Machine.run` calls the steps. A step may use:

* *Registers*: NumPy arrays, called rows, with one element per thread of the machine (`machine.registers(count, dtype)`
  makes several). `row[group.s]` reads a group's elements, `group.put(row, value)` writes those of active lanes. A step
  may compute values for inactive lanes too; `put` drops them.
* *Predicates*: `inner = group.under(where)` returns a group with fewer active lanes, or None if no lane is active.
* *Control*: an instruction with `ends=True` may change program counters. Before its step, `group.pc` is the index of
  the next instruction. `group.part(where)` moves lanes to a group of their own (None: all of them), which may then
  `jump(pc)`, `scatter(pcs)`, `exit()` or `wait(ready)`. A branch: `part = group.part(taken)`, `part.jump(target)`.
* *Convergence*: `group.converge(lanes)` makes the threads wait at this instruction until all live lanes of that mask
  have arrived; then the step runs again for all of them. Call it before the step changes anything. SASS: BSYNC and
  WARPSYNC; PTX: `.sync`.
* *Waiting in a step*: `group.retry(ready)` runs the step again when `ready()` is true.
* *Spinning*: a step that polls (a volatile load, `test_wait`) calls `group.give_way()`, so that other threads can run.
* *Memory*: `machine.memory.read(group, space, addresses, unit, count)` and `write`; see memory.py.

The group with the lowest program counter runs first, until it is divided, waits or ends. Groups with the same program
counter are joined.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.barriers import Barriers, SharedBarriers
from tritonhook.emulate.code import Code as Code
from tritonhook.emulate.code import Instruction as Instruction
from tritonhook.emulate.code import Step as Step
from tritonhook.emulate.copies import AsyncCopies
from tritonhook.emulate.errors import Fault, Hang, Late, Outside
from tritonhook.emulate.geometry import WARP as WARP
from tritonhook.emulate.geometry import Geometry as Geometry
from tritonhook.emulate.geometry import coordinates, halves, specials
from tritonhook.emulate.groups import Group as Group
from tritonhook.emulate.groups import Parked
from tritonhook.emulate.groups import lanes_of as lanes_of
from tritonhook.emulate.memory import Memory
from tritonhook.emulate.words import Array
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.tensor_memory import TensorMemory

MOST_STEPS = 20_000_000
# When all threads wait, those with a time limit (try_wait) are released. This counts as so many steps.
_PATIENCE = 20_000


class Machine:
    """Threads of several CTAs, their memory and their schedule.

    geometry: the CTAs to execute. memory: see memory.py. seed: chooses the order of warps, and of threads that access
    one address; 0 is program order. most_steps: more steps raise Hang. limit_s: seconds after `began` (time.monotonic;
    None: now) at which the run raises Late.
    threads: number of threads of all CTAs, each CTA padded to whole warps. Arrays with one element per thread: tid,
    ctaid: uint32, shape (3, threads). lane: uint32, number in the warp. warp: uint32, number of the warp in its CTA.
    cta: int64, index in `geometry.ctas`. live: True until the thread ends. rank: uint32, rank of the thread's CTA in
    its cluster. specials: special registers, by their PTX names.
    """

    def __init__(
        self, geometry: Geometry, memory: Memory, seed: int = 0, most_steps: int = MOST_STEPS,
        limit_s: float = float("inf"), began: float | None = None,
    ) -> None:  # fmt: skip
        self.geometry, self.memory = geometry, memory
        ctas, padded = len(geometry.ctas), geometry.padded_threads
        self.threads = ctas * padded
        inside = np.arange(padded)
        self.lane = np.tile((inside % WARP).astype(np.uint32), ctas)
        self.warp = np.tile((inside // WARP).astype(np.uint32), ctas)
        self.cta = np.repeat(np.arange(ctas), padded)
        self.rank = (self.cta % geometry.cluster_size).astype(np.uint32)
        self.tid = np.tile(coordinates(inside, geometry.block), ctas)
        self.ctaid = np.repeat(coordinates(np.asarray(geometry.ctas), geometry.grid), padded, axis=1)
        self.specials = specials(self)
        self.code, self.held = Code((), frozenset()), list[Array]()
        self._groups: list[Group] = []
        self._blocks: dict[int, tuple[Sequence[Step], int, bool]] = {}
        self._leaders: list[int] = []
        self._running: tuple[int, int, Any] = (0, 0, iter(()))
        self._begin(seed, most_steps, limit_s, began)
        self.barriers, self.shared_barriers, self.copies = Barriers(self), SharedBarriers(self), AsyncCopies(self)
        self._own = len(self.held)

    def _begin(self, seed: int, most_steps: int, limit_s: float, began: float | None) -> None:
        self.random = np.random.default_rng(seed) if seed else None  # None: program order
        self.half = np.zeros(0, np.int64)  # 0 or 1 per thread: with a seed, threads of half 0 run first
        self.most_steps = self.steps_left = most_steps
        self.limit_s, self._end = limit_s, (time.monotonic() if began is None else began) + limit_s
        inside = np.arange(self.geometry.padded_threads) < self.geometry.block_threads
        self.live: Array = np.tile(inside, len(self.geometry.ctas))
        self.waits_with, self.met = np.zeros(self.threads, np.uint32), np.zeros(self.threads, bool)  # Group.meet
        self.memory.attach(self)

    def restart(self, memory: Memory, seed: int, most_steps: int, limit_s: float, began: float) -> None:
        """Reset this machine for another launch of the kernel that was decoded for it. The steps refer to the arrays of
        this machine. So the arrays stay, and only their contents become those of a new machine."""
        vars(self.memory).update(vars(memory))
        self._begin(seed, most_steps, limit_s, began)
        of_steps, self.held = self.held[self._own :], []
        for one in (self.barriers, self.shared_barriers, self.copies):
            vars(one).update(vars(type(one)(self)))
        for row in of_steps:
            row.fill(0)
        self.held += of_steps

    @cached_property
    def tensor_memory(self) -> TensorMemory:
        """The tensor memory of sm_100; made when a kernel first uses it."""
        from tritonhook.emulate.tensor_memory import TensorMemory

        return TensorMemory(self)

    def registers(self, count: int, dtype: Any) -> Array:
        """Make registers: zeros of shape (count, threads)."""
        return self.keep(np.zeros((count, self.threads), dtype))

    def keep(self, array: Array) -> Array:
        """Add an array to the state of threads and barriers (`held`), which livelock.py compares."""
        self.held.append(array)
        return array

    def ctas_of(self, thread: int, mask: int) -> list[int]:
        """Return the indices of the CTAs of a thread's cluster whose ranks are set in a bit mask."""
        first = int(self.cta[thread]) - int(self.rank[thread])
        return [first + rank for rank in range(16) if mask >> rank & 1]

    def ctas_together(self, thread: int, count: int) -> tuple[int, ...]:
        """Return the index of a thread's CTA; with count 2, of both CTAs of its pair, in order of their ranks."""
        cta = int(self.cta[thread])
        if count == 2 and self.geometry.cluster_size % 2:
            raise Fault("an instruction for a pair of CTAs, in a cluster with an odd number of CTAs", thread)
        return (cta,) if count == 1 else (cta & ~1, cta | 1)

    @property
    def pc(self) -> int:
        """The index of the instruction that is executed now."""
        start, count, iterator = self._running
        return int(start + count - 1 - iterator.__length_hint__())

    @property
    def instruction(self) -> Instruction:
        """The instruction that is executed now."""
        return self.code.instructions[min(self.pc, len(self.code.instructions) - 1)]

    # --- groups ------------------------------------------------------------------------------

    @property
    def is_divided(self) -> bool:
        """Whether threads are at different instructions."""
        return len(self._groups) > 1

    def places(self) -> Array:
        """Return the index of each thread's next instruction; -1 if the thread has ended."""
        found = np.full(self.threads, -1, np.int64)
        for group in self._groups:
            found[group.numbers] = group.pc
        return found

    def shaped(self, active: Array, start: int) -> tuple[slice, Array | None]:
        """Return the smallest slice of whole warps that contains the active threads, and their mask in it (None if all
        are active). start: number of the thread of `active[0]`."""
        warps = np.flatnonzero(active.reshape(-1, WARP).any(1))
        low, high = int(warps[0]) * WARP, int(warps[-1] + 1) * WARP
        mask = active[low:high]
        return slice(start + low, start + high), None if mask.all() else mask

    def group(self, active: Array, start: int, pc: int) -> Group:
        """Make a group of the active threads, and schedule it. start: number of the thread of `active[0]`."""
        made = Group(self, *self.shaped(active, start), pc)
        self._groups.append(made)
        return made

    def ended(self, group: Group) -> None:
        """Remove a group whose threads have ended."""
        self._groups.remove(group)
        self.ask_again()  # other groups may have waited for lanes that have ended
        self.barriers.ended()

    def ask_again(self) -> None:
        """Run groups that wait for lanes of their warps, so that they test again whether lanes are missing."""
        for other in self._groups:
            other.parked = False

    def run(self, code: Code) -> None:
        """Execute a kernel to its end. Raises NotUnderstood, Fault or Hang, with the line of the instruction."""
        with np.errstate(all="ignore"):
            for _ in self.turns(code):
                pass

    def turns(self, code: Code) -> Iterator[None]:
        """Execute a kernel as `run` does, and yield when all threads poll or wait, so that other machines can run."""
        self.code, self._blocks = code, {}
        ends = {number + 1 for number, one in enumerate(code.instructions) if one.ends}
        self._leaders = sorted({*code.targets, *ends, len(code.instructions)})
        self._groups = []
        together = 4 if any("gmma" in one.text.lower() for one in code.instructions) else 1
        of_world = len(self.geometry.ctas) // self.memory.worlds  # CTAs of each copy of memory, all in the same order
        self.half = halves(self.cta % of_world, self.warp // together, self.random)
        for half in np.unique(self.half):
            self.group(self.live & (self.half == half), 0, code.entry)
        try:
            while self._groups:
                able = self._able()
                if all(group.gave_way for group in able):
                    if self._part_parked():
                        continue
                    able = able or self._timed_out()
                if all(group.gave_way for group in able):
                    yield
                    for group in able:
                        group.gave_way = False
                self._advance(min((one for one in able if not one.gave_way), key=self._turn))
        except (NotUnderstood, Fault) as error:
            if error.line is None:
                error.line = self.instruction.line
            if isinstance(error, Fault):
                cta, thread = divmod(error.thread, self.geometry.padded_threads)
                error.pc, error.who = self.pc, f"thread {thread} of CTA {self.geometry.ctas[cta]}"
            if isinstance(error, Outside):
                error.origin = code.origin(self.pc, error.thread, self.memory.address(error.index))
                error.text = self.memory.outside(error.access, error.index, error.origin.pointers)
                if error.origin.pc is not None:
                    error.wrapped_line = code.instructions[error.origin.pc].line
            raise

    def _turn(self, group: Group) -> tuple[int, int]:
        return int(self.half[group.s.start]), group.pc

    @property
    def polling(self) -> list[int]:
        """The indices of each group's next instruction, in order of the groups' first threads."""
        return [group.pc for group in sorted(self._groups, key=lambda group: int(group.numbers[0]))]

    def _able(self) -> list[Group]:
        """Return the groups that can run. First release groups whose wait is over, and join those with the same program
        counter."""
        for group in list(self._groups):
            if group.ready is not None:
                self._release(group)
        self._merge()
        return [group for group in self._groups if group.ready is None and not group.parked]

    def _part_parked(self) -> bool:
        """Run the complete warps of a parked group that waits for lanes of other warps. Return True if there are any.
        Call this only when no other group can run: it divides groups, and small groups execute more steps in total."""
        for group in self._groups:
            if group.parked and group.late is not None:
                late, group.late = group.late, None
                if (whole := group.part(~late)) is not None:
                    whole.parked = False
                    self._advance(whole)
                    return True
        return False

    def _timed_out(self) -> list[Group]:
        """Release and return the groups whose waits have a time limit (`retries`), as if the limit had passed. Raises
        Hang if there are none."""
        able = [group for group in self._groups if group.retries]
        self.steps_left -= _PATIENCE
        if not able or self.steps_left < 0:
            pcs = sorted({group.pc - (group.ready is not None and not group.retries) for group in self._groups})
            lines = sorted({self.code.instructions[pc].line for pc in pcs})
            raise Hang(f"all threads wait: at line {', '.join(map(str, lines))}", pcs, lines, is_certain=True)
        for group in able:
            group.ready, group.retries, group.timed_out = None, False, True
        return able

    def _release(self, group: Group) -> None:
        assert group.ready is not None
        ready = group.ready()
        if ready is True or ready is False:
            if ready:
                group.ready, group.retries = None, False
            return
        if (part := group.part(ready[group.s])) is not None:
            part.ready, part.retries = None, False

    def _merge(self) -> None:
        if len(self._groups) == 1:
            return
        places: dict[tuple[int, int], list[Group]] = {}
        for group in self._groups:
            if group.ready is None:
                places.setdefault(self._turn(group), []).append(group)
        for (_, pc), several in places.items():
            if len(several) > 1:
                low, high = min(group.s.start for group in several), max(group.s.stop for group in several)
                active = np.zeros(high - low, bool)
                for group in several:
                    active[group.s.start - low : group.s.stop - low] |= group.active
                    self._groups.remove(group)
                self.group(active, low, pc).gave_way = any(group.gave_way for group in several)

    @property
    def first_thread(self) -> int:
        """The number of the first thread that runs now, for messages."""
        return int(self._now.numbers[0])

    def _advance(self, group: Group) -> None:
        """Run a group until it is divided, waits, ends, or no longer has the lowest program counter."""
        self._now = group
        half = self.half[group.s.start]
        others = [
            other.pc
            for other in self._groups
            if other is not group and other.ready is None and self.half[other.s.start] == half
        ]
        lowest = min(others, default=len(self.code.instructions) + 1)
        count = len(self._groups)
        while True:
            steps, end, moves = self._blocks.get(group.pc) or self._block(group.pc)
            iterator = iter(steps)
            self._running = group.pc, len(steps), iterator
            self.steps_left -= len(steps)
            line = self.code.instructions[group.pc].line
            if self.steps_left < 0:
                raise Hang(f"more than {self.most_steps:,} steps; at line {line}", [group.pc], [line])
            if time.monotonic() > self._end:
                raise Late(f"not finished after {self.limit_s:g} s; at line {line}", [group.pc], [line])
            group.pc = end
            try:
                for step in iterator:
                    step(group)
            except Parked as parked:
                group.pc, group.ready = self.pc, parked.ready
                group.parked, group.retries = parked.ready is None, parked.ready is not None
                group.late = parked.late
                return
            group.timed_out = False
            if moves and (len(self._groups) != count or group.ready is not None):
                return
            if group.gave_way or group.pc >= lowest:
                return

    def _block(self, pc: int) -> tuple[Sequence[Step], int, bool]:
        """Return the steps from `pc` to the next jump target, or to an instruction that may change program counters;
        the index after them; and whether the last one may change program counters."""
        if pc >= len(self.code.instructions):
            raise Hang("threads run past the end of the kernel")
        end = next(leader for leader in self._leaders if leader > pc)
        steps = tuple(one.step for one in self.code.instructions[pc:end])
        self._blocks[pc] = steps, end, self.code.instructions[end - 1].ends
        return self._blocks[pc]

    def parted(self) -> list[tuple[int, str, list[tuple[str, int]]]]:
        """List the groups that wait for lanes of their warps. For each: index of its instruction; description of its
        lanes in its first warp; and for each group with other lanes of this warp, their description and index of the
        instruction."""
        found = []
        for group in self._groups:
            if not group.parked:
                continue
            warp = int(group.numbers[0]) // WARP
            others = [(_lanes(one, warp), one.pc) for one in self._groups if one is not group and _lanes(one, warp)]
            found.append((group.pc, _lanes(group, warp), [(f"{text}, elsewhere", pc) for text, pc in others]))
        return found


def _lanes(group: Group, warp: int) -> str:
    """Describe a group's lanes of a warp, for messages; "" if it has none."""
    mine = group.numbers[group.numbers // WARP == warp]
    return f"{len(mine)} lanes of warp {warp}, the first is {int(mine[0]) % WARP}" if len(mine) else ""
