"""The race, and the certificate of its winner: on made-up times whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from tuned import code, kernel_with

from tritonhook.device.sm_clock import Conditions
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Comparison, SampleBlock, TimingVerdict
from tritonhook.tuning.race import (
    Certificate,
    Race,
    TriedKernel,
    Tuned,
    TuneVerdict,
    against_fastest,
    certify,
    holm,
    is_futile,
    judged,
    p_value,
    upper_tail,
)

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
    assert among.reason.startswith("with 100,000 kernels tried, chance alone could give this gain")


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


def exact(*us: float, rest: float | None = None) -> Comparison:
    """Processes without noise, of which each has these times of the candidate in microseconds, for 100 of the others;
    rest: in two blocks of each that are not its median."""
    return Comparison(
        tuple(
            SampleBlock(process, {REFERENCE: (100.0,), CANDIDATE: (time,), CONTROL: (100.0,)})
            for process, middle in enumerate(us)
            for time in (middle, middle, *(() if rest is None else (middle - 0.01, middle + rest)))
        )
    )


@pytest.mark.parametrize(
    ("us", "futile"),
    [((99.6, 99.6, 99.6), True), ((99.4, 99.4, 99.4), False), ((99.6, 99.6), False), ((99.6,) * 4, False), ((), False)],
)
def test_a_confirmation_without_a_gain_is_given_up_after_three_processes(us: tuple[float, ...], futile: bool) -> None:
    assert is_futile(exact(*us)) is futile


def test_a_confirmation_of_which_nothing_can_be_used_is_given_up() -> None:
    hot = Conditions(slowed=("hot",))
    blocks = [SampleBlock(block.process, block.times_us, hot) for block in exact(90.0, 90.0, 90.0).blocks]
    assert is_futile(Comparison(tuple(blocks))) and not is_futile(Comparison(tuple(blocks[:4])))


def test_the_chance_is_that_of_the_processes_medians_beyond_the_band() -> None:
    """Given medians whose mean lies t = 4.604 standard errors beyond the band; then the chance is 0.5%."""
    scale, band = 0.01, math.log(1 - 0.005)
    middle = band - 4.604 * scale / math.sqrt(5)
    logs = [middle + scale * step / math.sqrt(2.5) for step in (-2, -1, 0, 1, 2)]
    given = exact(*(100 * math.exp(value) for value in logs), rest=3.0)
    assert p_value(given) == pytest.approx(0.005, rel=2e-3)
    assert p_value(exact(*[90.0] * 5)) == 0.0, "no spread at all"
    assert p_value(exact(*[90.0] * 4, *[90.0])) == 0.0 and p_value(exact(*[90.0] * 4, rest=1.0)) == 1.0


def test_kernels_are_judged_together_in_their_order() -> None:
    win, slow, early = exact(*[90.0] * 5), exact(*[110.0] * 5), exact(*[90.0] * 5)
    chance = Certificate(win.effect(), 0.0, True)
    one = kernel_with(code("name"))
    tried = [
        TriedKernel(*one, "no lever gives it other code"),
        TriedKernel(*one, "", comparison=win),
        TriedKernel(*one, "", comparison=slow),
        TriedKernel(*one, "slower at another launch", comparison=early),
    ]
    lost = Certificate(slow.effect(), 1.0, False, slow.reason)
    assert judged(tried, 3) == (
        Tuned(tried[0], TuneVerdict.LEAVE, "no lever gives it other code", None),
        Tuned(tried[1], TuneVerdict.WIN, "", chance),
        Tuned(tried[2], TuneVerdict.LEAVE, slow.reason, lost),
        Tuned(tried[3], TuneVerdict.LEAVE, "slower at another launch", chance),
    )
    few = exact(*[90.0] * 4, rest=1.0)
    assert certify([few]) == (Certificate(few.effect(), 1.0, False, "4 processes are too few (5 needed)"),)
    assert chance.gain_percent == pytest.approx(10.0) and chance.interval_percent == pytest.approx((10.0, 10.0))


def raced(plain: tuple[str, ...] = (), **us: tuple[float, ...]) -> Race:
    """A race of these times in each block, for 100 of the compiler's own code."""
    found = Race.of(tuple(name for name in us if name not in plain), plain=plain)
    for number in range(max(map(len, us.values()))):
        times = {name: (us[name][number],) for name in found.left}
        found = found.after(SampleBlock(0, {REFERENCE: (100.0,), **times}))
    return found


BEST, CLOSE = (90.0, 90.0), (89.1, 91.0)


def test_a_race_drops_what_cannot_win_and_ends_with_one_that_must() -> None:
    found = raced(best=BEST, close=CLOSE, slow=(91.0, 91.0), same=(99.6, 99.6))
    left = {name: tuple(math.log(us / 100) for us in times) for name, times in (("best", BEST), ("close", CLOSE))}
    assert found == Race({name: pytest.approx(values) for name, values in left.items()}, {"same": 2, "slow": 2})
    assert (found.leader, found.first, found.blocks, found.is_over) == ("best", "best", 2, False)
    found = raced(a=(99.6, 99.6))
    assert (found.left, found.leader, found.first, found.blocks, found.is_over) == ((), None, None, 0, True)
    assert not raced(a=(90.0,)).is_over and raced(a=(90.0, 90.0)).is_over and not Race.of(("a",)).is_over
    assert raced(a=(90.0,) * 12, b=(90.0,) * 12).is_over and not raced(a=(90.0,) * 11, b=(90.0,) * 11).is_over


def test_configurations_race_against_the_fastest_of_them() -> None:
    found = raced(("p", "q", "r"), a=(94.0, 94.2), p=(95.0, 95.0), q=(94.9, 96.0), r=(101.0, 101.0))
    assert found.rivals == ("p", "q") and found.dropped == {"r": 2} and found.plain == {"p", "q", "r"}
    assert found.worth == pytest.approx(math.log(0.95) + math.log(0.995))
    assert (found.leader, found.first) == ("a", "a")
    found = raced(("p",), a=(94.8, 94.9), p=(95.0, 95.0))
    assert (found.leader, found.first, found.is_over) == (None, "a", False)
    assert raced(("p",), a=(94.8, 94.8), p=(95.0, 95.0)).dropped == {"a": 2}
    assert raced(("p",), a=(94.8, 94.8), p=(101.0, 101.5)).worth == pytest.approx(math.log(0.995))
