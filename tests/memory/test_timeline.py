"""What a timeline makes of its readings: the parts of the growth, in bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonhook.memory.prediction import DEFAULT_STACK
from tritonhook.memory.timeline import Attribution, GrowthCause, Mark, MemorySample, MemoryTimeline, Reading, Snapshot

TOTAL, THREADS = 1_000_000, 2
FIRST = Mark(1, "load", "k", Reading(free_bytes=700_000), Reading(free_bytes=690_000))


AROUND = "cuMemGetInfo before and after"


def timeline(
    start: Snapshot, end: Snapshot, *marks: Mark, threads: int | None = THREADS, total: int | None = TOTAL
) -> MemoryTimeline:
    return MemoryTimeline("GPU-1", "Fake", total, threads, 1, 9, start, end, (), marks)


def parts(start: Snapshot, end: Snapshot, *marks: Mark, threads: int | None = THREADS) -> dict[str, int | None]:
    return {part.name: part.bytes for part in timeline(start, end, *marks, threads=threads).attribution().parts}


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
    without_total = timeline(Snapshot({"NVML": 1}, 0, None), Snapshot({"NVML": 2}, 0, FIRST.after), FIRST, total=None)
    assert without_total.attribution().part("context") is None


def test_a_context_whose_kernels_were_not_seen_is_all_that_is_left() -> None:
    """The readings at the end stand for those before the first mark."""
    end = Snapshot({"NVML, this process": 60_010}, None, Reading(free_bytes=600_000))
    start = Snapshot({"NVML, this process": 10}, None, None)
    unread = Mark(1, "load", "k")
    context = timeline(start, end, unread).attribution().part("context")
    assert context == GrowthCause("context", 400_000 + 60_010 - 10, "used at the end: no kernel's start was seen")
    seen = timeline(start, end, unread, FIRST).attribution().part("context")
    assert seen == GrowthCause("context", 300_000 + 60_010 - 10, "used before the first kernel was loaded")


def launch(kernel: str, *limits_and_free: tuple[int | None, int | None]) -> Mark:
    return Mark(1, "launch", kernel, *(Reading(limit, free) for limit, free in limits_and_free))


def test_growth_is_divided_with_its_sources() -> None:
    """What torch took is no growth of a launch; the deepest kernel is named; rises between launches are other's."""
    marks = (
        Mark(1, "load", "k", Reading(free_bytes=900), Reading(free_bytes=880, torch_reserved_bytes=5)),
        Mark(1, "load", "m", Reading(free_bytes=880, torch_reserved_bytes=1), Reading(None, 870, None, 5)),
        launch("deep", (1000, 870), (1500, 800)),
        launch("deeper", (1500, 800), (1600, 790)),
        launch("prints", (1600, 790), (1600, 750)),
        launch("again", (1600, 750), (1600, 749)),
        launch("prints", (1600, 749), (1600, 748)),
        launch("frees", (1600, 748), (1600, 760)),
        Mark(1, "launch", "unread", Reading(1600, 760), None, "why"),
    )
    start = Snapshot({"NVML": 100, "cuMemGetInfo": 5}, 30, Reading(900, 900, torch_reserved_bytes=7))
    end = Snapshot({"cuMemGetInfo": 6, "NVML": 40_000_000}, 50, Reading(1800, 760, torch_reserved_bytes=17))
    found = timeline(start, end, *marks).attribution()
    assert found == Attribution(
        39_999_900,
        "NVML",
        (
            GrowthCause("modules", 20 + 10 - 4, AROUND),
            GrowthCause("local-memory pool", 80, AROUND, "deeper, 1,600 bytes per thread"),
            GrowthCause(
                "local-memory pool, other kernels",
                300 * THREADS,
                "stack limit x threads",
                "the stack limit rose by 300 bytes per thread between watched launches",
            ),
            GrowthCause("buffers of first launches", 42, AROUND, "prints, again"),
            GrowthCause("torch reserved", 10, "torch.cuda.memory_reserved"),
            GrowthCause("other processes", 20, "NVML's process list at both ends"),
        ),
    )
    explained = 26 + 80 + 600 + 42 + 10 + 20
    assert found.unexplained_bytes == 39_999_900 - explained and not found.is_explained
    assert timeline(start, end, *marks).outside_allocators_bytes == 80 + 600 + 42 + found.unexplained_bytes
    assert "local-memory pool, other kernels" not in parts(start, end, *marks, threads=None)


@pytest.mark.parametrize(
    ("growth", "left", "is_explained"),
    [
        (0, 16 << 20, True),
        (0, (16 << 20) + 1, False),
        (1 << 30, int(0.03 * (1 << 30)), True),
        (1 << 30, 1 << 25, False),
    ],
)
def test_a_small_rest_is_explained(growth: int, left: int, is_explained: bool) -> None:
    found = Attribution(growth, "NVML", (GrowthCause("context", growth - left, ""), GrowthCause("modules", None, "")))
    assert (found.unexplained_bytes, found.is_explained) == (left, is_explained)
    assert Attribution(-growth, "", (GrowthCause("context", left - growth, ""),)).is_explained == is_explained


def test_without_a_source_of_both_ends_growth_is_not_known() -> None:
    start, end = Snapshot({"NVML": 1}, None, None), Snapshot({"cuMemGetInfo": 2}, 3, None)
    found = timeline(start, end)
    assert found.attribution() == Attribution(None, "", ()) and found.outside_allocators_bytes is None
    assert found.attribution().is_explained is None and found.peak is None
    own = {"NVML, this process": 5}
    assert parts(Snapshot(own, 1, None), Snapshot(own, 2, None)) == {}, "other processes are not in this source"


def test_a_rise_of_the_stack_limit_that_no_mark_has_began_at_the_default() -> None:
    start, end = Snapshot({"NVML": 1}, None, None), Snapshot({"NVML": 1}, None, Reading(DEFAULT_STACK + 7))
    name = "local-memory pool, other kernels"
    assert parts(start, end)[name] == 7 * THREADS
    assert parts(start, end, launch("k", (DEFAULT_STACK, 9), (DEFAULT_STACK + 4, 8)))[name] == 3 * THREADS
    assert name not in parts(start, replace(end, reading=Reading(DEFAULT_STACK - 1)))
    began = replace(start, reading=Reading(DEFAULT_STACK + 7))
    assert name not in parts(began, end)


def test_the_peak_and_what_a_mark_took() -> None:
    samples = tuple(MemorySample(number, used, "NVML") for number, used in enumerate((5, 9, 9, 2)))
    assert replace(timeline(Snapshot({}, 0, None), Snapshot({}, 0, None)), samples=samples).peak == samples[1]
    mark = launch("k", (1000, 90), (1500, 70))
    assert (mark.stack_growth_bytes, mark.growth_bytes) == (500, 20)
    for other in (launch("k"), launch("k", (None, None), (1, 1)), launch("k", (1, 1), (None, None))):
        assert (other.stack_growth_bytes, other.growth_bytes) == (None, None)
