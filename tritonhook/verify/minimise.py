"""Shrink a kernel whose builds by two assemblers differ, while the difference remains.

This module uses no GPU and no ptxas: the caller passes a function that checks trials for the difference, many at a
time, e.g. by launching them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook._display import Brief
from tritonhook._util.reduction import Asked, removable
from tritonhook.capture.launches.record import Launch
from tritonhook.errors import UsageError
from tritonhook.ptx.dataflow import read_unwritten
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.program import Item, read_program
from tritonhook.verify.reductions import COARSE, FINE, LAST, Parts, Reduction, renamed

SECONDS = 300.0
_MOST_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Trial:
    """A smaller kernel to check for the difference: PTX and, if it is launched, the launch with the buffers'
    contents."""

    ptx: str
    entry: str
    launch: Launch | None = None
    contents: tuple[bytes, ...] = ()

    @property
    def lines(self) -> int:
        return len(self.ptx.splitlines())


StillDiffers = Callable[[Sequence[Trial]], Sequence[bool]]


@dataclass(frozen=True, slots=True, repr=False)
class Minimised(Brief):
    """The smallest trial. finished: True if nothing more could be removed, False if the time limit ended the search.

    before: lines of PTX at the start. tried: number of trials that were checked. seconds: time of the search.
    """

    trial: Trial
    before: int
    tried: int
    seconds: float
    finished: bool

    @property
    def summary(self) -> str:
        """Lines before and after, time and number of trials, in one line."""
        end = "" if self.finished else "; the time limit ended it: more time may find a smaller one"
        return f"{self.before:,} to {self.trial.lines:,} lines in {self.seconds:.0f} s ({self.tried:,} trials){end}"


def minimise(
    trial: Trial,
    still_differs: StillDiffers,
    seconds: float = SECONDS,
    on_step: Callable[[str, Trial], None] | None = None,
) -> Minimised:
    """Find a smaller trial that still has the difference.

    still_differs: returns for each trial whether it has the difference; False if it cannot be assembled or launched. It
    is called with many trials at a time, and with each trial once. on_step: called after each kind of reduction, with
    its name and the smallest trial so far.
    Raises UsageError if the first trial does not have the difference, PtxError if its PTX cannot be read.
    """
    search = _Reduction(trial, still_differs, seconds, on_step)
    finished = search.run()
    return Minimised(search.best.trial, trial.lines, search.differs.tried, time.monotonic() - search.started, finished)


class _TimeIsOver(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Found:
    parts: Parts
    trial: Trial


class _Reduction:
    def __init__(
        self, trial: Trial, still_differs: StillDiffers, seconds: float, on_step: Callable[[str, Trial], None] | None
    ) -> None:
        self.started = time.monotonic()
        self.end = self.started + seconds
        self.differs = Asked(still_differs)
        self.on_step = on_step or (lambda name, trial: None)
        ptx = Ptx(trial.ptx)
        parts = Parts(read_program(ptx), ptx.only_entry(trial.entry), trial.launch, trial.contents)
        self.unwritten = read_unwritten(parts.function)
        self.ordering = ordering_of(parts.items)
        self.best = _Found(parts, _trial(parts))
        self.check_start(trial)

    def check_start(self, trial: Trial) -> None:
        given, rewritten = self.differs([trial, self.best.trial])
        if not given:
            raise UsageError(f"{trial.entry}: the difference did not appear again; nothing to minimise")
        if not rewritten:
            raise UsageError(
                f"{trial.entry}: the difference disappears when comments and debug information are removed and "
                "registers are renamed; it cannot be minimised. Please report it with the PTX"
            )

    def run(self) -> bool:
        """Search for the smallest trial. Returns False if the time limit ended the search."""
        try:
            for reduction in COARSE:
                self.reduce(reduction)
            for _ in range(_MOST_ROUNDS):
                before = self.best.parts.weight
                for reduction in FINE:
                    self.reduce(reduction)
                if self.best.parts.weight == before:
                    for reduction in LAST:
                        self.reduce(reduction)
                    if self.best.parts.weight == before:
                        break
            self.rename()
        except _TimeIsOver:
            return False
        return True

    def reduce(self, reduction: Reduction) -> None:
        """Remove as many units of this reduction as the difference allows."""
        start = self.best.parts
        units = reduction.units(start)
        if not units:
            return

        def keeps(sets: Sequence[frozenset[Any]]) -> Sequence[bool]:
            return self.try_all([reduction.without(start, units) for units in sets])

        removable(units, keeps)
        self.on_step(reduction.name, self.best.trial)

    def try_all(self, candidates: Sequence[Parts]) -> list[bool]:
        """Return for each candidate whether it still has the difference. Remember the smallest that has."""
        if time.monotonic() > self.end:
            raise _TimeIsOver
        trials = [_trial(parts) for parts in candidates]
        defined = [self.is_defined(parts) for parts in candidates]
        answers = iter(self.differs([trial for trial, is_defined in zip(trials, defined, strict=True) if is_defined]))
        verdicts = [is_defined and next(answers) for is_defined in defined]
        for parts, trial, differs in zip(candidates, trials, verdicts, strict=True):
            if differs and parts.weight < self.best.parts.weight:
                self.best = _Found(parts, trial)
        return verdicts

    def is_defined(self, parts: Parts) -> bool:
        """Check whether the kernel reads no unwritten register that it did not read at the start, and still has the
        barriers and fences that it had at the start."""
        if not read_unwritten(parts.function) <= self.unwritten:
            return False
        threads = 0 if parts.launch is None else math.prod(parts.launch.block)
        return ordering_of(parts.items).covers(self.ordering, threads)

    def rename(self) -> None:
        short = renamed(self.best.parts)
        if self.differs([_trial(short)])[0]:
            self.best = _Found(short, _trial(short))


def _trial(parts: Parts) -> Trial:
    return Trial(parts.program.text, parts.entry, parts.launch, parts.contents)


# --- what a kernel orders ------------------------------------------------------------------------
# If a reduction removes a barrier, the builds may differ because of a race. The kernel is read in the order of its
# text; branches are not followed.


@dataclass(frozen=True, slots=True)
class Ordering:
    """Orders that a kernel enforces. Each is also True if the kernel has nothing to order.

    products: each `wgmma` comes after its fence, and a wait for its group follows. threads: a barrier comes between
    each store to shared memory and the next read of it. proxies: a fence comes between a store to shared memory and a
    `wgmma`. filled: a store to shared memory comes before each read of it."""

    products: bool
    threads: bool
    proxies: bool
    filled: bool

    def covers(self, start: Ordering, threads: int) -> bool:
        """Check whether this enforces all orders that `start` does. With one thread no barrier is needed."""
        return (
            self.products >= start.products
            and (self.threads >= start.threads or threads == 1)
            and self.proxies >= start.proxies
            and self.filled >= start.filled
        )


def ordering_of(items: Sequence[Item]) -> Ordering:
    """Determine the orders that the statements of a kernel enforce."""
    products = threads = proxies = True
    fenced = open_group = committed = False
    stored = unfenced = False
    filled, has_stored = True, False
    for item in items:
        parts = tuple(item.opcode.split("."))
        kind = parts[:2]
        if kind == ("wgmma", "fence"):
            fenced = True
        elif kind == ("wgmma", "mma_async"):
            products, proxies = products and fenced, proxies and not unfenced
            threads = threads and not stored
            open_group, committed = True, False
            filled = filled and has_stored
        elif kind == ("wgmma", "commit_group"):
            committed = open_group
        elif kind == ("wgmma", "wait_group"):
            open_group = open_group and not committed
        elif parts[0] in ("bar", "barrier"):
            stored = False
        elif parts[0] == "fence" and "proxy" in parts:
            unfenced = False
        elif _is_shared(parts):
            if parts[0] in ("st", "stmatrix", "cp", "atom", "red"):
                stored = unfenced = has_stored = True
            elif parts[0] != "mbarrier":
                threads, filled = threads and not stored, filled and has_stored
    return Ordering(products and not open_group, threads, proxies, filled)


def _is_shared(parts: Sequence[str]) -> bool:
    return any(part.startswith("shared") for part in parts)
