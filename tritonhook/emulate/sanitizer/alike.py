"""Track unordered writes of the same value by several actors (warps or lanes).

A read by one of these writers is no race, because it wrote the same value itself.
"""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.words import Array

_ACTORS = 1 << 31  # exceeds the number of actors of a launch
_MOST_PAIRS = 1 << 22  # limit of recorded pairs of a unit and an actor; beyond it, all actors count as writers


class Alike:
    """The actors that wrote the current value of each unit. Writes of different values are reported elsewhere, when
    they happen."""

    def __init__(self, size: int) -> None:
        self._sets = np.zeros(size, np.int32)  # by unit: the number of its set of writers; 0: none
        self._pairs: dict[int, list[Array]] = {}  # by number of the set: its units and writers, as keys
        self._count = 0

    def changed(self, units: Array) -> None:
        """Forget the writers of units whose value may have changed."""
        if self._pairs:
            self._sets[units] = 0

    def wrote(self, units: Array, actors: Array, others: Array) -> None:
        """Record writes. others: for each unit, another actor whose write is not ordered with this one; -1: none."""
        joins = others >= 0
        self.changed(units[~joins])
        if not joins.any():
            return
        units, both = units[joins], (actors[joins], others[joins])
        self._sets[units[self._sets[units] == 0]] = len(self._pairs) + 1
        for one in np.unique(numbers := self._sets[units]).tolist():
            if self._count < _MOST_PAIRS:
                some = numbers == one
                keys = np.unique([units[some] * _ACTORS + who[some] for who in both])
                self._pairs.setdefault(one, []).append(keys)
                self._count += len(keys)

    def are_writers(self, units: Array, actors: Array) -> Array:
        """Return for each unit whether the actor is one of its writers."""
        numbers, keys = self._sets[units], units * _ACTORS + actors
        found = np.zeros(len(units), bool)
        for one in np.unique(numbers[numbers > 0]).tolist():
            some = numbers == one
            found[some] = self._count >= _MOST_PAIRS or np.isin(keys[some], np.concatenate(self._pairs[one]))
        return found
