"""From what events say to microseconds per launch: on a fake GPU, whose clock moves with what runs on it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tritonhook.timing.timer import SAMPLE_US, TimedSide, Timer


class FakeGpu:
    """Time in microseconds, as its events tell it."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.launched: list[str] = []

    def launch(self, name: str, us: float) -> None:
        self.launched.append(name)
        self.now_us += us

    def event(self, enable_timing: bool) -> SimpleNamespace:
        made = SimpleNamespace(at=None)
        made.record = lambda: setattr(made, "at", self.now_us)
        made.elapsed_time = lambda end: (end.at - made.at) / 1000
        return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()
    cuda = SimpleNamespace(Event=made.event, synchronize=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return made


def side(gpu: FakeGpu, name: str, us: float, copies: int = 1) -> TimedSide:
    return TimedSide(name, lambda: gpu.launch(name, us), copies=copies)


@pytest.mark.parametrize("copies", [1, 40])
def test_a_time_is_that_of_one_launch_however_many_make_a_sample(gpu: FakeGpu, copies: int) -> None:
    timer = Timer([side(gpu, "a", 3.0, copies), side(gpu, "b", 6.0, copies)], cold=False)
    order, times, clocks = timer._rounds(4)
    assert times == {"a": pytest.approx((3.0,) * 4), "b": pytest.approx((6.0,) * 4)}
    assert len(order) == 9 and clocks == {"a": None, "b": None}
    assert len(gpu.launched) == 2 * 9 * copies, "each sample follows a run that fills the cache"


def test_short_launches_are_sampled_together(gpu: FakeGpu) -> None:
    timer = Timer([], cold=False)
    assert timer._copies(side(gpu, "long", 25.0)) == 1
    assert timer._copies(side(gpu, "short", 4.0)) == SAMPLE_US / 4
    assert timer._copies(side(gpu, "short, captured together", 4.0, copies=10)) == SAMPLE_US / 4
    assert timer._copies(side(gpu, "below all", 0.25)) == SAMPLE_US
    assert timer._copies(side(gpu, "just short", 19.9)) == 20


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
