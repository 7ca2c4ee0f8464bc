"""From what events say to microseconds per launch: on a fake GPU, whose clock moves with what runs on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.device.sm_clock import Conditions
from tritonhook.errors import DeviceError
from tritonhook.timing import timer as module
from tritonhook.timing.statistics import SampleBlock
from tritonhook.timing.timer import TimedSide, Timer


class FakeGpu:
    """Time in microseconds, as its events tell it. launched: what ran; captures: the launches of each graph.

    A clock of it stamps its time, and cycles at 1000 MHz; of launches of `fast` at 2000 MHz.
    """

    def __init__(self) -> None:
        self.now_us = self.cycles = 0.0
        self.fast = ""
        self.slow_until_us = 0.0  # before that, three times as slow at first, and ever less
        self.l2 = 50 << 20
        self.launched: list[str] = []
        self.captures: list[list[str]] = []
        self.allocated: list[tuple[int, str, str]] = []
        self._captured: list[tuple[str, float]] | None = None

    def launch(self, name: str, us: float) -> None:
        if self._captured is not None:
            return self._captured.append((name, us))
        self.launched.append(name)
        self.now_us += us * (max(1.0, 3 - 2 * self.now_us / self.slow_until_us) if self.slow_until_us else 1)
        self.cycles += us * (2000 if name == self.fast else 1000)

    @contextmanager
    def capture(self, graph: SimpleNamespace, pool: str) -> Iterator[None]:
        assert pool == "pool"
        self._captured = held = []
        try:
            yield
        finally:
            self._captured = None
        self.captures.append([name for name, _ in held])
        graph.replay = lambda: [self.launch(*each) for each in held]

    def empty(self, size: int, dtype: str, device: str) -> SimpleNamespace:
        self.allocated.append((size, dtype, device))
        return SimpleNamespace(zero_=lambda: self.launch("flush", 10.0))

    def event(self, enable_timing: bool) -> SimpleNamespace:
        made = SimpleNamespace(at=None)
        made.record = lambda: setattr(made, "at", self.now_us)
        made.elapsed_time = lambda end: (end.at - made.at) / 1000
        return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    cuda = SimpleNamespace(
        Event=made.event,
        synchronize=lambda: made.launched.append("wait"),
        current_device=lambda: 3,
        get_device_properties=lambda device: SimpleNamespace(L2_cache_size=made.l2) if device == 3 else None,
        graph_pool_handle=lambda: "pool",
        CUDAGraph=SimpleNamespace,
        graph=made.capture,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, int8="int8", empty=made.empty))
    now = SimpleNamespace(perf_counter=lambda: made.now_us / 1e6, monotonic=lambda: made.now_us / 1e6)
    monkeypatch.setattr(module, "time", now)
    return made


class FakeClock:
    """What sm_clock.Clock is on the fake GPU."""

    def __init__(self, gpu: FakeGpu, pairs: int) -> None:
        self.room, self._gpu, self._stamps = pairs, gpu, list[tuple[int, int, int]]()

    def begin(self) -> None:
        self._stamps.clear()

    def stamp(self) -> None:
        self._stamps.append((int(self._gpu.cycles), int(1000 * self._gpu.now_us), 0))

    def pairs(self) -> list[Any]:
        return list(zip(self._stamps[::2], self._stamps[1::2], strict=True))


@pytest.fixture
def with_clock(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Clock", lambda pairs: FakeClock(gpu, pairs))
    monkeypatch.setattr(module, "conditions_reader", lambda: lambda: Conditions(temperature_c=50))


def side(gpu: FakeGpu, name: str, us: float, copies: int = 1) -> TimedSide:
    return TimedSide(name, lambda: gpu.launch(name, us), copies=copies)


@pytest.mark.parametrize("copies", [1, 40])
def test_a_time_is_that_of_one_launch_however_many_make_a_sample(gpu: FakeGpu, copies: int) -> None:
    timer = Timer([side(gpu, "a", 3.0, copies), side(gpu, "b", 6.0, copies)], cold=False)
    order, times, clocks = timer._rounds(4)
    assert times == {"a": pytest.approx((3.0,) * 4), "b": pytest.approx((6.0,) * 4)}
    assert len(order) == 9 and clocks == {"a": None, "b": None}
    assert len(gpu.launched) == 2 * 9 * copies + 1, "each sample follows a run that fills the cache"
    assert gpu.launched[-1] == "wait"


def test_each_block_takes_a_drawn_place_of_each_side(gpu: FakeGpu) -> None:
    """Given a code at four places of which one is slow; then blocks of one process differ, and a block is of one."""
    places = [TimedSide("a", lambda us=us: gpu.launch("a", us)) for us in (3.0, 3.0, 3.0, 9.0)]
    timer = Timer([*places, side(gpu, "b", 6.0)], cold=False, rounds=4)
    assert timer.names == ["a", "b"]
    taken = [timer._rounds(4)[1] for _ in range(40)]
    assert all(set(times) == {"a", "b"} and len(set(times["a"])) == 1 for times in taken)
    slow = sum(times["a"][0] > 5 for times in taken)
    assert 0 < slow < 40 and all(set(times["b"]) == {6.0} for times in taken)
    timer.keep(["a"])
    assert timer.names == ["a"] and len(timer.sides) == 4
    timer.rounds = 0
    timer.keep(["b"])
    assert timer.rounds == 0, "as many as before: nothing changes"
    timer = Timer([side(gpu, "a", 1000.0), side(gpu, "b", 1000.0), side(gpu, "c", 1000.0)], cold=False, racing=True)
    timer.keep(["a", "c"])
    assert timer.names == ["a", "c"] and timer.rounds == 8, "six launches of 1 ms were a round"


def test_a_block_is_of_cold_launches_replayed_from_graphs(gpu: FakeGpu, with_clock: None) -> None:
    gpu.fast = "b"
    timer = Timer([side(gpu, "a", 1000.0), side(gpu, "b", 2000.0)], seed=3)
    timer.prepare()
    assert gpu.allocated == [(100 << 20, "int8", "cuda")], "twice the L2 cache"
    assert timer._clock.room == (60 + 2) * 2 and gpu.captures == [["a"], ["b"]]
    assert [(one.copies, one.why_eager, one.graph is None) for one in timer.sides] == [(1, None, False)] * 2
    assert timer.flushes
    timer.rounds = 4
    gpu.launched.clear()
    block = timer.take_block(7)
    assert block == SampleBlock(
        7,
        {"a": (1000.0,) * 4, "b": (2000.0,) * 4},
        Conditions(temperature_c=50),
        {"a": 1000.0, "b": 2000.0},
        block.order,
    )
    assert gpu.launched == [*(what for name in block.order for what in ("flush", name)), "wait"]
    again = Timer([side(gpu, "a", 1000.0), side(gpu, "b", 2000.0)], seed=3)
    again.prepare()
    again.rounds = 4
    assert again.take_block(7).order == block.order, "a seed draws one order"


def test_without_a_clock_cycles_are_not_known_and_hot_launches_need_no_memory(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, with_clock: None
) -> None:
    def refuse(pairs: int) -> None:
        raise DeviceError("CUDA_ERROR_INVALID_PTX")

    monkeypatch.setattr(module, "Clock", refuse)
    timer = Timer([side(gpu, "a", 5000.0)], cold=False)
    timer.prepare()
    assert gpu.allocated == [] and not timer.flushes and timer.take_block(0).clock_mhz == {"a": None}


def test_a_launch_that_cannot_be_captured_is_timed_eagerly(gpu: FakeGpu, with_clock: None) -> None:
    def launch() -> None:
        if gpu._captured is not None:
            raise RuntimeError("cannot be captured\nmore")
        gpu.launch("a", 4000.0)

    timer = Timer([TimedSide("a", launch), side(gpu, "b", 4000.0)])
    timer.prepare()
    assert [(one.why_eager, one.graph is None) for one in timer.sides] == [
        ("RuntimeError: cannot be captured", True),
        (None, False),
    ]
    assert {us for times in timer.take_block(0).times_us.values() for us in times} == {4000.0}


def test_a_gpu_that_is_still_getting_faster_is_not_timed(gpu: FakeGpu, with_clock: None) -> None:
    gpu.slow_until_us = 5e5
    timer = Timer([side(gpu, "a", 3000.0)], cold=False)
    timer.prepare()
    assert timer.take_block(0).times_us["a"] == pytest.approx([3000.0] * timer.rounds, rel=0.03)
