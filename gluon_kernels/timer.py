"""Several launches timed against each other on one GPU. Torch; knows no kernels.

Each launch is called until it is compiled and tuned, then captured into a CUDA graph where that is possible, so that
the host's pace does not count. A round takes one sample of each in an order drawn anew: a GPU that grows hot
and slow is so for all. Everything is queued before anything is read.
"""

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

WARMUPS = 2
# Launches shorter than this, in ms, are repeated within a sample.
SHORT_MS = 0.2


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples of one launch, one for each round, in the rounds' order; `graph`: captured, else launched eagerly."""

    samples_ms: tuple[float, ...]
    graph: bool

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)


def time_all(launches: dict[str, Callable[[], object]], rounds: int = 30, seed: int = 0) -> dict[str, Timed]:
    """The same number of samples of each launch; the launches must not depend on each other's outputs."""
    import torch

    prepared = {}
    pool = torch.cuda.graph_pool_handle()
    for name, launch in launches.items():
        for _ in range(WARMUPS):
            launch()
        torch.cuda.synchronize()
        prepared[name] = _captured(launch, pool)
    repeats = {name: _repeats(run) for name, (run, _) in prepared.items()}
    order, events, draw = list(prepared), [], random.Random(seed)
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


def _captured(launch, pool):
    """(run, captured): a graph's replay, or the launch itself where it cannot be captured."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool):
            out = launch()
    except RuntimeError:
        torch.cuda.synchronize()
        return launch, False
    return (graph.replay, True) if _writes(graph, out) else (launch, False)


def _writes(graph, out) -> bool:
    """Whether a replay computes: what runs on a stream of its own is not in the graph, and would take no time."""
    import torch

    first = out[0] if isinstance(out, (tuple, list)) else out
    first.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return bool(first.any())


def _repeats(run) -> int:
    import torch

    run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return max(1, round(SHORT_MS / max(start.elapsed_time(end), 1e-3)))
