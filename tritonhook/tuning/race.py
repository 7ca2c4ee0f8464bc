"""The race of a kernel's candidates: blocks of paired samples in, the one candidate worth confirming out. And
certificates; and the result of a tuning, for each kernel a verdict, and what it rests on.

Successive elimination: each block times all candidates that are left beside the compiler's own code, and after it those
that are hopeless are dropped. The race only chooses. A gain is certified with data that took no part in it, since the
winner of many is partly the luckiest. Values only: nothing runs here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tritonhook.capture.policy.levers import kept_controls
from tritonhook.capture.policy.model import Entry, Pin
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
from tritonhook.tuning.candidates import Candidate, Choice, Dropped, Subject

MOST_BLOCKS = 12  # per race; then the leader wins


@dataclass(frozen=True, slots=True)
class Race:
    """A race after some blocks.

    log_ratios: by candidate that is left, the log of its median time over that of the compiler's own code, in each
    block. dropped: by candidate that is not, the block after which it was dropped. band: the gain that is worth having.
    plain: the candidates that are other configurations without a lever: the others must be faster than the best of
    these too, and they win nothing.
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
        """Update the race by one block, which has a side for each remaining candidate. A block during which the GPU was
        disturbed changes nothing."""
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
        """The plain codes of other configurations that are left, the fastest first."""
        times = {name: statistics.mean(values) for name, values in self.log_ratios.items() if values}
        return tuple(sorted(self.plain & times.keys(), key=lambda name: times[name]))

    @property
    def worth(self) -> float:
        """The highest log ratio of a useful candidate: faster than the best plain code by the band."""
        best = min([0.0, *(statistics.mean(self.log_ratios[name]) for name in self.rivals[:1])])
        return best + math.log(1 - self.band)

    def _hopeless(self) -> set[str]:
        """Find candidates whose whole interval is slower than the smallest useful gain, or than the leader's
        interval."""
        spans = {name: student(values) for name, values in self.log_ratios.items() if values}
        hopeless = set()
        for names, most in ((spans.keys() - self.plain, self.worth), (spans.keys() & self.plain, 0.0)):
            leader, half = min((spans[name] for name in names), default=(0.0, math.inf))
            hopeless |= {name for name in names if spans[name][0] - spans[name][1] > min(most, leader + half)}
        return hopeless

    @property
    def leader(self) -> str | None:
        """The candidate with the least time so far, if its gain is worth having; None if there is none."""
        name = self.first
        return name if name is not None and statistics.mean(self.log_ratios[name]) < self.worth else None

    @property
    def first(self) -> str | None:
        """The candidate with the least time so far, whatever its gain; None where none is left."""
        times = {name: statistics.mean(self.log_ratios[name]) for name in self._levered if self.log_ratios[name]}
        return min(times, key=lambda name: times[name], default=None)

    @property
    def _levered(self) -> tuple[str, ...]:
        return tuple(name for name in self.log_ratios if name not in self.plain)

    @property
    def is_over(self) -> bool:
        """Whether no candidate is left, or one that is clearly better than the compiler's own code, or time is up."""
        left = self._levered
        if not left or self.blocks >= MOST_BLOCKS:
            return True
        if len(left) > 1 or not self.blocks:
            return False
        middle, half = student(self.log_ratios[left[0]])
        return middle + half < self.worth


# --- which winners of races are certified ---------------------------------------------------------


CONFIRM_PROCESSES, CONFIRM_BLOCKS = 7, 4  # fresh processes, and blocks of each
FUTILE_AFTER = 3  # processes, after which a confirmation without a gain is given up
LEVEL = 0.05  # how often a run in which no kernel gains anything may certify one


@dataclass(frozen=True, slots=True)
class Certificate:
    """The outcome for one winner. effect: its time divided by the time of the compiler's own code; None if nothing was
    timed. p: how often chance alone gives such a gain; 1 if the comparison does not hold. reason: why it is no win; ""
    for a win."""

    effect: Effect | None
    p: float
    wins: bool
    reason: str = ""

    @property
    def gain_percent(self) -> float | None:
        """How much less time the kernel takes, in percent."""
        return None if self.effect is None else 100 * (1 - self.effect.ratio)

    @property
    def interval_percent(self) -> tuple[float, float] | None:
        return None if self.effect is None else (100 * (1 - self.effect.high), 100 * (1 - self.effect.low))


def certify(comparisons: Sequence[Comparison], planned: int = 0) -> tuple[Certificate, ...]:
    """Judge the confirmations of a run, one for each kernel that has a winner, in their order.

    A winner is certified if it passes all checks of `ab` (control, cycles, what a side leaves behind), is faster by
    more than the band, and its p value passes Holm's test over all confirmations. Fix the numbers of processes and
    blocks before the run; do not stop when a result looks good. planned: number of confirmations in the whole
    run, if it is not over. Confirmations still to come count as losses, so that a certified win stays certified.
    """
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
            reason = f"with {max(planned, len(tests)):,} kernels tried, chance alone could give it (p = {p:.2g})"
        certificates.append(Certificate(comparison.effect(), p, not reason, reason))
    return tuple(certificates)


def against_fastest(comparison: Comparison, rivals: Sequence[str]) -> Comparison:
    """Make the fastest of the reference and its rivals the reference of the same samples. rivals: sides that are other
    configurations without a lever. Choosing by the same samples makes gains smaller, never larger."""
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
    """Check whether a confirmation so far shows no gain worth having, so that it is given up: it can be no win any
    more. That makes wins rarer, never wrong."""
    effect = comparison.effect()
    started = len({block.process for block in comparison.blocks})
    return started == FUTILE_AFTER and (effect is None or effect.ratio > 1 - comparison.band)


def p_value(comparison: Comparison) -> float:
    """Compute how often a candidate whose true gain is the band would look as good as this one, or better. Each process
    counts as one value, the median of its blocks. 1 if the comparison is not called faster, or has too few
    processes."""
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
    """Find the tests that hold if the chance of any false one is at most `level` (Holm 1979). tests: their total
    number; those without a p-value count as 1."""
    passed = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        if p_values[number] > level / (tests - rank):
            break
        passed[number] = True
    return passed


def upper_tail(t: float, degrees: int) -> float:
    """Compute the chance that Student's t with so many degrees of freedom is above t (Abramowitz and Stegun, 26.7.3 and
    26.7.4: a finite sum)."""
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

    reason: why nothing was confirmed; "" if a code was. winner: the code that was confirmed, or that won the race.
    comparison: its confirmation; its reference is the best code without a lever. base: the configuration of that code;
    None for the one that the autotuner chose, and where there is none.
    failed: codes that could not be raced, and why. is_judged: whether it was raced, or has nothing to race; False
    where something went wrong. seconds: of the GPU's time, without the start of processes.
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
    """A kernel and its verdict. reason: why it did not win; "" if it did. certificate: of the confirmed code."""

    tried: TriedKernel
    verdict: TuneVerdict
    reason: str
    certificate: Certificate | None


@dataclass(frozen=True, slots=True)
class TuneRun:
    """A tuning of several kernels. stopped: "" if it came to its end, else why it did not. start_s: how long the
    processes took to start."""

    rows: tuple[Tuned, ...]
    device: str
    stopped: str = ""
    start_s: float = 0.0

    @property
    def wins(self) -> tuple[Tuned, ...]:
        return tuple(row for row in self.rows if row.verdict is TuneVerdict.WIN)


def judged(tried: Sequence[TriedKernel], still: int) -> tuple[Tuned, ...]:
    """Judge kernels together. still: how many are not done yet, and may still be confirmed."""
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


def assembled(chosen: Sequence[tuple[Kernel, Choice]]) -> TuneRun:
    """Make the result of a run before anything was raced."""
    rows = (
        Tuned(TriedKernel(kernel, choice, "", is_judged=False, notes=kernel.notes), TuneVerdict.ASSEMBLED, "", None)
        for kernel, choice in chosen
    )
    return TuneRun(tuple(rows), "")


def entries(run: TuneRun, date: str, folder: Path = Path()) -> list[Entry]:
    """Make the policy entries for the wins. date, folder: as in entry_of."""
    won = []
    for row in run.wins:
        tried = row.tried
        assert tried.winner is not None and row.certificate is not None
        gain, interval = row.certificate.gain_percent, row.certificate.interval_percent
        assert gain is not None and interval is not None
        subject = tried.choice.of(tried.winner).subject
        won.append(entry_of(subject, tried.winner, gain, interval, run.device, date, folder))
    return won


def entry_of(
    subject: Subject,
    won: Candidate,
    gain_percent: float,
    interval_percent: tuple[float, float],
    gpu: str,
    date: str,
    folder: Path = Path(),
) -> Entry:
    """Make the policy entry for a candidate that won. won: a candidate with a lever. date: such as "2026-11-22". The
    other arguments: as in Entry and candidates.choices."""
    assert won.lever is not None
    controls = won.lever.controls
    return Entry(
        kernel=subject.kernel,
        arch=subject.arch,
        front_end=subject.front_end,
        ptx=subject.ptx_sha256,
        ptxas=subject.ptxas.version,
        lever=won.lever,
        code=won.code_hash,
        gain_percent=gain_percent,
        interval_percent=interval_percent,
        gpu=gpu,
        date=date,
        controls=None if controls is None else kept_controls(folder, controls).name,
    )


def pins(run: TuneRun, date: str) -> list[Pin]:
    """Make the pins for the wins: the configuration of each win, and the keys for which it was chosen. A lever's win in
    one configuration proves nothing for the others."""
    pinned = []
    for row in run.wins:
        kernel, winner = row.tried.kernel, row.tried.winner
        if kernel.function is not None and kernel.config is not None and winner is not None:
            subject = row.tried.choice.of(winner).subject
            how = winner.config or kernel.config, subject.ptx_sha256, run.device, date
            pinned += [Pin(kernel.function, kernel.arch, key, *how) for key in kernel.keys]
    return pinned
