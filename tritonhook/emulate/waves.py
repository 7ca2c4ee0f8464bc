"""Execute the CTAs of a launch in waves, so that the emulator's memory stays limited for launches of any size.

A wave is a set of CTAs that begin together on one machine. A small launch is one wave; a larger one is executed one
wave after the other, on the same global memory. If all threads of a wave poll or wait, they may wait for CTAs that have
not begun. Then the next wave begins, and the resident waves take turns; as many waves are resident as fit into
RESIDENT_BYTES. A cooperative launch needs all of its CTAs at once: Unfinished is raised if they do not fit.
RESIDENT_BYTES limits the estimated size of NumPy arrays. Run.room models a GPU that holds so many CTAs: CTAs begin when
others have ended.
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

RESIDENT_BYTES = 896 << 20  # limit for all resident waves
WAVE_BYTES = RESIDENT_BYTES // 2  # limit for one wave
_WATCHED = 3  # WAVE_BYTES is divided by this for a watcher, which needs memory of its own
_KEPT_BYTES = 128 << 20  # limit for the machines of decoded kernels that are kept for the next launch
_MOST_WAVES = 8  # most resident waves with Run.room
_ROUNDS = 10_000  # rounds in which all waves only poll, after which the run is given up


@dataclass(frozen=True, slots=True)
class Loaded:
    """A prepared launch. memory, placed: its memory with its buffers and arguments. decode: makes the kernel's code for
    a machine, and lists the errors of instructions that are not understood. cta_bytes: estimated bytes of a CTA.
    kernel: the kernel to decode. alike: launches of a kernel with equal `alike` share their decoded code; None: this
    launch's code is never shared."""

    memory: Memory
    placed: Placed
    decode: Callable[[Machine], tuple[Code, tuple[NotUnderstood, ...]]]
    cta_bytes: int
    kernel: object = None
    alike: tuple[Hashable, ...] | None = None


class Watcher(Protocol):
    """Observes the machine of each wave: `begin` may set the observers of `machine.memory`, which see each access, and
    may return other code, which sees each instruction. `end` is called when the wave has ended."""

    def begin(self, machine: Machine, code: Code) -> Code: ...
    def end(self, machine: Machine) -> None: ...


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A kernel that was decoded for a machine whose wave has ended. kernel: keeps the kernel alive, because its id() is
    part of the key. bytes: estimated size of the machine."""

    machine: Machine
    code: Code
    unknown: tuple[NotUnderstood, ...]
    kernel: object
    bytes: int


_decoded: dict[tuple[Hashable, ...], _Decoded] = {}  # in order of their last use


def _keep(key: tuple[Hashable, ...], one: _Decoded) -> None:
    one.machine.memory.empty()
    _decoded[key] = one
    while sum(each.bytes for each in _decoded.values()) > _KEPT_BYTES:
        del _decoded[next(iter(_decoded))]


class Waves:
    """The waves of one launch.

    resident: machines that have begun and have not ended; the first one runs now. clusters: number of clusters in a
    wave. most: largest number of resident waves. finished: number of CTAs that have ended. steps: number of steps of
    waves that have ended. unknown: errors of instructions that were not understood.
    """

    def __init__(self, loaded: Loaded, run: Run, watcher: Watcher | None = None) -> None:
        self.loaded, self.run, self.watcher = loaded, run, watcher
        self.resident: deque[tuple[Machine, Iterator[None]]] = deque()
        self.finished = self.steps = 0
        self.polled = False  # whether at some time all threads of a wave polled or waited
        self.unknown: tuple[NotUnderstood, ...] = ()
        cluster = math.prod(run.launch.cluster)
        of_cluster = loaded.cta_bytes * cluster * loaded.memory.worlds
        of_wave = WAVE_BYTES if watcher is None else WAVE_BYTES // _WATCHED
        self.clusters = max(1, (RESIDENT_BYTES if run.launch.cooperative else of_wave) // of_cluster)
        self.most = max(1, RESIDENT_BYTES // (self.clusters * of_cluster))
        size = f"the {RESIDENT_BYTES:,} bytes that the emulator may use for threads and shared memory"
        if run.seed and not run.launch.cooperative:  # at least two waves, so that the order of CTAs matters
            self.clusters = min(self.clusters, max(1, -(-len(run.ctas) // (2 * cluster))))
            self.most = max(1, RESIDENT_BYTES // (self.clusters * of_cluster))
        if of_cluster > RESIDENT_BYTES:
            raise Unfinished(f"the {cluster} CTAs of a cluster take {of_cluster:,} bytes, more than {size}")
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
        """The key under which the decoded kernel is kept. None: it is not kept, because the launch has several waves,
        is watched, or is large."""
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
                    raise self._why_not_finished("they poll for other CTAs, which do not fit beside them")
                else:
                    self.resident.rotate(-1)
                    self.polled = True
                    polls += 1
                    if (self.run.room or not following) and not polls % len(self.resident):
                        livelock.look([machine for machine, _ in self.resident], polls // len(self.resident))

    def _free(self, most: int) -> int:
        """Return how many CTAs may begin now, at most `most`."""
        if not self.run.room or not self.resident:
            return most if len(self.resident) < self.most else 0
        if len(self.resident) >= _MOST_WAVES:
            raise self._why_not_finished("too many waves poll at once")
        cluster, padded = math.prod(self.run.launch.cluster), self.resident[0][0].geometry.padded_threads
        held = sum(int(one.live.reshape(-1, cluster * padded).any(1).sum()) for one, _ in self.resident)
        return min(most, (self.clusters - held) * cluster)

    def _in_order(self, all_of_them: Iterator[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """Shuffle the clusters by the run's seed. With seed 0, or more than MOST_CHOSEN CTAs, keep program order."""
        if not self.run.seed or len(self.run.ctas) > MOST_CHOSEN:
            return all_of_them
        several = list(all_of_them)
        return (several[number] for number in np.random.default_rng(self.run.seed).permutation(len(several)))

    def _turn(self, are_others_left: bool) -> bool:
        """Execute the first wave until it ends or all its threads poll. Return True if it has ended."""
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
        for one in (machine.memory, machine):  # breaks reference cycles, so that the memory is freed at once
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
            f"{self.finished:,} of {len(self.run.ctas):,} CTAs finished; {begun:,} are resident, as many as fit: {why}"
        )
