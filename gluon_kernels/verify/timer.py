"""Time several launches against each other on one GPU. Needs torch; works for any launch.

Each launch is first called WARMUPS times, to be compiled and tuned. Then it is captured into a CUDA graph if possible,
so that the speed of the host does not matter, or called as programs call it ("eager"). A round takes one sample of each
launch in a new random order: if the GPU grows hot and slow, all launches are affected. All launches are queued before
any time is read.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARMUPS = 2
# Launches shorter than this are repeated within a sample.
SHORT_MS = 0.2


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples of one launch in ms, in the order of the rounds. `graph`: captured into a CUDA graph; else eager."""

    samples_ms: tuple[float, ...]
    graph: bool

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)


def time_all(launches: dict[str, Callable[[], object]], rounds: int = 30, *, graph: bool = True) -> dict[str, Timed]:
    """Take `rounds` samples of each launch. The launches must not depend on each other's outputs.

    `graph`: capture launches into CUDA graphs if possible. Without a graph, the time of a launch on the host counts if
    it is longer than that on the GPU.
    """
    import torch

    prepared = {}
    pool = torch.cuda.graph_pool_handle()
    for name, launch in launches.items():
        for _ in range(WARMUPS):
            launch()
        torch.cuda.synchronize()
        prepared[name] = _captured(launch, pool) if graph else (launch, False)
    repeats = {name: _repeats(run) for name, (run, _) in prepared.items()}
    order, draw = list(prepared), random.Random(0)
    events: list[tuple[str, Any, Any]] = []
    for _ in range(rounds):
        draw.shuffle(order)
        for name in order:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(repeats[name]):
                prepared[name][0]()
            end.record()
            events.append((name, start, end))
    torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in prepared}
    for name, start, end in events:
        samples[name].append(start.elapsed_time(end) / repeats[name])
    return {name: Timed(tuple(samples[name]), graph) for name, (_, graph) in prepared.items()}


def host_us(launch: Callable[[], object], calls: int = 300) -> float:
    """Measure the host's time for a call, in us: the median of seven loops. The GPU must be faster than the host."""
    import torch

    found = []
    for _ in range(7):
        for _ in range(WARMUPS):
            launch()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            launch()
        found.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def _captured(launch: Callable[[], Any], pool: Any) -> tuple[Callable[[], object], bool]:
    """Capture a launch into a CUDA graph; return (replay, True), or (launch, False) if it cannot be captured."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            out = launch()
    except RuntimeError:
        torch.cuda.synchronize()
        return launch, False
    return (graph.replay, True) if _writes(graph, out) else (launch, False)


def _writes(graph: Any, out: Any) -> bool:
    """Check whether a replay computes the output. Work on another stream is not in the graph and takes no time."""
    import torch

    first = out[0] if isinstance(out, (tuple, list)) else out
    if first.element_size() == 1:  # torch has no any() for fp8
        first = first.view(torch.uint8)
    first.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return bool(first.any())


def _repeats(run: Callable[[], object]) -> int:
    import torch

    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    elapsed_ms: float = start.elapsed_time(end)
    return max(1, round(SHORT_MS / max(elapsed_ms, 1e-3)))
