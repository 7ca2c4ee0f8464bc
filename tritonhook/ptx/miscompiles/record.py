"""Facts about one miscompilation: sources, pattern, versions of ptxas that have it. Values only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tritonhook._util.versions import version_key
from tritonhook.ptx.dataflow import Operation

# Every version that the examples (tests/support/bug_examples.ptx) were assembled with: benchmarks/lab/miscompiles.py.
TRIED = (
    *("11.7.99", "11.8.89", "12.0.140", "12.1.105", "12.2.140", "12.3.107", "12.4.131", "12.5.82", "12.6.85"),
    *("12.8.93", "12.9.86", "13.0.88", "13.1.80", "13.1.115", "13.2.86", "13.3.33", "13.3.73", "13.4.59"),
    *("13.4.92", "13.5.37"),
)
UNOPTIMISED = "-O0"
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


class PtxasVerdict(Enum):
    """Verdict on a ptxas version: its code for such PTX is wrong, right, or unknown."""

    WRONG = "wrong"
    RIGHT = "right"
    NOT_KNOWN = "not known"  # not tried, and the next older or newer tried version is wrong


@dataclass(frozen=True, slots=True)
class Range:
    """The versions that are wrong for some targets: from `first` to `last`, both tried. targets: of TARGETS."""

    targets: tuple[str, ...]
    first: str
    last: str

    def verdict(self, ptxas: str) -> PtxasVerdict:
        """Judge a ptxas version: wrong from the first to the last version seen wrong; right up to, or from, a tested
        version outside of these; else unknown."""
        key = version_key(ptxas)
        if version_key(self.first) <= key <= version_key(self.last):
            return PtxasVerdict.WRONG
        older, newer = _tried_before(self.first), _tried_after(self.last)
        right = (older and key <= version_key(older[-1])) or (newer and key >= version_key(newer[0]))
        return PtxasVerdict.RIGHT if right else PtxasVerdict.NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Miscompilation:
    """One bug of ptxas.

    name: how the command line and the tables call it. does: what ptxas does: a verb and what follows it.
    sources: where it is published; empty: found by this project. ranges: versions that have it. words: groups; such a
    module has one string of each. matches: whether an operation triggers it. instead: what to write. executed:
    whether its example also ran on a GPU; else its machine code was evaluated. unoptimised: whether -O0 has it too.
    """

    name: str
    does: str
    instead: str
    sources: tuple[str, ...]
    ranges: tuple[Range, ...]
    words: tuple[tuple[str, ...], ...]
    matches: Callable[[Operation], bool]
    executed: bool = False
    unoptimised: bool = False

    def is_possible(self, text: str) -> bool:
        """Check whether the text of a module has one string of each group in `words`."""
        return all(any(word in text for word in group) for group in self.words)

    def may_be(self, ptxas: str) -> bool:
        """Check whether this version is wrong for some target, or may be."""
        return any(span.verdict(ptxas) is not PtxasVerdict.RIGHT for span in self.ranges)

    @property
    def remedy(self) -> str:
        """Remedy: write it otherwise, or use another ptxas."""
        older = _tried_before(min((span.first for span in self.ranges), key=version_key))
        newer = _tried_after(max((span.last for span in self.ranges), key=version_key))
        other = f"{newer[0]} or newer" if newer else f"{older[-1]} or older" if older else ""
        return f"{self.instead}, or use ptxas {other}" if other else self.instead

    def verdict(self, ptxas: str, target: str, level: str = "-O3") -> PtxasVerdict:
        """Judge a ptxas version for a target. An untested target gets the verdict of tested ones of its generation."""
        if level == UNOPTIMISED and not self.unoptimised:
            return PtxasVerdict.RIGHT
        alike = [span for span in self.ranges if target in span.targets] or [
            span for span in self.ranges if any(_generation(target) == _generation(name) for name in span.targets)
        ]
        verdicts = {span.verdict(ptxas) for span in alike} or {PtxasVerdict.RIGHT}
        return next(
            verdict
            for verdict in (PtxasVerdict.WRONG, PtxasVerdict.NOT_KNOWN, PtxasVerdict.RIGHT)
            if verdict in verdicts
        )


def _tried_before(version: str) -> list[str]:
    return [tried for tried in TRIED if version_key(tried) < version_key(version)]


def _tried_after(version: str) -> list[str]:
    return [tried for tried in TRIED if version_key(tried) > version_key(version)]


def _generation(target: str) -> int:
    return int("0" + re.sub(r"\D", "", target)) // 10


def all_targets(first: str, last: str) -> tuple[Range, ...]:
    """Make one range for every target."""
    return (Range(TARGETS, first, last),)
