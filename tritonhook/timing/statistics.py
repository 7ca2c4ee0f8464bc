"""Statistics of two kernels' times: blocks of samples in, a ratio with an interval and a verdict out.

timer.py takes the samples; coordinator.py decides when there are enough.

The effect is the median over blocks of log(median candidate time / median reference time). Its interval is a
bootstrap over processes and the blocks within them: blocks of one process share its addresses of code and buffers,
and its clocks. A verdict needs the whole interval on one side of a band around "same", so that a difference too small
to matter is not called one. Alternating samples and pairing within a block remove drift; in sequential order
(AAABBB) a drift of 1% makes equal kernels differ in most runs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tritonhook.device.conditions import Conditions

REFERENCE, CANDIDATE, CONTROL = "reference", "candidate", "control"
DEFAULT_BAND = 0.005  # as nvbench's clear gap
CONFIDENCE = 0.95
RESAMPLES = 2000
MIN_BLOCKS = 10
MIN_PROCESSES = 3


class TimingVerdict(Enum):
    """The candidate against the reference, by their times."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of all sides, taken in turns in random order: one per side and round, in microseconds per launch.

    clock_mhz: the average SM clock during each side's samples, from the GPU's own counters.
    """

    process: int
    times_us: Mapping[str, tuple[float, ...]]
    conditions: Conditions = field(default_factory=Conditions)
    clock_mhz: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(times) for times in self.times_us.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"a block needs equally many samples of each side, not {sorted(lengths)}")
        if any(not (math.isfinite(t) and t > 0) for times in self.times_us.values() for t in times):
            raise ValueError("a block's times must be positive and finite")

    def median_us(self, side: str) -> float:
        return statistics.median(self.times_us[side])

    def log_ratio(self, candidate: str, reference: str) -> float:
        return math.log(self.median_us(candidate) / self.median_us(reference))

    def log_clock_ratio(self, candidate: str, reference: str) -> float | None:
        """The log ratio of the two clocks; None where one is not known. Cycles are time times clock."""
        ours, theirs = self.clock_mhz.get(candidate), self.clock_mhz.get(reference)
        return None if not ours or not theirs else math.log(ours / theirs)


@dataclass(frozen=True, slots=True)
class Effect:
    """A ratio of times, candidate over reference, with its bootstrap interval."""

    ratio: float
    low: float
    high: float
    blocks: int
    processes: int

    @property
    def half_width(self) -> float:
        """Half the width of the interval, relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was timed in one comparison.

    band: half the width of what counts as the same.
    control_of: the side whose code the control has, under another name; None if there is no such control.
    """

    blocks: tuple[Block, ...]
    band: float = DEFAULT_BAND
    control_of: str | None = REFERENCE

    @property
    def sides(self) -> tuple[str, ...]:
        """Reference, candidate, control if there is one, then the baselines."""
        return tuple(self.blocks[0].times_us) if self.blocks else ()

    @property
    def usable(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.conditions.unfit is None)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Why blocks do not count, one reason per such block."""
        return tuple(reason for block in self.blocks if (reason := block.conditions.unfit) is not None)

    @property
    def processes(self) -> int:
        return len({block.process for block in self.usable})

    def effect(self, candidate: str = CANDIDATE, reference: str = REFERENCE) -> Effect | None:
        """None without a usable block."""
        return effect(self.usable, candidate, reference)

    def cycles(self, candidate: str = CANDIDATE, reference: str = REFERENCE) -> Effect | None:
        """The effect in SM cycles; None where a usable block has no clock."""
        return cycles_effect(self.usable, candidate, reference)

    @property
    def control(self) -> Effect | None:
        """The control against the side with the same code: smaller effects than this cannot be told apart."""
        return self.effect(CONTROL, self.control_of) if self.control_of and CONTROL in self.sides else None

    @property
    def verdict(self) -> TimingVerdict:
        return self._judge()[0]

    @property
    def reason(self) -> str:
        """Why this is the verdict, in one sentence."""
        return self._judge()[1]

    def _judge(self) -> tuple[TimingVerdict, str]:
        found, control = self.effect(), self.control
        if found is None:
            return TimingVerdict.INCONCLUSIVE, "no block could be used"
        if found.blocks < MIN_BLOCKS:
            return TimingVerdict.INCONCLUSIVE, f"{found.blocks} blocks are too few ({MIN_BLOCKS} needed)"
        if control is not None and control.verdict(self.band) is not TimingVerdict.SAME:
            return TimingVerdict.INCONCLUSIVE, (
                f"the control, which has the {self.control_of}'s code, is not the same ({percent(control.low)} to "
                f"{percent(control.high)}): the machine is too noisy for a band of {self.band:.1%}"
            )
        verdict = found.verdict(self.band)
        span = f"{percent(found.low)} to {percent(found.high)}"
        if verdict is TimingVerdict.INCONCLUSIVE:
            return verdict, f"the interval ({span}) reaches across the band of {self.band:.1%}; take more blocks"
        cycles = self.cycles()
        if verdict is not TimingVerdict.SAME and cycles is not None and not _holds(verdict, cycles, self.band):
            return TimingVerdict.INCONCLUSIVE, (
                f"{verdict.value} in time ({span}) but not in cycles ({percent(cycles.low)} to "
                f"{percent(cycles.high)}): the clock was not the same for both"
            )
        single = "" if found.processes >= MIN_PROCESSES else f"; {found.processes} process(es) only"
        if verdict is TimingVerdict.SAME:
            return verdict, f"the interval ({span}) lies within the band of {self.band:.1%}{single}"
        return verdict, f"the interval ({span}) lies outside the band of {self.band:.1%}{single}"


def effect(blocks: Sequence[Block], candidate: str, reference: str) -> Effect | None:
    """The paired effect over blocks with its interval; None without blocks. Deterministic: the seed is fixed."""
    return _effect([(block.process, block.log_ratio(candidate, reference)) for block in blocks])


def cycles_effect(blocks: Sequence[Block], candidate: str, reference: str) -> Effect | None:
    """As `effect`, in SM cycles; None if the clock of some block is not known."""
    clocks = [block.log_clock_ratio(candidate, reference) for block in blocks]
    found = [
        (block.process, block.log_ratio(candidate, reference) + clock)
        for block, clock in zip(blocks, clocks, strict=True)
        if clock is not None
    ]
    return _effect(found) if len(found) == len(blocks) else None


def _effect(log_ratios: Sequence[tuple[int, float]]) -> Effect | None:
    by_process: dict[int, list[float]] = {}
    for process, value in log_ratios:
        by_process.setdefault(process, []).append(value)
    if not by_process:
        return None
    groups = list(by_process.values())
    low, high = bootstrap(groups)
    middle = statistics.median(value for group in groups for value in group)
    low, high = math.exp(min(low, middle)), math.exp(max(high, middle))
    return Effect(math.exp(middle), low, high, len(log_ratios), len(groups))


def _holds(verdict: TimingVerdict, cycles: Effect, band: float) -> bool:
    """Whether cycles agree with times: the ratio lies beyond the band, and the interval excludes 1. The whole interval
    need not lie beyond the band, as the clock adds its own noise."""
    if verdict is TimingVerdict.FASTER:
        return cycles.ratio < 1 - band and cycles.high < 1
    return cycles.ratio > 1 + band and cycles.low > 1


def bootstrap(groups: Sequence[Sequence[float]], resamples: int = RESAMPLES) -> tuple[float, float]:
    """Percentile interval of the median: groups are drawn with replacement, then values within each."""
    draw = random.Random(0)
    medians = []
    for _ in range(resamples):
        chosen = draw.choices(groups, k=len(groups)) if len(groups) > 1 else groups
        medians.append(statistics.median(v for group in chosen for v in draw.choices(group, k=len(group))))
    medians.sort()
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * resamples)], medians[min(resamples - 1, math.ceil((1 - tail) * resamples) - 1)]


def percent(ratio: float) -> str:
    """A ratio of times as a signed difference: 1.012 is "+1.20%"."""
    return f"{(ratio - 1) * 100:+.2f}%"
