"""Writes of one value by several actors that nothing orders: each of them may read what all have written."""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.words import Array

_ACTORS = 1 << 31  # more than a launch has
_MOST_PAIRS = 1 << 22  # of a unit and an actor; with more of them, all count as writers


class Alike:
    """The writers of each unit since something else was written there. If they wrote different values, that was a
    finding when they did."""

    def __init__(self, size: int) -> None:
        self._sets = np.zeros(size, np.int32)  # by unit: the number of its set of writers; 0: it has none
        self._pairs: dict[int, list[Array]] = {}  # of each set
        self._count = 0

    def changed(self, units: Array) -> None:
        """Note that something else may be there now."""
        if self._pairs:
            self._sets[units] = 0

    def wrote(self, units: Array, actors: Array, others: Array) -> None:
        """Note writes. others: who wrote the unit, too, without an order between both; -1: nobody."""
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
        """Whether each actor is one of those who wrote a unit."""
        numbers, keys = self._sets[units], units * _ACTORS + actors
        found = np.zeros(len(units), bool)
        for one in np.unique(numbers[numbers > 0]).tolist():
            some = numbers == one
            found[some] = self._count >= _MOST_PAIRS or np.isin(keys[some], np.concatenate(self._pairs[one]))
        return found
