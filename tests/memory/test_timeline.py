"""What a timeline makes of its readings: the parts of the growth, in bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonhook.memory.prediction import DEFAULT_STACK
from tritonhook.memory.timeline import Mark, MemoryTimeline, Reading, Snapshot

TOTAL, THREADS = 1_000_000, 2
FIRST = Mark(1, "load", "k", Reading(free_bytes=700_000), Reading(free_bytes=690_000))


def parts(start: Snapshot, end: Snapshot, *marks: Mark, threads: int | None = THREADS) -> dict[str, int | None]:
    timeline = MemoryTimeline("GPU-1", "Fake", TOTAL, threads, 1, 9, start, end, (), marks)
    return {part.name: part.bytes for part in timeline.attribution().parts}


@pytest.mark.parametrize(
    ("used", "at_end", "wanted"),
    [
        ({"NVML": 250_000}, {"NVML": 320_000}, 50_000),  # 300,000 before the first load, 250,000 at the start
        ({"NVML": 310_000}, {"NVML": 320_000}, 0),
        # This source counts this process alone; cuMemGetInfo counts the others too.
        ({"NVML, this process": 10}, {"NVML, this process": 60_010, "cuMemGetInfo": 310_000}, 50_000),
    ],
)
def test_a_context_that_the_watch_saw_begin(used: dict[str, int], at_end: dict[str, int], wanted: int) -> None:
    found = parts(Snapshot(used, 0, None), Snapshot(at_end, 0, FIRST.after), FIRST)
    assert (found["context"], found["modules"]) == (wanted, 10_000)


def test_what_a_context_has_without_torch_and_its_pool() -> None:
    before = Reading(free_bytes=700_000, stack_limit_bytes=DEFAULT_STACK + 100, torch_reserved_bytes=20_000)
    start, mark = Snapshot({"NVML": 250_000}, 0, None), replace(FIRST, before=before)
    end = Snapshot({"NVML": 320_000}, 0, FIRST.after)
    assert parts(start, end, mark)["context"] == 30_000 - 100 * THREADS
    assert parts(start, end, mark, threads=None)["context"] == 30_000


@pytest.mark.parametrize("reading", [None, Reading()])
def test_a_context_is_not_guessed(reading: Reading | None) -> None:
    there = Snapshot({"NVML": 250_000}, 0, Reading(free_bytes=750_000))
    assert "context" not in parts(there, there, FIRST)
    unread = Snapshot({"NVML": 250_000}, 0, None)
    assert "context" not in parts(unread, replace(unread, reading=reading))
    assert "context" not in parts(Snapshot({}, 0, None), Snapshot({}, 0, FIRST.after), FIRST)
