"""Stamps of a stream, on a driver and a torch that record; and the clock that they tell."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tritonhook.device import sm_clock
from tritonhook.device.sm_clock import STAMP, Clock, Conditions, clock_mhz


class Words(list):
    """A tensor: what its kernels would write, three numbers for each stamp."""

    def __getitem__(self, key):
        return Words(super().__getitem__(key))

    def tolist(self):
        return list(self)

    def data_ptr(self):
        return 1 << 40


def test_stamps_follow_each_other_from_the_first_place(monkeypatch: pytest.MonkeyPatch) -> None:
    launched, made = [], []

    class Driver:
        def load(self, image):
            assert image == STAMP.encode() + b"\0"
            return 3

        def function(self, module, name):
            return (module, name)

        def launch(self, function, arguments, **given):
            launched.append((function, [one.value for one in arguments], given))

    def zeros(size, **given):
        made.append((size, given))
        return Words(range(size))

    stream = SimpleNamespace(cuda_stream=9)
    torch = SimpleNamespace(zeros=zeros, int64="int64", cuda=SimpleNamespace(current_stream=lambda: stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sm_clock, "Driver", Driver)
    clock = Clock(2)
    assert made == [(12, {"dtype": "int64", "device": "cuda"})]
    for _ in range(4):
        clock.stamp()
    assert clock.pairs() == [((0, 1, 2), (3, 4, 5)), ((6, 7, 8), (9, 10, 11))]
    clock.begin()
    assert clock.pairs() == []
    clock.stamp()
    clock.stamp()
    assert clock.pairs() == [((0, 1, 2), (3, 4, 5))]
    places = [(1 << 40) + 24 * number for number in (0, 1, 2, 3, 0, 1)]
    assert launched == [((3, "tritonhook_stamp"), [place], {"block": 1, "stream": 9}) for place in places]


@pytest.mark.parametrize(
    ("pairs", "mhz"),
    [
        ([], None),
        ([((0, 0, 1), (2000, 1000, 1))], 2000.0),
        ([((5, 7, 1), (1005, 1007, 1)), ((0, 0, 2), (6000, 3000, 2))], 1750.0),
        ([((0, 0, 1), (2000, 1000, 2))], None),
        ([((0, 0, 1), (0, 1000, 1)), ((0, 0, 1), (1000, 0, 1)), ((0, 0, 1), (1, 1, 1))], 1000.0),
        ([((9, 0, 1), (1, 1000, 1))], None),
        ([((0, 0, 1), (100, 1000, 1))], None),
        ([((0, 0, 1), (101, 1000, 1))], 101.0),
        ([((0, 0, 1), (5000, 1000, 1))], None),
        ([((0, 0, 1), (4999, 1000, 1))], 4999.0),
    ],
)
def test_the_clock_is_all_cycles_over_all_time_of_pairs_of_one_sm(pairs: list, mhz: float | None) -> None:
    assert clock_mhz(pairs) == mhz


def test_a_slow_clock_makes_a_block_unfit() -> None:
    assert Conditions().unfit is None and Conditions(sm_clock_mhz=1).unfit is None
    assert Conditions(sm_clock_mhz=750, sm_clock_max_mhz=1000).unfit is None
    assert "749 of 1000 MHz" in str(Conditions(sm_clock_mhz=749, sm_clock_max_mhz=1000).unfit)
    assert "heat, power" in str(Conditions(slowed=("heat", "power")).unfit)
