"""Stamps of a stream, on a driver and a torch that record; and the clock that they tell."""

from __future__ import annotations

import pytest

from tritonhook.device.sm_clock import Conditions, clock_mhz


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
