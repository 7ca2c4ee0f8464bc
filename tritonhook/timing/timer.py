"""Take samples on a GPU: several sides of one comparison, in one process, on one stream and the same buffers.

Needs torch and a GPU. A side is a launch that can be repeated, as a CUDA graph if it can be captured. A sample is the
time between two events on the stream; the L2 cache is emptied before the first event. worker.py makes the sides,
statistics.py evaluates the times.
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

SHORT_US = 20.0  # a sample has several launches if a launch is shorter, since the events also take time
SAMPLE_US = 400.0  # duration of such a sample; the resolution of events is half a microsecond
BLOCK_S = 0.05  # approximate duration of the samples of a block
ROUNDS = (5, 60)  # minimum and maximum number of rounds in a block
WARM_S = 2.0  # maximum duration of the warm-up
WARM_TOLERANCE = 0.01  # the warm-up ends if three successive blocks differ by less


@dataclass(slots=True)
class TimedSide:
    """A launch to be timed.

    within: context manager that is active during launches. copies: launches per sample. graph: CUDA graph of these
    launches; None: they run eagerly. why_eager: reason for None.
    """

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

    sides: sides with the same name are one code at several addresses; each block uses a random one of them. cold: empty
    the L2 cache before each sample. rounds: rounds per block, set by `prepare`. racing: there are many sides, and most
    are soon dropped (`keep`). Then blocks are short, their order is not balanced, and there is no warm-up.
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
        """Capture each side into a graph, choose the number of launches per sample, and warm up.

        Each side must have run before, so that nothing is compiled or tuned now.
        """
        import torch

        self._order.seed(self.seed)
        self._read_conditions = conditions_reader()
        if self.cold:
            size = 2 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
            self._flush = torch.empty(max(size, 1 << 20), dtype=torch.int8, device="cuda")
        with contextlib.suppress(DeviceError):  # without the clock, cycles are not known
            self._clock = Clock((ROUNDS[1] + len(self.names)) * len(self.names))
        self._pool = torch.cuda.graph_pool_handle()
        for side in self.sides:
            self._capture(side)
        first = {side.name: side for side in reversed(self.sides)}  # of each name, the side at the first address
        copies = max(self._copies(first[name]) for name in (self.names[:1] if self.racing else self.names))
        for side in self.sides:
            side.copies = copies
            if copies > 1:
                self._capture(side)
        self.rounds = self._count_rounds()
        if not self.racing:
            self._warm()

    def keep(self, names: Sequence[str]) -> None:
        """Drop all other sides."""
        if len(names) != len(self.names):
            self.sides = [side for side in self.sides if side.name in names]
            self.rounds = self._count_rounds()

    @property
    def names(self) -> list[str]:
        """The names of the sides, each once."""
        return list(dict.fromkeys(side.name for side in self.sides))

    @property
    def flushes(self) -> bool:
        """Whether each launch begins with a cold cache. False if a sample has several launches."""
        return self.cold and all(side.copies == 1 for side in self.sides)

    def take_block(self, process: int) -> SampleBlock:
        """Take one block: `rounds` samples of each side, in random order."""
        order, times, clocks = self._rounds(self.rounds)
        return SampleBlock(process, times, self._read_conditions(), clocks, tuple(order))

    def _capture(self, side: TimedSide) -> None:
        """Capture a side into a graph. A launch that cannot be captured, e.g. as it synchronises, is timed eagerly."""
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
        """Compute the number of launches per sample for this side."""
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
        """Run blocks until three in a row agree for each side, or WARM_S has passed, so that clocks and caches
        settle."""
        deadline = time.monotonic() + WARM_S
        last: list[list[float]] = []
        while time.monotonic() < deadline:
            _, times, _ = self._rounds(self.rounds)
            last = [*last[-2:], [statistics.median(values) for values in times.values()]]
            spreads = [max(column) / min(column) - 1 for column in zip(*last, strict=True)]
            if len(last) == 3 and max(spreads) < WARM_TOLERANCE:
                return

    def _rounds(self, count: int) -> tuple[list[str], dict[str, tuple[float, ...]], dict[str, float | None]]:
        """Measure `count` rounds. Returns the order (with the predecessor of the first sample in front), times by side,
        and average clocks by side.

        All samples are queued first and read at the end, so that the host's speed does not matter.
        """
        import torch

        sides = {name: self._order.choice([s for s in self.sides if s.name == name]) for name in self.names}
        order = (drawn_order if self.racing else balanced_order)(list(sides), count, self._order)
        self._queue(sides[order[0]])  # the predecessor, whose time is not used
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
        """Take one sample; return microseconds."""
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
                side.run()  # fills the cache with the side's own data
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
    """Return a function that reads the conditions of torch's current device from NVML; without NVML they are None."""
    import torch

    from tritonhook.device.nvml import Nvml

    try:
        nvml = Nvml()
        uuid = nvml.find(str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid))
    except DeviceError:
        return Conditions
    return lambda: replace(nvml.conditions(uuid), other_processes=_others(nvml, uuid))


def _others(nvml: Any, uuid: str) -> int | None:
    """Count the processes on the GPU that do not belong to this comparison: those with another parent process."""
    from tritonhook.device.nvml import others_count

    try:
        listed = nvml.processes(uuid)
    except DeviceError:
        return None
    return others_count(listed, [pid for pid in listed if parent_of(pid) == os.getppid()])


@contextlib.contextmanager
def device_errors() -> Iterator[None]:
    """Convert torch's errors of the GPU (out of memory, a failed launch) to DeviceError."""
    import torch

    try:
        yield
    except (torch.cuda.OutOfMemoryError, torch.AcceleratorError) as error:
        raise DeviceError(f"the GPU reported: {str(error).splitlines()[0]}") from None
