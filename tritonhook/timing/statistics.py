"""Statistics of two kernels' times: from blocks of samples to a ratio with an interval, and a verdict.

timer.py takes the samples; coordinator.py decides how many are needed.

A block's effect is log(median candidate time / median reference time). Blocks of one process share the addresses of
code and buffers, and the clocks. So a process counts as one value, the median of its blocks, and the interval is
Student's over the processes. For "faster" and "slower" the whole interval must be outside a band around 1, so that a
negligible difference does not count. Alternating the sides and pairing them within a block removes drift; in sequential
order (AAABBB) a drift of 1% makes equal kernels differ in most runs.

Carry-over: samples after the candidate are compared with samples after the reference, to show what a side leaves behind
(caches, clocks). If the verdict depends on that, it is "inconclusive". benchmarks/timing/ab_simulation.py counts how
often these rules are right.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import ClassVar

from tritonhook._display import Brief
from tritonhook.device.sm_clock import Conditions

REFERENCE, CANDIDATE, CONTROL = "reference", "candidate", "control"
DEFAULT_BAND = 0.005  # a smaller relative difference counts as none; the same value as nvbench's clear gap
MIN_BLOCKS = 10
MIN_PROCESSES = 5
_LONGEST_US = 1e12
# Student's t for two-sided 97.5%, by degrees of freedom from 1 on. 2.241 is the value of the normal distribution. The
# interval is computed after each turn of blocks until it is narrow. This selects intervals that are narrow by chance:
# with 97.5% for each interval, the final interval has 95% (benchmarks/results/ab_simulation.json).
_STUDENT = (25.45, 6.205, 4.177, 3.495, 3.163, 2.969, 2.841, 2.752, 2.685, 2.634)
_NORMAL = 2.241


class TimingVerdict(Enum):
    """Result of the comparison: the candidate's speed relative to the reference."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, repr=False)
class SampleBlock(Brief):
    """Samples of all sides, taken alternately in random order: one per side and round.

    times_us: by side, microseconds per launch. conditions: state of the GPU. clock_mhz: by side, average SM clock
    during its samples, from the GPU's own counters. order: the side of each sample, in order; the first entry is the
    side that ran before the first sample. Empty if the order was not recorded.
    """

    process: int
    times_us: Mapping[str, tuple[float, ...]]
    conditions: Conditions = field(default_factory=Conditions)
    clock_mhz: Mapping[str, float | None] = field(default_factory=dict)
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(times) for times in self.times_us.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"a block needs equally many samples of each side, not {sorted(lengths)}")
        if any(not 0 < t <= _LONGEST_US for times in self.times_us.values() for t in times):
            raise ValueError("a block's times must be positive and finite")
        if self.order and Counter(self.order[1:]) != {side: len(times) for side, times in self.times_us.items()}:
            raise ValueError("a block's order does not fit its samples")

    def median_us(self, side: str) -> float:
        return statistics.median(self.times_us[side])

    def log_ratio(self, candidate: str, reference: str) -> float:
        return math.log(self.median_us(candidate) / self.median_us(reference))

    def log_carry_over(self, candidate: str, reference: str) -> float | None:
        """Compute the log ratio of times after the candidate to times after the reference: the mean of this log ratio
        for samples of both sides. None if the order is not known, or if a side has no sample after one of them."""
        after: dict[tuple[str, str], list[float]] = {}
        taken = {side: iter(times) for side, times in self.times_us.items()}
        for before, side in pairwise(self.order):
            after.setdefault((side, before), []).append(next(taken[side]))
        pairs = [((side, candidate), (side, reference)) for side in (candidate, reference)]
        if any(key not in after for pair in pairs for key in pair):
            return None
        middle = {key: statistics.median(times) for key, times in after.items()}
        return statistics.mean(math.log(middle[ours] / middle[theirs]) for ours, theirs in pairs)

    def log_cycles_ratio(self, candidate: str, reference: str) -> float | None:
        """Compute the log ratio of cycles (time times clock); None if a clock is not known."""
        ours, theirs = self.clock_mhz.get(candidate) or 0, self.clock_mhz.get(reference) or 0
        return None if min(ours, theirs) <= 0 else self.log_ratio(candidate, reference) + math.log(ours / theirs)


@dataclass(frozen=True, slots=True)
class Effect:
    """A ratio of times, candidate over reference, with its 95% interval."""

    ratio: float
    low: float
    high: float
    blocks: int
    processes: int

    @property
    def half_width(self) -> float:
        """Half the width of the interval, relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio

    @property
    def excludes_same(self) -> bool:
        """Whether the interval does not contain 1."""
        return self.low > 1 or self.high < 1

    def times(self, factor: float) -> Effect:
        """Multiply ratio and interval by a factor."""
        return replace(self, ratio=self.ratio * factor, low=self.low * factor, high=self.high * factor)

    def verdict(self, band: float = DEFAULT_BAND) -> TimingVerdict:
        if self.blocks < MIN_BLOCKS:
            return TimingVerdict.INCONCLUSIVE
        if self.high < 1 - band:
            return TimingVerdict.FASTER
        if self.low > 1 + band:
            return TimingVerdict.SLOWER
        if self.low >= 1 - band and self.high <= 1 + band:
            return TimingVerdict.SAME
        return TimingVerdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Brief):
    """All times of one comparison.

    band: half the width of the range of ratios that counts as equal. control_of: the side that has the same code as the
    control, under another name; None if there is no such side.
    """

    _shown: ClassVar[tuple[str, ...]] = ("verdict", "band", "control_of", "blocks")

    blocks: tuple[SampleBlock, ...]
    band: float = DEFAULT_BAND
    control_of: str | None = REFERENCE

    @property
    def sides(self) -> tuple[str, ...]:
        """Names of the sides: reference, candidate, control if there is one, then the baselines."""
        return tuple(self.blocks[0].times_us) if self.blocks else ()

    @property
    def usable(self) -> tuple[SampleBlock, ...]:
        return tuple(block for block in self.blocks if block.conditions.unfit is None)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The reason for each discarded block."""
        return tuple(reason for block in self.blocks if (reason := block.conditions.unfit) is not None)

    @property
    def processes(self) -> int:
        return len({block.process for block in self.usable})

    def effect(self, candidate: str = CANDIDATE, reference: str = REFERENCE) -> Effect | None:
        """Compute the ratio of times; None without a usable block."""
        return effect(self.usable, candidate, reference)

    def cycles(self) -> Effect | None:
        """Compute the ratio of candidate to reference in SM cycles; None if a usable block has no clock."""
        return effect_of([(block.process, block.log_cycles_ratio(CANDIDATE, REFERENCE)) for block in self.usable])

    def carry_over(self) -> Effect | None:
        """Compute the ratio of sample times after the candidate to those after the reference; None if the order is not
        known."""
        return effect_of([(block.process, block.log_carry_over(CANDIDATE, REFERENCE)) for block in self.usable])

    @property
    def control(self) -> Effect | None:
        """Ratio of the control to the side with the same code. Effects smaller than this cannot be distinguished from
        noise."""
        return self.effect(CONTROL, self.control_of) if self.control_of and CONTROL in self.sides else None

    @property
    def verdict(self) -> TimingVerdict:
        return self._judge()[0]

    @property
    def reason(self) -> str:
        """One sentence with the reason for the verdict."""
        return self._judge()[1]

    def _judge(self) -> tuple[TimingVerdict, str]:
        changed, control = self.effect(), self.control
        if changed is None:
            return TimingVerdict.INCONCLUSIVE, "no block could be used"
        if changed.blocks < MIN_BLOCKS:
            return TimingVerdict.INCONCLUSIVE, f"{changed.blocks} blocks are too few ({MIN_BLOCKS} needed)"
        if control is not None and control.verdict(self.band) is not TimingVerdict.SAME:
            return TimingVerdict.INCONCLUSIVE, (
                f"the control has the {self.control_of}'s code but not the same time ({percent(control.low)} to "
                f"{percent(control.high)}): the machine is too noisy for a band of {self.band:.1%}"
            )
        verdict = changed.verdict(self.band)
        span = f"{percent(changed.low)} to {percent(changed.high)}"
        if verdict is TimingVerdict.INCONCLUSIVE:
            return verdict, f"the interval ({span}) lies only partly in the band of {self.band:.1%}; take more blocks"
        cycles = self.cycles()
        if verdict is not TimingVerdict.SAME and cycles is not None and not _holds(verdict, cycles, self.band):
            return TimingVerdict.INCONCLUSIVE, (
                f"{verdict.value} in time ({span}) but not in cycles ({percent(cycles.low)} to "
                f"{percent(cycles.high)}): the clock was not the same for both"
            )
        left = self.carry_over()
        if left is not None and left.excludes_same and changed.times(left.ratio).verdict(self.band) is not verdict:
            return TimingVerdict.INCONCLUSIVE, (
                f"{verdict.value} if both run in turn ({span}), but samples after the candidate differ by "
                f"{percent(left.ratio)} ({percent(left.low)} to {percent(left.high)}) from those after the reference: "
                "with the candidate alone, the verdict may differ"
            )
        single = "" if changed.processes >= MIN_PROCESSES else f"; {changed.processes} process(es) only"
        if verdict is TimingVerdict.SAME:
            return verdict, f"the interval ({span}) lies within the band of {self.band:.1%}{single}"
        return verdict, f"the interval ({span}) lies outside the band of {self.band:.1%}{single}"


def effect(blocks: Sequence[SampleBlock], candidate: str, reference: str) -> Effect | None:
    """Compute the ratio of two sides over blocks, with its interval; None without blocks."""
    return effect_of([(block.process, block.log_ratio(candidate, reference)) for block in blocks])


def effect_of(log_ratios: Sequence[tuple[int, float | None]]) -> Effect | None:
    """Compute the effect over blocks. log_ratios: (process, log ratio) of each block. None without blocks, or if a log
    ratio is None."""
    by_process: dict[int, list[float]] = {}
    for process, value in log_ratios:
        if value is None:
            return None
        by_process.setdefault(process, []).append(value)
    if not by_process:
        return None
    # With a single process, each block counts as a value, since the differences between processes are not known.
    groups = list(by_process.values())
    middle, half = student([statistics.median(group) for group in groups] if len(groups) > 1 else groups[0])
    ratio, low, high = (math.exp(value) for value in (middle, middle - half, middle + half))
    return Effect(ratio, low, high, len(log_ratios), len(groups))


def _holds(verdict: TimingVerdict, cycles: Effect, band: float) -> bool:
    """Return True if cycles confirm the verdict of the times: the ratio is outside the band, and the interval excludes
    1. The whole interval need not be outside the band, as the clock adds its own noise."""
    if verdict is TimingVerdict.FASTER:
        return cycles.ratio < 1 - band and cycles.high < 1
    return cycles.ratio > 1 + band and cycles.low > 1


def student(values: Sequence[float]) -> tuple[float, float]:
    """Compute the mean of a few values, and half the width of its interval by Student's t."""
    degrees = len(values) - 1
    if degrees == 0:
        return values[0], math.inf
    quantile = _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else _NORMAL + (_STUDENT[-1] - _NORMAL) * 10 / degrees
    return statistics.mean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))


def percent(ratio: float) -> str:
    """Format a ratio of times as a signed difference: 1.012 is "+1.20%"."""
    return f"{(ratio - 1) * 100:+.2f}%"
