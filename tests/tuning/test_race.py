"""The race, and the certificate of its winner: on made-up times whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from tuned import code, kernel_with

from tritonhook.device.sm_clock import Conditions
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock, TimingVerdict
from tritonhook.tuning.race import MOST_BLOCKS, Race, against_fastest, assembled, certify, holm, p_value, upper_tail

PROCESS, BLOCK = 0.0008, 0.0008  # log standard deviations: of a side in a process, and of a block


class Kernel:
    """Times of a kernel's sides: true ratios to the compiler's own code, with the noise of processes and blocks."""

    def __init__(self, seed: object, ratios: Mapping[str, float]) -> None:
        self.random, self.ratios = random.Random(str(seed)), {REFERENCE: 1.0, **ratios}

    def blocks(
        self, processes: int, blocks: int, sides: tuple[str, ...] | None = None, spread: float = PROCESS
    ) -> list[SampleBlock]:
        wanted = (REFERENCE, *(sides or self.ratios))
        found = []
        for process in range(processes):
            places = {side: self.random.gauss(0, spread) for side in wanted}
            for _ in range(blocks):
                times = {
                    side: (100 * self.ratios[side] * math.exp(places[side] + self.random.gauss(0, BLOCK)),)
                    for side in dict.fromkeys(wanted)
                }
                found.append(SampleBlock(process, times))
        return found


def race(kernel: Kernel, candidates: tuple[str, ...]) -> Race:
    raced, process = Race.of(candidates), 0
    while not raced.is_over:
        process += 1
        raced = raced.after(kernel.blocks(1, 1, raced.left)[0])
    return raced


def confirmation(seed: object, ratio: float, processes: int = 7, spread: float = PROCESS) -> Comparison:
    kernel = Kernel(("confirm", seed), {CANDIDATE: ratio, CONTROL: 1.0})
    return Comparison(tuple(kernel.blocks(processes, 4, spread=spread)))


# --- the race ------------------------------------------------------------------------------------


def test_the_best_wins_and_the_hopeless_are_dropped_early() -> None:
    ratios = {"slow": 1.1, "slower": 1.3, "same": 1.0, "good": 0.97, "best": 0.92}
    raced = race(Kernel(1, ratios), tuple(ratios))
    assert raced.leader == "best" and {"slow", "slower"} <= set(raced.dropped)
    assert all(raced.dropped[name] <= 5 for name in ("slow", "slower")), raced.dropped
    assert raced.blocks < MOST_BLOCKS


def test_a_kernel_whose_candidates_are_all_slower_ends_soon_without_a_leader() -> None:
    ratios = {f"c{n}": 1.02 + n / 100 for n in range(8)}
    raced = race(Kernel(2, ratios), tuple(ratios))
    assert (raced.leader, raced.left) == (None, ())
    assert max(raced.dropped.values()) <= 6


def test_a_gain_below_the_band_is_not_worth_having() -> None:
    found = [race(Kernel(("small", seed), {"c": 0.999}), ("c",)).leader for seed in range(100)]
    assert found.count("c") <= 5


def test_a_disturbed_block_changes_nothing() -> None:
    (block,) = Kernel(3, {"c": 2.0}).blocks(1, 1)
    disturbed = SampleBlock(0, block.times_us, Conditions(slowed=("heat",)))
    assert disturbed.conditions.unfit is not None
    raced = Race.of(("c",))
    assert raced.after(disturbed) is raced and raced.after(block).blocks == 1


def test_one_block_drops_nobody() -> None:
    (block,) = Kernel(4, {"c": 3.0}).blocks(1, 1)
    assert Race.of(("c",)).after(block).left == ("c",)


# --- certificates --------------------------------------------------------------------------------


def test_copies_are_never_certified_however_many_kernels_are_tuned() -> None:
    """200 kernels, each with eight candidates that are copies of its own code: races choose the luckiest, and fresh
    data judge it."""
    copies = {f"c{n}": 1.0 for n in range(8)}
    leaders = [race(Kernel(("null", seed), copies), tuple(copies)).leader for seed in range(200)]
    chosen = [confirmation(seed, 1.0) for seed in range(200)]  # confirm all, also those without a leader
    assert sum(leader is not None for leader in leaders) < 20
    assert not any(found.wins for found in certify(chosen))


def test_a_true_gain_is_certified_with_its_interval() -> None:
    found = certify([confirmation(seed, 0.96) for seed in range(30)])
    assert sum(one.wins for one in found) >= 29
    covered = [one.interval_percent[0] <= 4.0 <= one.interval_percent[1] for one in found]
    assert sum(covered) >= 27 and all(3.0 < one.gain_percent < 5.0 for one in found)


def test_more_kernels_ask_for_more_evidence() -> None:
    comparisons = [Comparison(tuple(b for b in confirmation(n, 0.985).blocks)) for n in range(40)]
    one_of = next(c for c in comparisons if c.verdict is TimingVerdict.FASTER and 1e-5 < p_value(c) < 0.05)
    (alone,) = certify([one_of])
    (among,) = certify([one_of], planned=100_000)
    assert alone.wins and not among.wins
    assert among.reason.startswith("with 100,000 kernels tried, chance alone could give it")


def test_what_ab_does_not_call_faster_is_no_win() -> None:
    noisy = confirmation(5, 0.95)
    control = [
        SampleBlock(b.process, {**b.times_us, CONTROL: tuple(0.9 * t for t in b.times_us[CONTROL])})
        for b in noisy.blocks
    ]
    slower, untold, few = (
        confirmation(6, 1.05),
        Comparison(tuple(control)),
        confirmation(7, 0.9, processes=3, spread=0.0),
    )
    found = certify([slower, untold, few, Comparison(())])
    assert [one.wins for one in found] == [False] * 4
    assert [one.p for one in found] == [1.0] * 4
    assert "control" in found[1].reason and "3 processes are too few" in found[2].reason
    assert found[3].effect is found[3].gain_percent is found[3].interval_percent is None


def test_holm_stops_at_the_first_that_fails() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4, 0.05) == [True, False, False, True]
    assert holm([0.01, 0.02, 0.03], 3, 0.05) == [True, True, True]
    assert holm([0.012], 5, 0.05) == [False] and holm([], 0, 0.05) == []


@pytest.mark.parametrize(
    ("t", "degrees", "chance"),
    [
        (12.706, 1, 0.025),
        (4.303, 2, 0.025),
        (2.776, 4, 0.025),
        (2.571, 5, 0.025),
        (2.042, 30, 0.025),
        (4.604, 4, 0.005),
    ],
)
def test_students_t(t: float, degrees: int, chance: float) -> None:
    assert upper_tail(t, degrees) == pytest.approx(chance, rel=2e-3)
    assert upper_tail(-t, degrees) == pytest.approx(1 - chance, rel=1e-4)
    assert upper_tail(math.inf, degrees) == pytest.approx(0, abs=1e-12)


def test_the_fastest_rival_takes_the_references_place_with_its_times_clock_and_order() -> None:
    us = {REFERENCE: 10.0, CANDIDATE: 8.0, CONTROL: 10.0, "slow": 11.0, "fast": 9.0}
    clocks = {side: 100 * time for side, time in us.items()}
    times, order = {side: (time,) for side, time in us.items()}, (CONTROL, *us)
    blocks = tuple(SampleBlock(n // 4, times, Conditions(), clocks, order) for n in range(28))
    told = against_fastest(Comparison(blocks), ["slow", "fast"])
    assert told.control_of == "fast" and told.effect().ratio == pytest.approx(8 / 9)
    swapped = {**us, REFERENCE: 9.0, "fast": 10.0}
    assert told.blocks[0].times_us == {side: (time,) for side, time in swapped.items()}
    assert told.blocks[0].clock_mhz == {side: 100 * time for side, time in swapped.items()}
    assert told.blocks[0].order == (CONTROL, "fast", CANDIDATE, CONTROL, "slow", REFERENCE)
    own = Comparison(blocks)
    assert against_fastest(own, ["slow"]) is own and against_fastest(own, []) is own


def test_what_is_only_assembled_has_no_verdict_of_a_gpu() -> None:
    run = assembled([kernel_with(code("name"))])
    assert (run.device, run.rows[0].tried.is_judged, run.wins) == ("", False, ())
