"""Facts about one miscompilation: sources, pattern, and the versions of ptxas that have it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tritonhook._util.versions import version_key
from tritonhook.ptx.dataflow import Operation

# All versions with which benchmarks/lab/miscompiles.py assembled the examples in tests/support/bug_examples.ptx.
TRIED = (
    *("11.7.99", "11.8.89", "12.0.140", "12.1.105", "12.2.140", "12.3.107", "12.4.131", "12.5.82", "12.6.85"),
    *("12.8.93", "12.9.86", "13.0.88", "13.1.80", "13.1.115", "13.2.86", "13.3.33", "13.3.73", "13.4.59"),
    *("13.4.92", "13.5.37"),
)
UNOPTIMISED = "-O0"
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


class PtxasVerdict(Enum):
    """Verdict on a ptxas version: whether it assembles the pattern of a bug correctly."""

    WRONG = "wrong"
    RIGHT = "right"
    NOT_KNOWN = "not known"  # the version was not tried, and the next older or newer tried version is wrong


@dataclass(frozen=True, slots=True)
class Range:
    """The versions of ptxas that have a bug for some targets: from `first` to `last`; both were tested. targets: some
    of TARGETS."""

    targets: tuple[str, ...]
    first: str
    last: str

    def verdict(self, ptxas: str) -> PtxasVerdict:
        """Judge a ptxas version. Wrong: from `first` to `last`. Right: not newer than a tried version before `first`,
        or not older than a tried version after `last`. Not known: any other version."""
        key = version_key(ptxas)
        if version_key(self.first) <= key <= version_key(self.last):
            return PtxasVerdict.WRONG
        older, newer = _tried_before(self.first), _tried_after(self.last)
        right = (older and key <= version_key(older[-1])) or (newer and key >= version_key(newer[0]))
        return PtxasVerdict.RIGHT if right else PtxasVerdict.NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Miscompilation:
    """One bug of ptxas.

    name: the bug's name on the command line and in tables.
    does: what ptxas does wrongly; begins with a verb, because messages put "it" before it.
    instead: how to write the PTX instead.
    sources: URLs of publications; empty: found by this project.
    ranges: the versions that have the bug.
    words: groups of strings; a module with the bug contains at least one string of each group.
    matches: returns True for an operation that triggers the bug.
    executed: whether the example also ran on a GPU; if False, its machine code was only evaluated.
    unoptimised: whether the bug also occurs with -O0.
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
        """Return True if the text of a module contains at least one string of each group in `words`."""
        return all(any(word in text for word in group) for group in self.words)

    def may_be(self, ptxas: str) -> bool:
        """Return True if this version has, or may have, the bug for some target."""
        return any(span.verdict(ptxas) is not PtxasVerdict.RIGHT for span in self.ranges)

    @property
    def remedy(self) -> str:
        """How to avoid the bug: by other PTX or another ptxas."""
        older = _tried_before(min((span.first for span in self.ranges), key=version_key))
        newer = _tried_after(max((span.last for span in self.ranges), key=version_key))
        other = f"{newer[0]} or newer" if newer else f"{older[-1]} or older" if older else ""
        return f"{self.instead}, or use ptxas {other}" if other else self.instead

    def verdict(self, ptxas: str, target: str, level: str = "-O3") -> PtxasVerdict:
        """Judge a ptxas version for a target. A target that was not tested gets the verdict of tested targets of its
        generation."""
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
    """Make a Range from `first` to `last` for all targets."""
    return (Range(TARGETS, first, last),)
