"""The race of a kernel's candidates: blocks of paired samples in, the one candidate worth confirming out.

Successive elimination: each block times all candidates that are left beside the compiler's own code, and after it those
that are hopeless are dropped. The race only chooses. A gain is certified with data that took no part in it
(certify.py), since the winner of many is partly the luckiest. Values only: nothing runs here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritonhook.timing.statistics import DEFAULT_BAND, REFERENCE, SampleBlock, student

MOST_BLOCKS = 12  # of a race; then the leader is taken


@dataclass(frozen=True, slots=True)
class Race:
    """A race after some blocks.

    log_ratios: by candidate that is left, the log of its median time over that of the compiler's own code, in each
    block. dropped: by candidate that is not, the block after which it was dropped. band: the gain that is worth having.
    """

    log_ratios: Mapping[str, tuple[float, ...]]
    dropped: Mapping[str, int]
    band: float = DEFAULT_BAND

    @classmethod
    def of(cls, candidates: tuple[str, ...], band: float = DEFAULT_BAND) -> Race:
        return cls(dict.fromkeys(candidates, ()), {}, band)

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

    def _hopeless(self) -> set[str]:
        """Candidates whose whole interval is slower than what is worth having, or than the leader's."""
        spans = {name: student(values) for name, values in self.log_ratios.items() if values}
        if not spans:
            return set()
        leader, half = min(spans.values())
        bound = min(math.log(1 - self.band), leader + half)
        return {name for name, (middle, half) in spans.items() if middle - half > bound}

    @property
    def leader(self) -> str | None:
        """The candidate with the least time so far, if its gain is worth having; None if there is none."""
        times = {name: statistics.mean(values) for name, values in self.log_ratios.items() if values}
        name = min(times, key=lambda name: times[name], default=None)
        return name if name is not None and times[name] < math.log(1 - self.band) else None

    @property
    def is_over(self) -> bool:
        """Whether no candidate is left, or one that is clearly better than the compiler's own code, or time is up."""
        if not self.log_ratios or self.blocks >= MOST_BLOCKS:
            return True
        if len(self.log_ratios) > 1 or not self.blocks:
            return False
        middle, half = student(next(iter(self.log_ratios.values())))
        return middle + half < math.log(1 - self.band)
