"""Find the first version of ptxas that changed a kernel, by a binary search from a good version to a bad one.

Pure: the caller provides the function that assembles kernels with given versions of ptxas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts

SPILLS, CODE = "spills", "code"
ON = (SPILLS, "stack", "registers", "shared", "instructions", "loop_instructions", CODE)

Value = str | int | tuple[int, int]  # hash of the code; a figure; bytes of spill stores and loads


@dataclass(frozen=True, slots=True)
class TriedVersion:
    """A kernel assembled with one version of ptxas.

    facts: one item for each code; there are several codes if ptxas is not deterministic. failure: reason why there is
    no code.
    """

    version: str
    facts: tuple[KernelFacts, ...]
    failure: str = ""

    def values(self, on: str) -> frozenset[Value]:
        """Return the compared value of each code, e.g. its registers. The set is empty if no value is known."""
        return frozenset(value for facts in self.facts if (value := value_of(facts, on)) is not None)


def value_of(facts: KernelFacts, on: str) -> Value | None:
    """Return the compared value of a kernel. on: one of ON. None if the value is not known."""
    if on == CODE:
        return facts.codes[0] if facts.codes else None
    if on == SPILLS:
        stores, loads = facts.figures.get("spill_stores"), facts.figures.get("spill_loads")
        return None if stores is None or loads is None else (stores, loads)
    return facts.figures.get(on) if on in FIGURES else None


@dataclass(frozen=True, slots=True)
class Search:
    """The search for one kernel. on: the compared value, one of ON. versions: from the good to the bad version. tried:
    results so far, by version."""

    identity: Identity
    on: str
    versions: tuple[str, ...]
    tried: Mapping[str, TriedVersion] = field(default_factory=dict)

    def with_tried(self, tried: TriedVersion) -> Search:
        return replace(self, tried={**self.tried, tried.version: tried})

    @property
    def good(self) -> str:
        return self.versions[0]

    @property
    def bad(self) -> str:
        return self.versions[-1]

    @property
    def problem(self) -> str | None:
        """Reason why the search is impossible: the value of the good or the bad version is not known. None if it is
        possible."""
        for name, version, other in (("good", self.good, "a newer"), ("bad", self.bad, "an older")):
            tried = self.tried.get(version)
            if tried is not None and not tried.values(self.on):
                reason = tried.failure or f"ptxas {version}: {self.on} is not known"
                return f"the {name} version cannot be compared: {reason}; give {other} one as --{name}"
        return None

    def is_changed(self, version: str) -> bool | None:
        """Return True if this version and the good version have no value in common; None if a value is not known."""
        here, good = (self.tried[it].values(self.on) if it in self.tried else None for it in (version, self.good))
        return None if not here or not good else not here & good

    @property
    def first(self) -> str | None:
        """The oldest tried version that changed the kernel; None if no version did."""
        return next((version for version in self.versions if self.is_changed(version)), None)

    @property
    def before(self) -> str | None:
        """The newest tried version before `first` that still has the good version's value; None if `first` is None."""
        if self.first is None:
            return None
        older = self.versions[: self.versions.index(self.first)]
        return next((version for version in reversed(older) if self.is_changed(version) is False), None)

    @property
    def between(self) -> tuple[str, ...]:
        """The versions between `before` and `first`, which are not tried or whose value is not known."""
        if self.first is None or self.before is None:
            return ()
        return self.versions[self.versions.index(self.before) + 1 : self.versions.index(self.first)]

    @property
    def returned(self) -> tuple[str, ...]:
        """Versions after `first` that have the good version's value again, so that the history is not monotone."""
        newer = self.versions[self.versions.index(self.first) + 1 :] if self.first else ()
        return tuple(version for version in newer if self.is_changed(version) is False)

    def wanted(self, at_hand: Collection[str], all_versions: bool) -> tuple[str, ...]:
        """Return the versions to try next; empty if the search is over.

        The good and the bad version come first. If they differ, all installed versions follow, as these need no
        download; then each time the middle version of the rest. at_hand: the installed versions. all_versions: try all
        versions at once.
        """
        ends = self._not_tried((self.good, self.bad))
        if ends and not all_versions:
            return ends
        if all_versions:
            return self._not_tried(self.versions)
        if self.problem is not None or not self.is_changed(self.bad):
            return ()
        if free := self._not_tried([version for version in self.versions if version in at_hand]):
            return free
        left = self._not_tried(self.between)
        return left[len(left) // 2 :][:1]

    def _not_tried(self, versions: Sequence[str]) -> tuple[str, ...]:
        return tuple(version for version in dict.fromkeys(versions) if version not in self.tried)


Try = Callable[[Sequence[tuple[int, str]]], Sequence[TriedVersion]]  # takes pairs (number of the search, version)


def bisect(searches: Sequence[Search], tried: Try, at_hand: Collection[str], all_versions: bool) -> list[Search]:
    """Run all searches until they are over. Each round calls `tried` once, for the next versions of all kernels."""
    searched = list(searches)
    while wanted := [(n, v) for n, search in enumerate(searched) for v in search.wanted(at_hand, all_versions)]:
        for (number, _), version in zip(wanted, tried(wanted), strict=True):
            searched[number] = searched[number].with_tried(version)
    return searched
