"""Statistics of a timed comparison: known effects are found, equal sides are not told apart, noise says so."""

import math
import random
from collections import Counter
from itertools import pairwise

import pytest

from tritonhook.timing.places import balanced_order
from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    REFERENCE,
    Comparison,
    Conditions,
    Effect,
    SampleBlock,
    TimingVerdict,
    effect,
    effect_of,
    percent,
    student,
)


def blocks(
    candidate: float = 1.0,
    control: float = 1.0,
    noise: float = 0.006,
    drift: float = 0.01,
    processes: int = 5,
    each: int = 6,
    rounds: int = 20,
    seed: int = 0,
    **conditions,
) -> tuple[SampleBlock, ...]:
    """Simulated blocks: noise per sample, a slow ramp over the whole run, outliers, 100 us per launch."""
    draw = random.Random(seed)
    scale = {REFERENCE: 1.0, CANDIDATE: candidate, CONTROL: control}
    made = []
    total = processes * each * rounds
    for number in range(processes * each):
        times: dict[str, list[float]] = {side: [] for side in scale}
        for turn in range(rounds):
            ramp = 1 + drift * (number * rounds + turn) / total
            for side, factor in scale.items():
                outlier = 1.3 if draw.random() < 0.02 else 1.0
                times[side].append(100 * factor * ramp * outlier * (1 + draw.gauss(0, noise)))
        made.append(
            SampleBlock(number % processes, {side: tuple(t) for side, t in times.items()}, Conditions(**conditions))
        )
    return tuple(made)


def test_equal_sides_are_hardly_ever_called_different_and_one_percent_is_seen() -> None:
    equal = [Comparison(blocks(seed=seed, each=5)).verdict for seed in range(60)]
    slower = [Comparison(blocks(1.01, seed=seed, each=5)).verdict for seed in range(60)]
    assert not {TimingVerdict.FASTER, TimingVerdict.SLOWER} & set(equal)
    assert sum(verdict is TimingVerdict.SLOWER for verdict in slower) >= 57


def test_a_control_that_differs_makes_the_run_inconclusive() -> None:
    comparison = Comparison(blocks(1.05, control=1.02))
    assert comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert "control" in comparison.reason


def test_no_block_is_no_verdict() -> None:
    empty = Comparison(())
    assert (empty.verdict, empty.effect(), empty.sides) == (TimingVerdict.INCONCLUSIVE, None, ())
    assert empty.reason == "no block could be used"


def test_blocks_of_a_slowed_gpu_are_dropped_and_named() -> None:
    good = blocks(1.0)
    bad = blocks(1.5, each=5, slowed=("hardware thermal",))
    slow = blocks(1.5, each=5, sm_clock_mhz=1000.0, sm_clock_max_mhz=1980.0)
    comparison = Comparison((*good, *bad, *slow))
    assert comparison.verdict is TimingVerdict.SAME
    assert len(comparison.dropped) == 50
    assert "hardware thermal" in comparison.dropped[0]
    assert "1000 of 1980" in comparison.dropped[-1]


def test_processes_that_disagree_widen_the_interval() -> None:
    """Given one process in which the candidate is 3% slower, then the interval covers that too."""
    agree = effect(blocks(1.0, drift=0), CANDIDATE, REFERENCE)
    groups = [blocks(factor, processes=1, each=10, seed=i) for i, factor in enumerate((1.0, 1.0, 1.03))]
    mixed = [SampleBlock(i, b.times_us) for i, group in enumerate(groups) for b in group]
    differ = effect(mixed, CANDIDATE, REFERENCE)
    assert differ.half_width > 3 * agree.half_width
    assert differ.high > 1.025


@pytest.mark.parametrize(("count", "quantile"), [(2, 25.45), (5, 3.495), (11, 2.634), (1001, 2.245)])
def test_the_half_width_is_students(count: int, quantile: float) -> None:
    values = [(-1.0) ** n for n in range(count)]
    middle, half = student(values)
    assert middle == pytest.approx(sum(values) / count)
    spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (count - 1))
    assert half == pytest.approx(quantile * spread / math.sqrt(count), rel=1e-3)


def test_a_process_counts_once_however_many_blocks_it_took() -> None:
    """Given one process with 10 blocks of +4% and two of one block each; then the mean is over three values."""
    times = [(0, 104.0)] * 10 + [(1, 101.0), (2, 101.0)]
    found = effect([SampleBlock(p, {REFERENCE: (100.0,), CANDIDATE: (us,)}) for p, us in times], CANDIDATE, REFERENCE)
    assert found.ratio == pytest.approx((1.04 * 1.01 * 1.01) ** (1 / 3))
    assert (found.blocks, found.processes) == (12, 3)
    assert found.low < 1 < found.high
    two = effect(
        [SampleBlock(p, {REFERENCE: (100.0,), CANDIDATE: (us,)}) for p, us in times[:11]], CANDIDATE, REFERENCE
    )
    assert (two.ratio, two.processes) == (pytest.approx((1.04 * 1.01) ** 0.5), 2)


def followed(carry_over: float | tuple[float, ...], candidate: float = 1.0, keep_order: bool = True) -> Comparison:
    """Blocks in balanced order whose samples after the candidate take longer by `carry_over`, given for all processes
    or for each of five."""
    draw, made = random.Random(1), []
    of_process = carry_over if isinstance(carry_over, tuple) else (carry_over,) * 5
    for number in range(30):
        left = of_process[number % 5]
        order = balanced_order((REFERENCE, CANDIDATE, CONTROL), 9, draw)
        times: dict[str, list[float]] = {REFERENCE: [], CANDIDATE: [], CONTROL: []}
        for before, side in pairwise(order):
            factor = (candidate if side == CANDIDATE else 1) * (1 + left if before == CANDIDATE else 1)
            times[side].append(100 * factor * (1 + draw.gauss(0, 0.001)))
        kept = tuple(order) if keep_order else ()
        made.append(SampleBlock(number % 5, {side: tuple(t) for side, t in times.items()}, order=kept))
    return Comparison(tuple(made))


def test_what_the_candidate_leaves_behind_is_seen_and_makes_equal_sides_inconclusive() -> None:
    comparison = followed(0.01)
    assert comparison.carry_over().ratio == pytest.approx(1.01, abs=0.001)
    assert comparison.effect().verdict() is TimingVerdict.SAME  # balanced: it is in all sides alike
    assert comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert "samples after the candidate differ by +0.98%" in comparison.reason


def test_what_is_left_behind_by_chance_changes_no_verdict() -> None:
    comparison = followed((0.03, -0.01, 0.02, -0.01, 0.0))
    assert comparison.carry_over().low < 1 < comparison.carry_over().high
    assert comparison.carry_over().ratio > 1.005
    assert comparison.verdict is TimingVerdict.SAME


def test_without_the_order_nothing_is_known_of_what_is_left_behind() -> None:
    assert followed(0.01, keep_order=False).carry_over() is None


@pytest.mark.parametrize("sides", [2, 3, 5])
def test_each_side_follows_each_side_equally_often(sides: int) -> None:
    names = [f"side{n}" for n in range(sides)]
    order = balanced_order(names, 4 * sides, random.Random(sides))
    pairs = Counter(pairwise(order))
    assert len(pairs) == sides**2
    assert set(pairs.values()) == {4}
    assert order != balanced_order(names, 4 * sides, random.Random(sides + 1))
    with pytest.raises(ValueError, match="cannot be balanced"):
        balanced_order(names, sides + 1, random.Random(0))


def test_an_order_that_does_not_fit_the_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="^a block's order does not fit its samples$"):
        SampleBlock(0, {REFERENCE: (1.0,), CANDIDATE: (1.0,)}, order=(REFERENCE, REFERENCE, REFERENCE))


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({REFERENCE: (1.0,), CANDIDATE: (1.0, 2.0)}, r"equally many samples of each side, not \[1, 2\]"),
        ({REFERENCE: (), CANDIDATE: ()}, r"equally many samples of each side, not \[0\]"),
        ({REFERENCE: (0.0,), CANDIDATE: (1.0,)}, "times must be positive and finite"),
        ({REFERENCE: (math.nan,), CANDIDATE: (1.0,)}, "times must be positive and finite"),
        ({REFERENCE: (math.inf,), CANDIDATE: (1.0,)}, "times must be positive and finite"),
    ],
)
def test_a_block_cannot_hold_what_is_no_measurement(times, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SampleBlock(0, times)


def clocked(candidate_us: float, candidate_mhz: float | None, count: int = 30) -> Comparison:
    blocks = tuple(
        SampleBlock(
            number % 3,
            {REFERENCE: (100.0,), CANDIDATE: (candidate_us,), CONTROL: (100.0,)},
            clock_mhz={REFERENCE: 2000.0, CANDIDATE: candidate_mhz, CONTROL: 2000.0},
        )
        for number in range(count)
    )
    return Comparison(blocks)


@pytest.mark.parametrize(
    ("us", "mhz", "verdict"),
    [
        (103.0, 2000.0, TimingVerdict.SLOWER),
        (103.0, 2000.0 / 1.03, TimingVerdict.INCONCLUSIVE),  # the same cycles at a lower clock
        (103.0, 1900.0, TimingVerdict.INCONCLUSIVE),  # fewer cycles even
        (97.0, 2000.0, TimingVerdict.FASTER),
        (97.0, 2000.0 / 0.97, TimingVerdict.INCONCLUSIVE),
        (103.0, None, TimingVerdict.SLOWER),  # the clock is not known: time alone decides
        (100.0, 1900.0, TimingVerdict.SAME),
    ],
)
def test_a_gap_must_hold_in_cycles_too(us: float, mhz: float | None, verdict: TimingVerdict) -> None:
    assert clocked(us, mhz).verdict is verdict


@pytest.mark.parametrize("us", [97.0, 103.0])
def test_cycles_that_are_not_sure_make_no_verdict(us: float) -> None:
    """Given clocks that differ by 5% between processes, so that the cycles' interval reaches across 1."""
    clocks = (2100.0, 1900.0, 2100.0, 1900.0, 2000.0)
    given = [
        SampleBlock(
            number % 5,
            {REFERENCE: (100.0,), CANDIDATE: (us,)},
            clock_mhz={REFERENCE: 2000.0, CANDIDATE: clocks[number % 5]},
        )
        for number in range(30)
    ]
    comparison = Comparison(tuple(given), control_of=None)
    assert (comparison.cycles().ratio - 1) * (us - 100) > 0  # type: ignore[union-attr]
    assert comparison.verdict is TimingVerdict.INCONCLUSIVE


def test_cycles_are_time_times_clock() -> None:
    assert clocked(103.0, 1000.0).cycles().ratio == pytest.approx(0.515)
    assert clocked(103.0, None).cycles() is None
    assert Comparison(()).cycles() is None


@pytest.mark.parametrize(
    ("low", "high", "blocks", "verdict"),
    [
        (0.1, 0.49, 10, TimingVerdict.FASTER),
        (0.1, 0.49, 9, TimingVerdict.INCONCLUSIVE),
        (0.1, 0.5, 10, TimingVerdict.INCONCLUSIVE),
        (0.5, 0.5, 10, TimingVerdict.SAME),
        (0.5, 1.5, 10, TimingVerdict.SAME),
        (0.5, 1.51, 10, TimingVerdict.INCONCLUSIVE),
        (0.49, 1.5, 10, TimingVerdict.INCONCLUSIVE),
        (1.5, 1.5, 10, TimingVerdict.SAME),
        (1.5, 1.6, 10, TimingVerdict.INCONCLUSIVE),
        (1.51, 1.6, 10, TimingVerdict.SLOWER),
    ],
)
def test_a_verdict_needs_the_interval_on_one_side_of_the_band(
    low: float, high: float, blocks: int, verdict: TimingVerdict
) -> None:
    assert Effect(1.0, low, high, blocks, 5).verdict(0.5) is verdict


def test_effects_of_known_logarithms() -> None:
    half = 25.45 * math.log(2) / math.sqrt(2) / math.sqrt(2)
    one, two = [(0, 0.0), (0, math.log(2))], [(0, 0.0), (1, 0.0), (1, math.log(2)), (1, 9.0)]
    for given, processes in ((one, 1), (two, 2)):
        found = effect_of(given)
        assert found is not None and (found.blocks, found.processes) == (len(given), processes)
        ratios = [math.sqrt(2) * math.exp(off) for off in (0, -half, half)]
        assert [found.ratio, found.low, found.high] == pytest.approx(ratios)
    assert effect_of([(0, 1.0), (1, None)]) is None and effect_of([]) is None
    assert [percent(ratio) for ratio in (1.012, 0.99, 1.0)] == ["+1.20%", "-1.00%", "+0.00%"]
