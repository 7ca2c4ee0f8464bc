"""Arithmetic of charts: ticks, scales, thinned series."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tritonhook.report.pages.charts import Scale, decimals, round_values, thin


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 10))
def test_ticks_are_few_round_and_inside(low: float, span: float, about: int) -> None:
    values = round_values(low, low + span, about)
    slack = span * 1e-6 + abs(low) * 1e-9
    assert len(values) <= about + 3
    assert all(low - slack <= v <= low + span + slack for v in values)


def test_ticks_are_written_in_full() -> None:
    assert round_values(0, 2, 8) == (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
    assert decimals((0.0, 0.25, 0.5)) == 2
    assert decimals((0.0, 500.0)) == 0
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(3, 3, 100, 200)(3) == 150  # all values equal: the middle


def test_thinning_keeps_extremes_and_ends() -> None:
    points = [(float(i), float(i % 10)) for i in range(10_000)] + [(10_000.0, 99.0), (10_001.0, -5.0)]
    kept = thin(points, 50)
    assert len(kept) <= 200
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert (10_000.0, 99.0) in kept and kept == sorted(kept)
    assert thin(points[:20], 50) == points[:20]
