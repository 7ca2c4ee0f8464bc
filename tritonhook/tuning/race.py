"""The race of a kernel's candidates: blocks of paired samples in, the one candidate worth confirming out.

Successive elimination: each block times all candidates that are left beside the compiler's own code, and after it those
that are hopeless are dropped. The race only chooses. A gain is certified with data that took no part in it
(certify.py), since the winner of many is partly the luckiest. Values only: nothing runs here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tritonhook.timing.statistics import DEFAULT_BAND, REFERENCE, SampleBlock, student

MOST_BLOCKS = 12  # of a race; then the leader is taken


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
        """The race after one more block, which has a side for each candidate that is left. A block in whose time the
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
        """The plain codes of other configurations that are left, the fastest first."""
        times = {name: statistics.mean(values) for name, values in self.log_ratios.items() if values}
        return tuple(sorted(self.plain & times.keys(), key=lambda name: times[name]))

    @property
    def worth(self) -> float:
        """The log ratio below which a candidate is worth having: by the band below the best plain code."""
        best = min([0.0, *(statistics.mean(self.log_ratios[name]) for name in self.rivals[:1])])
        return best + math.log(1 - self.band)

    def _hopeless(self) -> set[str]:
        """Candidates whose whole interval is slower than what is worth having, or than the leader's."""
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
