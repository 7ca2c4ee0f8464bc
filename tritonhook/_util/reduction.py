"""Delta debugging: find the parts of an input that can be removed without losing an effect, e.g. a miscompilation.

Each test gets many candidates at a time, since candidates are assembled in parallel and launched by one child process.
The units are opaque here; verify/minimise.py makes them from PTX. No library fits: picire (21.8) starts a process for
each candidate, and the reducers of lithium and shrinkray work on the bytes of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)
Unit = TypeVar("Unit", bound=Hashable)
Keeps = Callable[[Sequence[frozenset[Unit]]], Sequence[bool]]  # for each set of removed units: whether the effect stays


class Asked(Generic[Candidate]):
    """A cached yes-no test of many candidates at a time.

    ask: tests a list of candidates; it never gets the same candidate twice. tried: number of candidates tested so far.
    """

    def __init__(self, ask: Callable[[Sequence[Candidate]], Sequence[bool]]) -> None:
        self._ask = ask
        self._known: dict[Candidate, bool] = {}

    @property
    def tried(self) -> int:
        return len(self._known)

    def __call__(self, candidates: Sequence[Candidate]) -> list[bool]:
        new = [candidate for candidate in dict.fromkeys(candidates) if candidate not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return [self._known[candidate] for candidate in candidates]


def removable(units: Iterable[Unit], keeps: Keeps[Unit]) -> frozenset[Unit]:
    """Find a maximal set of units that can be removed together: no further single unit can be removed.

    units: in order; neighbours are tried together first. Each call of `keeps` gets all pieces of one size. Pieces that
    can each be removed alone are then tried together.
    """
    left = list(units)
    removed: frozenset[Unit] = frozenset()
    size = len(left)
    while left and size:
        pieces = [frozenset(left[start : start + size]) for start in range(0, len(left), size)]
        answers = keeps([removed | piece for piece in pieces])
        good = [piece for piece, answer in zip(pieces, answers, strict=True) if answer]
        if good:
            removed = removed | good[0] if len(good) == 1 else _together(removed, good, keeps)
            left = [unit for unit in left if unit not in removed]
        if not (good and size == 1):
            size = min(size, len(left) + 1) // 2
    return removed


def _together(removed: frozenset[Unit], pieces: Sequence[frozenset[Unit]], keeps: Keeps[Unit]) -> frozenset[Unit]:
    """Remove as many of these pieces as possible, in addition to `removed`. If not all can go, try each half."""
    whole = removed.union(*pieces)
    if keeps([whole])[0]:
        return whole
    if len(pieces) == 1:
        return removed
    half = len(pieces) // 2
    return _together(_together(removed, pieces[:half], keeps), pieces[half:], keeps)
