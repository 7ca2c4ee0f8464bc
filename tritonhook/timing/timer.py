"""Taking samples on a GPU: several sides of one comparison, in one process, on one stream and the same buffers.

The only file that times anything; it needs torch and a GPU. A side is a launch that can be repeated, as a CUDA
graph where the launch can be captured. A sample is the time between two events on the stream; the L2 cache is emptied
before the first one. worker.py decides which sides there are, statistics.py what the times mean.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tritonhook._util.locks import parent_of
from tritonhook.device.sm_clock import Clock, Conditions, clock_mhz
from tritonhook.errors import DeviceError
from tritonhook.timing.places import balanced_order, drawn_order
from tritonhook.timing.statistics import SampleBlock

SHORT_US = 20.0  # a shorter launch is lost in the events' own time: several launches make one sample
SAMPLE_US = 400.0  # how long a sample of a short kernel takes: events tick in half microseconds
BLOCK_S = 0.05  # how long the samples of a block take, about
ROUNDS = (5, 60)  # at least and at most, in a block
WARM_S = 2.0  # at most
WARM_TOLERANCE = 0.01  # three successive blocks this close to each other: warm


@dataclass(slots=True)
class TimedSide:
    """One launch to be timed. `copies` launches make one sample; `graph` replays them, else `launch` runs eagerly."""

    name: str
    launch: Callable[[], Any]
    within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    copies: int = 1
    graph: Any = None
    why_eager: str | None = None

    def run(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            for _ in range(self.copies):
                self.launch()


@dataclass(slots=True)
class Timer:
    """Times the sides of one comparison on the current device and stream.

    sides: several of one name are one code at several addresses; each block draws one of them. cold: empty the L2
    cache before each sample. rounds: in each block; chosen by `prepare`. racing: there are many sides, of which most
    are soon dropped (`keep`): blocks are short, their order is drawn, and nothing is warmed up.
    """

    sides: Sequence[TimedSide]
    cold: bool = True
    seed: int = 0
    racing: bool = False
    rounds: int = 0
    _flush: Any = None
    _pool: Any = None
    _order: random.Random = field(default_factory=random.Random)
    _read_conditions: Callable[[], Conditions] = Conditions
    _clock: Clock | None = None

    def prepare(self) -> None:
        """Capture each side into a graph, choose how many launches make a sample, and warm up.

        Every side must have run before, so that nothing is compiled or tuned here.
        """
        import torch

        self._order.seed(self.seed)
        self._read_conditions = conditions_reader()
        if self.cold:
            size = 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
            self._flush = torch.empty(max(size, 1 << 20), dtype=torch.int8, device="cuda")
        with contextlib.suppress(DeviceError):  # without it, cycles are unknown
            self._clock = Clock((ROUNDS[1] + len(self.names)) * len(self.names))
        self._pool = torch.cuda.graph_pool_handle()
        for side in self.sides:
            self._capture(side)
        first = {side.name: side for side in reversed(self.sides)}  # the first address of each side
        copies = max(self._copies(first[name]) for name in (self.names[:1] if self.racing else self.names))
        for side in self.sides:
            side.copies = copies
            if copies > 1:
                self._capture(side)
        self.rounds = self._count_rounds()
        if not self.racing:
            self._warm()

    def keep(self, names: Sequence[str]) -> None:
        """Time only these sides from now on."""
        if len(names) != len(self.names):
            self.sides = [side for side in self.sides if side.name in names]
            self.rounds = self._count_rounds()

    @property
    def names(self) -> list[str]:
        """The names of the sides, each once."""
        return list(dict.fromkeys(side.name for side in self.sides))

    @property
    def flushes(self) -> bool:
        """Whether all launches begin with a cold cache. Several launches in one sample warm it for each other."""
        return self.cold and all(side.copies == 1 for side in self.sides)

    def take_block(self, process: int) -> SampleBlock:
        """Take one block: `rounds` samples of every side, in a drawn order in which each follows each equally often."""
        order, times, clocks = self._rounds(self.rounds)
        return SampleBlock(process, times, self._read_conditions(), clocks, tuple(order))

    def _capture(self, side: TimedSide) -> None:
        """Capture a side into a graph. A launch that cannot be captured (e.g. it synchronises) is timed eagerly."""
        import torch

        graph = torch.cuda.CUDAGraph()
        try:
            with side.within(), torch.cuda.graph(graph, pool=self._pool):
                for _ in range(side.copies):
                    side.launch()
        except Exception as error:
            text = str(error).partition("\n")[0]  # empty for a bare `assert`
            side.graph, side.why_eager = None, f"{type(error).__name__}: {text}".removesuffix(": ")
            torch.cuda.synchronize()
        else:
            side.graph = graph

    def _copies(self, side: TimedSide) -> int:
        """Compute how many launches of this side make one sample long enough."""
        one_us = statistics.median(self._sample(side) for _ in range(5)) / side.copies
        return 1 if one_us >= SHORT_US else max(2, round(SAMPLE_US / max(one_us, 1.0)))

    def _count_rounds(self) -> int:
        least = 1 if self.racing else len(self.names)  # a balanced order takes as many rounds as sides
        start = time.perf_counter()
        self._rounds(least)
        round_s = (time.perf_counter() - start) / least
        wanted = min(max(BLOCK_S / round_s, ROUNDS[0]), ROUNDS[1])
        return max(round(wanted / least), 1) * least

    def _warm(self) -> None:
        """Run blocks until three in a row agree on every side, or time is up: clocks and caches settle."""
        deadline = time.monotonic() + WARM_S
        last: list[list[float]] = []
        while time.monotonic() < deadline:
            _, times, _ = self._rounds(self.rounds)
            last = [*last[-2:], [statistics.median(values) for values in times.values()]]
            spreads = [max(column) / min(column) - 1 for column in zip(*last, strict=True)]
            if len(last) == 3 and max(spreads) < WARM_TOLERANCE:
                return

    def _rounds(self, count: int) -> tuple[list[str], dict[str, tuple[float, ...]], dict[str, float | None]]:
        """Measure rounds: return the order, starting with the sample before the first one, and times and average clocks
        by side.

        Everything is queued at once and read at the end, so that the host's speed does not matter.
        """
        import torch

        sides = {name: self._order.choice([s for s in self.sides if s.name == name]) for name in self.names}
        order = (drawn_order if self.racing else balanced_order)(list(sides), count, self._order)
        self._queue(sides[order[0]])  # the predecessor: not a sample
        if self._clock is not None:
            self._clock.begin()
        queued = [(name, *self._queue(sides[name])) for name in order[1:]]
        torch.cuda.synchronize()
        times = {
            name: tuple(start.elapsed_time(end) * 1000 / side.copies for taken, start, end in queued if taken == name)
            for name, side in sides.items()
        }
        stamped = [] if self._clock is None else list(zip(order[1:], self._clock.pairs(), strict=True))
        clocks = {name: clock_mhz([pair for side, pair in stamped if side == name]) for name in times}
        return order, times, clocks

    def _sample(self, side: TimedSide) -> float:
        """Take one sample, in microseconds."""
        import torch

        if self._clock is not None:
            self._clock.begin()
        start, end = self._queue(side)
        torch.cuda.synchronize()
        return float(start.elapsed_time(end) * 1000)

    def _queue(self, side: TimedSide) -> tuple[Any, Any]:
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with side.within() if side.graph is None else contextlib.nullcontext():
            if self._flush is not None:
                self._flush.zero_()
            else:
                side.run()  # hot: the side itself has filled the cache
            if self._clock is not None:
                self._clock.stamp()
            start.record()
            side.run()
            end.record()
            if self._clock is not None:
                self._clock.stamp()
        return start, end


@functools.cache
def conditions_reader() -> Callable[[], Conditions]:
    """Return what reads the conditions of torch's current device from NVML; without NVML all of them are unknown."""
    import torch

    from tritonhook.device.nvml import Nvml

    try:
        nvml = Nvml()
        uuid = nvml.find(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))
    except DeviceError:
        return Conditions
    return lambda: replace(nvml.conditions(uuid), other_processes=_others(nvml, uuid))


def _others(nvml: Any, uuid: str) -> int | None:
    """Count the processes on the GPU that do not belong to this comparison, whose processes all have one parent."""
    from tritonhook.device.nvml import others_count

    try:
        listed = nvml.processes(uuid)
    except DeviceError:
        return None
    return others_count(listed, [pid for pid in listed if parent_of(pid) == os.getppid()])


@contextlib.contextmanager
def device_errors() -> Iterator[None]:
    """Raise errors of the GPU as DeviceError: out of memory, a launch that failed."""
    import torch

    try:
        yield
    except (torch.cuda.OutOfMemoryError, torch.AcceleratorError) as error:
        raise DeviceError(f"the GPU reported: {str(error).splitlines()[0]}") from None
