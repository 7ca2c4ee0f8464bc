"""Statistics of a timed comparison: known effects are found, equal sides are not told apart, noise says so."""

import math
import random

import pytest

from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    REFERENCE,
    Block,
    Comparison,
    Conditions,
    TimingVerdict,
    bootstrap,
    effect,
)


def blocks(
    candidate: float = 1.0,
    control: float = 1.0,
    noise: float = 0.006,
    drift: float = 0.01,
    processes: int = 3,
    each: int = 10,
    rounds: int = 20,
    seed: int = 0,
    **conditions,
) -> tuple[Block, ...]:
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
        made.append(Block(number % processes, {side: tuple(t) for side, t in times.items()}, Conditions(**conditions)))
    return tuple(made)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (0.98, TimingVerdict.FASTER),
        (1.0, TimingVerdict.SAME),
        (1.02, TimingVerdict.SLOWER),
        (0.8, TimingVerdict.FASTER),
    ],
)
def test_a_known_effect_is_found(factor: float, verdict: TimingVerdict) -> None:
    comparison = Comparison(blocks(factor))
    assert comparison.verdict is verdict
    found = comparison.effect()
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(factor, rel=0.003)


def test_equal_sides_are_hardly_ever_called_different_and_one_percent_is_seen() -> None:
    equal = [Comparison(blocks(seed=seed, each=7)).verdict for seed in range(60)]
    slower = [Comparison(blocks(1.01, seed=seed, each=7)).verdict for seed in range(60)]
    assert not {TimingVerdict.FASTER, TimingVerdict.SLOWER} & set(equal)
    assert sum(verdict is TimingVerdict.SLOWER for verdict in slower) >= 57


def test_a_control_that_differs_makes_the_run_inconclusive() -> None:
    comparison = Comparison(blocks(1.05, control=1.02))
    assert comparison.verdict is TimingVerdict.INCONCLUSIVE
    assert "control" in comparison.reason


def test_the_control_is_held_against_the_side_whose_code_it_has() -> None:
    given = blocks(0.9, control=0.9)
    assert Comparison(given, control_of=CANDIDATE).verdict is TimingVerdict.FASTER
    assert Comparison(given, control_of=REFERENCE).verdict is TimingVerdict.INCONCLUSIVE
    assert Comparison(given, control_of=None).control is None


def test_too_few_blocks_and_noise_are_inconclusive() -> None:
    assert Comparison(blocks(1.2, processes=1, each=9)).verdict is TimingVerdict.INCONCLUSIVE
    noisy = Comparison(blocks(1.004, noise=0.05, each=4, rounds=5))
    assert noisy.verdict is TimingVerdict.INCONCLUSIVE


def test_no_block_is_no_verdict() -> None:
    empty = Comparison(())
    assert (empty.verdict, empty.effect(), empty.sides) == (TimingVerdict.INCONCLUSIVE, None, ())


def test_blocks_of_a_slowed_gpu_are_dropped_and_named() -> None:
    good = blocks(1.0)
    bad = blocks(1.5, each=5, slowed=("hardware thermal",))
    slow = blocks(1.5, each=5, sm_clock_mhz=1000.0, sm_clock_max_mhz=1980.0)
    comparison = Comparison((*good, *bad, *slow))
    assert comparison.verdict is TimingVerdict.SAME
    assert len(comparison.dropped) == 30
    assert "hardware thermal" in comparison.dropped[0]
    assert "1000 of 1980" in comparison.dropped[-1]


def test_the_power_cap_alone_drops_nothing() -> None:
    assert Comparison(blocks(power_capped=True)).dropped == ()


def test_processes_that_disagree_widen_the_interval() -> None:
    """Given one process in which the candidate is 3% slower, then the interval covers that too."""
    agree = effect(blocks(1.0, drift=0), CANDIDATE, REFERENCE)
    groups = [blocks(factor, processes=1, each=10, seed=i) for i, factor in enumerate((1.0, 1.0, 1.03))]
    mixed = [Block(i, b.times_us) for i, group in enumerate(groups) for b in group]
    differ = effect(mixed, CANDIDATE, REFERENCE)
    assert differ.half_width > 3 * agree.half_width
    assert differ.high > 1.025


def test_the_same_blocks_give_the_same_interval() -> None:
    given = blocks(1.003)
    assert effect(given, CANDIDATE, REFERENCE) == effect(given, CANDIDATE, REFERENCE)


def test_the_bootstrap_covers_the_true_median() -> None:
    draw = random.Random(3)
    hits = 0
    for _ in range(100):
        groups = [[draw.gauss(0.01, 0.004) for _ in range(12)] for _ in range(3)]
        low, high = bootstrap(groups, 400)
        hits += low <= 0.01 <= high
    assert hits >= 88


@pytest.mark.parametrize(
    "times",
    [
        {REFERENCE: (1.0,), CANDIDATE: (1.0, 2.0)},
        {REFERENCE: (), CANDIDATE: ()},
        {REFERENCE: (0.0,), CANDIDATE: (1.0,)},
        {REFERENCE: (math.nan,), CANDIDATE: (1.0,)},
    ],
)
def test_a_block_cannot_hold_what_is_no_measurement(times) -> None:
    with pytest.raises(ValueError):
        Block(0, times)


def clocked(candidate_us: float, candidate_mhz: float | None, count: int = 30) -> Comparison:
    blocks = tuple(
        Block(
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


def test_cycles_are_time_times_clock() -> None:
    assert clocked(103.0, 1000.0).cycles().ratio == pytest.approx(0.515)
    assert clocked(103.0, None).cycles() is None
    assert Comparison(()).cycles() is None
