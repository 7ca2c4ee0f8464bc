"""The CTAs of a launch in waves: as many at once as fit into a fixed memory, whatever the launch asks for.

A launch that fits is one wave. Others are executed one wave after the other, on the same global memory. Where all
threads of a wave poll or wait, it may be for CTAs that have not begun: then the next wave begins, and those that have
begun take turns, as many as RESIDENT_BYTES hold. A cooperative launch needs all of its CTAs at once: it is refused if
they do not fit. What is counted is what NumPy arrays take. With Run.room, CTAs begin as on a GPU that holds so many:
where others have ended.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tritonhook.emulate.errors import Hang, Late, Unfinished
from tritonhook.emulate.launch import MOST_CHOSEN, Placed, clusters
from tritonhook.emulate.livelock import Livelock
from tritonhook.emulate.machine import Code, Geometry, Machine
from tritonhook.emulate.memory import Memory
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.run import Run

RESIDENT_BYTES = 896 << 20  # of all waves that have begun
WAVE_BYTES = RESIDENT_BYTES // 2
_WATCHED = 3  # by so much a wave is smaller that is watched: what watching computes with comes on top
_KEPT_BYTES = 128 << 20  # of decoded kernels that may be launched again
_MOST_WAVES = 8  # of a launch whose CTAs begin where others have ended
_ROUNDS = 10_000  # in which all waves do nothing but poll


@dataclass(frozen=True, slots=True)
class Loaded:
    """A launch in memory. decode: makes a kernel's code for a machine, and lists what is not understood of it.
    cta_bytes: what a CTA takes, about. alike: launches of a kernel that have the same one are decoded alike; None: they
    never are."""

    memory: Memory
    placed: Placed
    decode: Callable[[Machine], tuple[Code, tuple[NotUnderstood, ...]]]
    cta_bytes: int
    kernel: object = None
    alike: tuple[Hashable, ...] | None = None


class Watcher(Protocol):
    """Looks at the machine of each wave: at each access, which `machine.memory` tells it, and at each instruction, in
    the code that it gives back to be executed."""

    def begin(self, machine: Machine, code: Code) -> Code: ...
    def end(self, machine: Machine) -> None: ...


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A kernel that was decoded for a machine, which has ended. kernel: lives as long, as it is kept by its id."""

    machine: Machine
    code: Code
    unknown: tuple[NotUnderstood, ...]
    kernel: object
    bytes: int


_decoded: dict[tuple[Hashable, ...], _Decoded] = {}  # the last one was used last


def _keep(key: tuple[Hashable, ...], one: _Decoded) -> None:
    one.machine.memory.empty()
    _decoded[key] = one
    while sum(each.bytes for each in _decoded.values()) > _KEPT_BYTES:
        del _decoded[next(iter(_decoded))]


class Waves:
    """The waves of one launch. resident: machines that have begun and have not ended; the first one runs now.
    finished: CTAs. steps: of waves that have ended. unknown: what was not understood of the kernel."""

    def __init__(self, loaded: Loaded, run: Run, watcher: Watcher | None = None) -> None:
        self.loaded, self.run, self.watcher = loaded, run, watcher
        self.resident: deque[tuple[Machine, Iterator[None]]] = deque()
        self.finished = self.steps = 0
        self.polled = False  # whether all threads of a wave have polled or waited
        self.unknown: tuple[NotUnderstood, ...] = ()
        cluster = math.prod(run.launch.cluster)
        of_cluster = loaded.cta_bytes * cluster * loaded.memory.worlds
        of_wave = WAVE_BYTES if watcher is None else WAVE_BYTES // _WATCHED
        self.clusters = max(1, (RESIDENT_BYTES if run.launch.cooperative else of_wave) // of_cluster)
        self.most = max(1, RESIDENT_BYTES // (self.clusters * of_cluster))
        size = f"the {RESIDENT_BYTES:,} bytes that emulation takes for threads and shared memory"
        if run.seed and not run.launch.cooperative:  # another order: one half of the CTAs ends before the other begins
            self.clusters = min(self.clusters, max(1, -(-len(run.ctas) // (2 * cluster))))
            self.most = max(1, RESIDENT_BYTES // (self.clusters * of_cluster))
        if of_cluster > RESIDENT_BYTES:
            raise Unfinished(f"{cluster} CTAs of a cluster take {of_cluster:,} bytes, more than {size}")
        if run.room:
            self.clusters = max(1, run.room // cluster)
            if self.clusters * of_cluster > RESIDENT_BYTES:
                raise Unfinished(f"{run.room:,} CTAs, which the GPU holds, do not fit at once into {size}")
        if run.launch.cooperative and len(run.ctas) > (fit := self.clusters * cluster):
            raise Unfinished(f"a cooperative launch of {len(run.ctas):,} CTAs: {fit:,} fit at once into {size}")

    @property
    def _bytes(self) -> int:
        return len(self.run.ctas) * self.loaded.cta_bytes * self.loaded.memory.worlds

    @cached_property
    def _key(self) -> tuple[Hashable, ...] | None:
        """What the decoded kernel is kept by; None if it is not: of several waves, watched, or large."""
        loaded, launch, memory = self.loaded, self.run.launch, self.loaded.memory
        is_watched = self.watcher is not None or memory.watch is not None or memory.observe is not None
        is_one_wave = len(self.run.ctas) <= self.clusters and math.prod(launch.cluster) == 1
        if loaded.alike is None or is_watched or not is_one_wave or self._bytes > _KEPT_BYTES // 2:
            return None
        lie = tuple((one.begin, one.size) for one in memory.allocations)
        what = id(loaded.kernel), launch.grid, launch.block, tuple(self.run.ctas), launch.shared
        return *what, memory.worlds, lie, loaded.alike

    def execute(self) -> None:
        """Execute all CTAs. Raises NotUnderstood, Fault, Hang, Unfinished."""
        left, polls = self._in_order(clusters(self.run.launch, self.run.ctas)), 0
        following, livelock = self._next(left), Livelock()
        with np.errstate(all="ignore"):
            while self.resident or following:
                if following and polls >= len(self.resident) and (count := self._free(len(following))):
                    self._begin(following[:count])
                    following, polls = following[count:] or self._next(left), 0
                if self._turn(bool(following)):
                    polls = 0
                elif (
                    following and not self.run.room and len(self.resident) == self.most and polls > _ROUNDS * self.most
                ):
                    raise self._why_not_finished("they poll for others, which do not fit beside them")
                else:
                    self.resident.rotate(-1)
                    self.polled = True
                    polls += 1
                    if (self.run.room or not following) and not polls % len(self.resident):
                        livelock.look([machine for machine, _ in self.resident], polls // len(self.resident))

    def _free(self, most: int) -> int:
        """Return how many CTAs may begin now."""
        if not self.run.room or not self.resident:
            return most if len(self.resident) < self.most else 0
        if len(self.resident) >= _MOST_WAVES:
            raise self._why_not_finished("too many waves that poll")
        cluster, padded = math.prod(self.run.launch.cluster), self.resident[0][0].geometry.padded_threads
        held = sum(int(one.live.reshape(-1, cluster * padded).any(1).sum()) for one, _ in self.resident)
        return min(most, (self.clusters - held) * cluster)

    def _in_order(self, all_of_them: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """Shuffle the clusters by the run's seed; 0, and more than MOST_CHOSEN, stay in program order."""
        if not self.run.seed or len(self.run.ctas) > MOST_CHOSEN:
            return all_of_them
        several = list(all_of_them)
        return (several[number] for number in np.random.default_rng(self.run.seed).permutation(len(several)))

    def _turn(self, are_others_left: bool) -> bool:
        """Execute the first wave until it ends, and return True, or until it polls."""
        machine, turns = self.resident[0]
        try:
            if next(turns, machine) is not machine:
                return False
        except Late as late:
            raise (self._why_not_finished(str(late)) if self.finished else late) from None
        except Hang as hang:
            raise (hang if hang.is_certain or not are_others_left else self._why_not_finished(str(hang))) from None
        self.resident.popleft()
        self.finished += len(machine.geometry.ctas)
        self.steps += machine.most_steps - machine.steps_left
        if self.watcher is not None:
            self.watcher.end(machine)
        if self._key is not None and "tensor_memory" not in vars(machine):
            _keep(self._key, _Decoded(machine, machine.code, self.unknown, self.loaded.kernel, self._bytes))
            return True
        for one in (machine.memory, machine):  # they are in circles with steps and watchers, and would stay for a while
            vars(one).clear()
        return True

    def _next(self, left: Iterator[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(chain.from_iterable(islice(left, self.clusters)))

    def _begin(self, ctas: tuple[int, ...]) -> None:
        launch, run = self.run.launch, self.run
        memory = self.loaded.memory.beside()
        geometry = Geometry(launch.grid, launch.block, ctas * memory.worlds, launch.cluster)
        if self._key is not None and (kept := _decoded.pop(self._key, None)) is not None:
            kept.machine.restart(memory, run.seed, run.most_steps, run.limit_s, run.began)
            self.unknown = kept.unknown
            self.resident.appendleft((kept.machine, kept.machine.turns(kept.code)))
            return
        machine = Machine(geometry, memory, run.seed, run.most_steps, run.limit_s, run.began)
        code, self.unknown = self.loaded.decode(machine)
        if self.watcher is not None:
            code = self.watcher.begin(machine, code)
        self.resident.appendleft((machine, machine.turns(code)))

    def _why_not_finished(self, why: str) -> Unfinished:
        begun = sum(len(machine.geometry.ctas) for machine, _ in self.resident)
        return Unfinished(
            f"{self.finished:,} of {len(self.run.ctas):,} CTAs finished, {begun:,} are resident, as many as fit: {why}"
        )
