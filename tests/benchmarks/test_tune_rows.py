"""What the rows of tunings come to: wins are judged together, timed again, and counted as slower where they are."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.tuning import tune_rows
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock


def blocks(gain: float, processes: int = 7) -> list[dict[str, Any]]:
    """The blocks of a comparison in which the candidate takes `gain` less time."""
    draw = random.Random(0)
    times = {REFERENCE: 50.0, CANDIDATE: 50.0 * (1 - gain), CONTROL: 50.0}
    return [
        asdict(SampleBlock(process, {side: (us * (1 + draw.gauss(0, 0.0005)),) for side, us in times.items()}))
        for process in range(processes)
        for _ in range(4)
    ]


def kernel(name: str, gain: float | None, step: str = "race", run: str = "1", **fields: Any) -> dict[str, Any]:
    comparison = None if gain is None else asdict(Comparison(())) | {"blocks": blocks(gain)}
    row = {"kind": "kernel", "step": step, "run": run, "part": 0, "source": "liger", "kernel": name}
    row |= {"ptx": name, "uses": None, "us": 50.0, "launch": "", "registers": 32, "candidates": ["O1"], "race": None}
    row |= {"dropped": [], "failed": [], "winner": gain and "O1", "reason": "", "judged": True, "seconds": 2.0}
    return row | {"notes": [], "comparison": comparison} | fields


def again(name: str, verdict: str) -> dict[str, Any]:
    return {"kind": "again", "step": "again", "run": "1", "part": 0, "source": "liger", "kernel": name} | {
        "ptx": name,
        "winner": "O1",
        "verdict": verdict,
        "comparison": {"blocks": blocks(0.1, 5), "band": 0.005},
    }


def test_wins_are_certified_gains_that_hold_at_every_launch() -> None:
    found = tune_rows.summed_up(
        [
            kernel("ten", 0.1),
            kernel("twenty", 0.2),
            kernel("none", 0.0),
            kernel("left", None, reason="none of 3 other codes is faster by 0.5%"),
            kernel("elsewhere", 0.1, reason="O1 is faster at one launch, but its time is +3.00% at another one"),
            kernel("copies", None, step="null"),
        ]
    )
    verdicts = {row["kernel"]: row["verdict"] for row in found["kernels"]}
    assert [name for name, verdict in verdicts.items() if verdict == "WIN"] == ["ten", "twenty"]
    summary = found["summary"]
    assert (summary["kernels"], summary["wins"], summary["null_tunings"], summary["null_wins"]) == (5, 2, 1, 0)
    assert summary["gain_geomean_of_wins"] == pytest.approx(100 * (1 - (0.9 * 0.8) ** 0.5), abs=0.1)
    assert summary["gain_geomean_of_all"] == pytest.approx(100 * (1 - (0.9 * 0.8) ** 0.2), abs=0.1)
    assert summary["wins_reproduced_ratio"] is None  # nothing was timed again


def test_a_null_that_wins_is_counted() -> None:
    summary = tune_rows.summed_up([kernel("k", 0.1), kernel("copies", 0.1, step="null")])["summary"]
    assert (summary["null_tunings"], summary["null_wins"]) == (1, 1)


def test_wins_that_are_timed_again() -> None:
    rows = [kernel("a", 0.1), kernel("b", 0.1), again("a", "faster"), again("b", "slower")]
    summary = tune_rows.summed_up(rows)["summary"]
    assert summary["wins_again"] == 2 and summary["wins_reproduced_ratio"] == 0.5
    assert summary["slower_when_applied"] == 1
    assert summary["wins_not_reproduced"] == {"slower": 1}


def test_wins_that_are_wins_no_more_are_not_counted_again() -> None:
    applied = {"kind": "applied", "step": "applied", "source": "liger", "kernel": "a", "ptx": "a", "winner": "O1"}
    rows = [kernel("a", 0.1), kernel("b", None), again("a", "faster"), again("b", "slower")]
    rows += [applied | {"state": "applied"}, applied | {"kernel": "b", "state": "stale"}]
    summary = tune_rows.summed_up(rows)["summary"]
    assert (summary["wins_again"], summary["applied"]) == (1, {"applied": 1})
