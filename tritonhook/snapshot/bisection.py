"""Find which version of ptxas changed a kernel first: a search over the versions from a good one to a bad one.

Values only. The caller provides the function that runs ptxas: it tries kernels under versions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts

SPILLS, CODE = "spills", "code"
ON = (SPILLS, "stack", "registers", "shared", "instructions", "loop_instructions", CODE)

Value = str | int | tuple[int, int]  # the hash of a code; a figure; spill stores and loads, in bytes


@dataclass(frozen=True, slots=True)
class TriedVersion:
    """A kernel under one version of ptxas.

    facts: one for each code; several if ptxas gives one input several codes. failure: why there is no code.
    """

    version: str
    facts: tuple[KernelFacts, ...]
    failure: str = ""

    def values(self, on: str) -> frozenset[Value]:
        """Return the value of each code, such as its registers; empty if none is known."""
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
    """The search for one kernel. versions: from the good one to the bad one. tried: by version."""

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
        """Reason why there is nothing to search: no value of the good or the bad version is known. None if the
        search can go on."""
        for name, version, other in (("good", self.good, "a newer"), ("bad", self.bad, "an older")):
            tried = self.tried.get(version)
            if tried is not None and not tried.values(self.on):
                reason = tried.failure or f"ptxas {version}: {self.on} is not known"
                return f"the {name} version, {reason}; give {other} one as --{name}"
        return None

    def is_changed(self, version: str) -> bool | None:
        """Check whether this version has no value in common with the good version; None if either is not known."""
        here, good = (self.tried[it].values(self.on) if it in self.tried else None for it in (version, self.good))
        return None if not here or not good else not here & good

    @property
    def first(self) -> str | None:
        """The oldest tried version that changed the kernel; None if no version did."""
        return next((version for version in self.versions if self.is_changed(version)), None)

    @property
    def before(self) -> str | None:
        """The newest version before `first` whose value equals the good version's."""
        if self.first is None:
            return None
        older = self.versions[: self.versions.index(self.first)]
        return next((version for version in reversed(older) if self.is_changed(version) is False), None)

    @property
    def between(self) -> tuple[str, ...]:
        """The versions between `before` and `first`: untried, or their value is unknown."""
        if self.first is None or self.before is None:
            return ()
        return self.versions[self.versions.index(self.before) + 1 : self.versions.index(self.first)]

    @property
    def returned(self) -> tuple[str, ...]:
        """The versions after `first` with the value of the good one again: then the history is not monotone."""
        newer = self.versions[self.versions.index(self.first) + 1 :] if self.first else ()
        return tuple(version for version in newer if self.is_changed(version) is False)

    def wanted(self, at_hand: Collection[str], all_versions: bool) -> tuple[str, ...]:
        """Return the versions to try next: the good and the bad version; if these differ, the installed ones, which
        cost no download; then the middle one of the rest. at_hand: the installed versions. all_versions: try every
        version at once. Empty: the search is over."""
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


Try = Callable[[Sequence[tuple[int, str]]], Sequence[TriedVersion]]  # takes (number of a kernel, version) pairs


def bisect(searches: Sequence[Search], tried: Try, at_hand: Collection[str], all_versions: bool) -> list[Search]:
    """Run the searches to their end; each round tries versions for all kernels."""
    searched = list(searches)
    while wanted := [(n, v) for n, search in enumerate(searched) for v in search.wanted(at_hand, all_versions)]:
        for (number, _), version in zip(wanted, tried(wanted), strict=True):
            searched[number] = searched[number].with_tried(version)
    return searched
