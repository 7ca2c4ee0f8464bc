"""Choose a kernel's fastest candidate by a race, certify its gain, and give a verdict on each kernel of a run.

The race is a successive elimination: each block of samples times all remaining candidates and the compiler's own code,
and afterwards hopeless candidates are dropped. The race only chooses a candidate. Its gain is certified with new
samples, since the winner of many candidates owes part of its time to chance. Values only: nothing runs here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tritonhook.capture.selection import Kernel
from tritonhook.timing.statistics import (
    CANDIDATE,
    DEFAULT_BAND,
    MIN_PROCESSES,
    REFERENCE,
    Comparison,
    Effect,
    SampleBlock,
    TimingVerdict,
    student,
)
from tritonhook.tuning.candidates import Candidate, Choice, Dropped

MOST_BLOCKS = 12  # blocks of samples in a race; after them the leader wins


@dataclass(frozen=True, slots=True)
class Race:
    """A race after some blocks.

    log_ratios: for each remaining candidate, by block: log(its median time / median time of the compiler's own code).
    dropped: for each other candidate, the number of blocks after which it was dropped. band: smallest gain that counts,
    as a share of the time. plain: candidates without a lever, of other configurations: a lever must be faster than the
    best of these too, and they cannot win.
    """

    log_ratios: Mapping[str, tuple[float, ...]]
    dropped: Mapping[str, int]
    band: float = DEFAULT_BAND
    plain: frozenset[str] = frozenset()

    @classmethod
    def of(cls, candidates: tuple[str, ...], band: float = DEFAULT_BAND, plain: Collection[str] = ()) -> Race:
        return cls(dict.fromkeys((*candidates, *plain), ()), {}, band, frozenset(plain))

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self.log_ratios)

    @property
    def blocks(self) -> int:
        return max(map(len, self.log_ratios.values()), default=0)

    def after(self, block: SampleBlock) -> Race:
        """Return the race after one more block, which has samples of each remaining candidate. A block during which the
        GPU was disturbed changes nothing."""
        if block.conditions.unfit is not None:
            return self
        taken = {name: (*values, block.log_ratio(name, REFERENCE)) for name, values in self.log_ratios.items()}
        raced = replace(self, log_ratios=taken)
        hopeless = raced._hopeless()
        return replace(
            raced,
            log_ratios={name: values for name, values in taken.items() if name not in hopeless},
            dropped={**self.dropped, **dict.fromkeys(sorted(hopeless), raced.blocks)},
        )

    @property
    def rivals(self) -> tuple[str, ...]:
        """Remaining candidates without a lever, the fastest first."""
        times = {name: statistics.mean(values) for name, values in self.log_ratios.items() if values}
        return tuple(sorted(self.plain & times.keys(), key=lambda name: times[name]))

    @property
    def worth(self) -> float:
        """The highest log ratio that counts as a gain: the best code without a lever, minus the band."""
        best = min([0.0, *(statistics.mean(self.log_ratios[name]) for name in self.rivals[:1])])
        return best + math.log(1 - self.band)

    def _hopeless(self) -> set[str]:
        """Find candidates whose whole confidence interval is slower than the smallest gain that counts, or than the
        leader's whole interval."""
        spans = {name: student(values) for name, values in self.log_ratios.items() if values}
        hopeless = set()
        for names, most in ((spans.keys() - self.plain, self.worth), (spans.keys() & self.plain, 0.0)):
            leader, half = min((spans[name] for name in names), default=(0.0, math.inf))
            hopeless |= {name for name in names if spans[name][0] - spans[name][1] > min(most, leader + half)}
        return hopeless

    @property
    def leader(self) -> str | None:
        """The fastest candidate with a lever so far, if its gain counts; else None."""
        name = self.first
        return name if name is not None and statistics.mean(self.log_ratios[name]) < self.worth else None

    @property
    def first(self) -> str | None:
        """The fastest candidate with a lever so far, whatever its gain; None if none remains."""
        times = {name: statistics.mean(self.log_ratios[name]) for name in self._levered if self.log_ratios[name]}
        return min(times, key=lambda name: times[name], default=None)

    @property
    def _levered(self) -> tuple[str, ...]:
        return tuple(name for name in self.log_ratios if name not in self.plain)

    @property
    def is_over(self) -> bool:
        """Whether the race has its result: MOST_BLOCKS blocks were taken, or no candidate with a lever remains, or only
        one remains and its whole confidence interval is a gain that counts."""
        left = self._levered
        if not left or self.blocks >= MOST_BLOCKS:
            return True
        if len(left) > 1 or not self.blocks:
            return False
        middle, half = student(self.log_ratios[left[0]])
        return middle + half < self.worth


# --- which winners of races are certified ---------------------------------------------------------


CONFIRM_PROCESSES, CONFIRM_BLOCKS = 7, 4  # number of fresh processes, and of blocks in each
FUTILE_AFTER = 3  # number of processes after which a confirmation without a gain is given up
LEVEL = 0.05  # chance that a run certifies a gain although no kernel gains anything


@dataclass(frozen=True, slots=True)
class Certificate:
    """The verdict on the winner of one race. effect: the winner's time divided by the time of the reference code; None
    if nothing was timed. p: as in p_value. reason: why it is no win; "" for a win."""

    effect: Effect | None
    p: float
    wins: bool
    reason: str = ""

    @property
    def gain_percent(self) -> float | None:
        """Reduction of the kernel's time, in percent."""
        return None if self.effect is None else 100 * (1 - self.effect.ratio)

    @property
    def interval_percent(self) -> tuple[float, float] | None:
        return None if self.effect is None else (100 * (1 - self.effect.high), 100 * (1 - self.effect.low))


def certify(comparisons: Sequence[Comparison], planned: int = 0) -> tuple[Certificate, ...]:
    """Judge the confirmations of a run: one for each kernel whose race has a winner, in order.

    A winner is certified if it passes all checks of `tritonhook ab` (the control, GPU cycles, effects of one code on
    the next), is faster by more than the band, and its p value passes Holm's test over all confirmations. The numbers
    of processes and blocks must be fixed before the run: stopping when a result looks good makes p wrong. planned:
    number of confirmations in the whole run, if it is not over. Confirmations still to come count as failed, so that a
    certified win stays certified."""
    tests = [p_value(comparison) for comparison in comparisons]
    passed = holm(tests, max(planned, len(tests)), LEVEL)
    certificates = []
    for comparison, p, holds in zip(comparisons, tests, passed, strict=True):
        reason = ""
        if comparison.verdict is not TimingVerdict.FASTER:
            reason = comparison.reason
        elif comparison.processes < MIN_PROCESSES:
            reason = f"{comparison.processes} processes are too few ({MIN_PROCESSES} needed)"
        elif not holds:
            reason = f"with {max(planned, len(tests)):,} kernels tried, chance alone could give this gain (p = {p:.2g})"
        certificates.append(Certificate(comparison.effect(), p, not reason, reason))
    return tuple(certificates)


def against_fastest(comparison: Comparison, rivals: Sequence[str]) -> Comparison:
    """Make the fastest of the reference and its rivals the reference of the comparison. rivals: names of codes without
    a lever, of other configurations. Choosing the fastest by the same samples can make the gain smaller, never
    larger."""
    ratios = {name: effect.ratio for name in rivals if (effect := comparison.effect(name)) is not None}
    fastest = min(ratios, key=lambda name: ratios[name], default=None)
    if fastest is None or ratios[fastest] >= 1:
        return comparison
    names = {REFERENCE: fastest, fastest: REFERENCE}
    blocks = tuple(
        replace(
            block,
            times_us={names.get(side, side): times for side, times in block.times_us.items()},
            clock_mhz={names.get(side, side): clock for side, clock in block.clock_mhz.items()},
            order=tuple(names.get(side, side) for side in block.order),
        )
        for block in comparison.blocks
    )
    return replace(comparison, blocks=blocks, control_of=fastest)


def is_futile(comparison: Comparison) -> bool:
    """Check whether a confirmation shows no gain that counts after FUTILE_AFTER processes, so that it is given up.
    Giving up can lose a win, never certify a wrong one."""
    effect = comparison.effect()
    started = len({block.process for block in comparison.blocks})
    return started == FUTILE_AFTER and (effect is None or effect.ratio > 1 - comparison.band)


def p_value(comparison: Comparison) -> float:
    """Compute the chance that a candidate whose true gain is only the band measures as fast as this one, or faster.
    Each process counts as one value, the median of its blocks. Returns 1 if the verdict of the comparison is not
    FASTER, or it has too few processes."""
    if comparison.verdict is not TimingVerdict.FASTER or comparison.processes < MIN_PROCESSES:
        return 1.0
    by_process: dict[int, list[float]] = {}
    for block in comparison.usable:
        by_process.setdefault(block.process, []).append(block.log_ratio(CANDIDATE, REFERENCE))
    values = [statistics.median(group) for group in by_process.values()]
    spread = statistics.stdev(values) / math.sqrt(len(values))
    distance = math.log(1 - comparison.band) - statistics.mean(values)
    return upper_tail(distance / spread if spread else math.inf, len(values) - 1)


def holm(p_values: Sequence[float], tests: int, level: float) -> list[bool]:
    """Return for each p value whether its test passes, such that the chance of any false pass is at most `level` (Holm
    1979). tests: total number of tests; those without a p value count as p = 1."""
    passed = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        if p_values[number] > level / (tests - rank):
            break
        passed[number] = True
    return passed


def upper_tail(t: float, degrees: int) -> float:
    """Compute the chance that a variable with Student's t distribution is above t. degrees: degrees of freedom.
    (Abramowitz and Stegun, 26.7.3 and 26.7.4: a finite sum.)"""
    angle = math.atan2(t, math.sqrt(degrees))
    cosine = math.cos(angle)
    term = total = 1.0 if degrees % 2 == 0 else cosine
    for k in range(degrees % 2 + 2, degrees, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    within = math.sin(angle) * total if degrees % 2 == 0 else 2 / math.pi * (angle + math.sin(angle) * total)
    if degrees == 1:
        within = 2 / math.pi * angle
    return max(0.0, (1 - within) / 2)


# --- the result -----------------------------------------------------------------------------------


class TuneVerdict(str, Enum):
    WIN = "WIN"
    LEAVE = "LEAVE IT"
    ASSEMBLED = "ASSEMBLED"  # nothing was raced


@dataclass(frozen=True, slots=True)
class TriedKernel:
    """Results of a kernel on the GPU, before all kernels of the run are judged together.

    reason: why no candidate was confirmed; "" if one was. winner: the candidate that won the race. comparison: its
    confirmation; the reference is the best code without a lever. base: the configuration of that reference; None for
    the configuration that the autotuner chose, and for a kernel without autotuning. failed: candidates that could not
    race, with the reason. is_judged: True if the race ended, or there was no candidate to race; False after an error.
    seconds: time on the GPU, without the start of processes.
    """

    kernel: Kernel
    choice: Choice
    reason: str
    is_judged: bool = True
    race: Race | None = None
    winner: Candidate | None = None
    comparison: Comparison | None = None
    failed: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """A kernel and its verdict. reason: why it is no win; "" for a win. certificate: that of its confirmed
    candidate."""

    tried: TriedKernel
    verdict: TuneVerdict
    reason: str
    certificate: Certificate | None


@dataclass(frozen=True, slots=True)
class TuneRun:
    """The result of a tuning of several kernels. stopped: why it ended early; "" if it did not. start_s: seconds that
    the start of the processes took."""

    rows: tuple[Tuned, ...]
    device: str
    stopped: str = ""
    start_s: float = 0.0

    @property
    def wins(self) -> tuple[Tuned, ...]:
        return tuple(row for row in self.rows if row.verdict is TuneVerdict.WIN)


def judged(tried: Sequence[TriedKernel], still: int) -> tuple[Tuned, ...]:
    """Judge kernels together. still: number of unfinished kernels that may still be confirmed."""
    confirmed = [kernel for kernel in tried if kernel.comparison is not None]
    comparisons = [kernel.comparison for kernel in confirmed if kernel.comparison is not None]
    certificates = certify(comparisons, len(confirmed) + still)
    by_kernel = {id(kernel): certificate for kernel, certificate in zip(confirmed, certificates, strict=True)}
    return tuple(_judged(kernel, by_kernel.get(id(kernel))) for kernel in tried)


def _judged(kernel: TriedKernel, certificate: Certificate | None) -> Tuned:
    if certificate is None:
        return Tuned(kernel, TuneVerdict.LEAVE, kernel.reason, None)
    if kernel.reason or not certificate.wins:
        return Tuned(kernel, TuneVerdict.LEAVE, kernel.reason or certificate.reason, certificate)
    return Tuned(kernel, TuneVerdict.WIN, "", certificate)


def not_raced(chosen: Sequence[tuple[Kernel, Choice]]) -> TuneRun:
    """Make the result of a run that only assembled candidates."""
    rows = (
        Tuned(TriedKernel(kernel, choice, "", is_judged=False, notes=kernel.notes), TuneVerdict.ASSEMBLED, "", None)
        for kernel, choice in chosen
    )
    return TuneRun(tuple(rows), "")
