"""The result of a tuning: for each kernel a verdict, and what it rests on. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tritonhook.capture.policy.model import Entry
from tritonhook.capture.policy.pins import Pin
from tritonhook.capture.selection import Kernel
from tritonhook.timing.statistics import Comparison
from tritonhook.tuning.candidates import Candidate, Choice, Dropped, entry_of
from tritonhook.tuning.race import Certificate, Race, certify


class TuneVerdict(str, Enum):
    WIN = "WIN"
    LEAVE = "LEAVE IT"
    ASSEMBLED = "ASSEMBLED"  # nothing was raced


@dataclass(frozen=True, slots=True)
class TriedKernel:
    """What the GPU said of a kernel, before all kernels of the run are judged together.

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
    """A kernel and its verdict. reason: why it is no win; "" if it is. certificate: of the code that was confirmed."""

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
    """What there is before anything was raced."""
    rows = (
        Tuned(TriedKernel(kernel, choice, "", is_judged=False), TuneVerdict.ASSEMBLED, "", None)
        for kernel, choice in chosen
    )
    return TuneRun(tuple(rows), "")


def entries(run: TuneRun, date: str, folder: Path = Path()) -> list[Entry]:
    """A policy's entries for the wins. date, folder: as in entry_of."""
    won = []
    for row in run.wins:
        tried = row.tried
        assert tried.winner is not None and row.certificate is not None
        gain, interval = row.certificate.gain_percent, row.certificate.interval_percent
        assert gain is not None and interval is not None
        subject = tried.choice.of(tried.winner).subject
        won.append(entry_of(subject, tried.winner, gain, interval, run.device, date, folder))
    return won


def pins(run: TuneRun, date: str) -> list[Pin]:
    """The configurations that go with the wins, for the keys for which they were chosen from. A lever that won in one
    configuration says nothing of the others."""
    pinned = []
    for row in run.wins:
        kernel, winner = row.tried.kernel, row.tried.winner
        if kernel.function is not None and kernel.config is not None and winner is not None:
            subject = row.tried.choice.of(winner).subject
            how = winner.config or kernel.config, subject.ptx_sha256, run.device, date
            pinned += [Pin(kernel.function, kernel.arch, key, *how) for key in kernel.keys]
    return pinned
