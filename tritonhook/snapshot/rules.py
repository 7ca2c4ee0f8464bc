"""What makes a comparison fail: the rules of --fail-on, with their budgets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonhook.errors import UsageError, listed
from tritonhook.snapshot.changes import Change, ChangeStatus
from tritonhook.snapshot.facts import COUNTERS, FIGURES, Budgets, Identity

_SPILLS = ("spill_stores", "spill_loads")
_RULE = re.compile(r"(?P<what>[a-z_-]+)(?:\+(?P<share>\d+(?:\.\d+)?)%|:(?P<times>\d+(?:\.\d+)?)x)?")
BITS = "bits"
COMPILE_TIME, _LEAST_US = "compile-time", 20_000  # shorter compiles are not judged: they vary more than twofold
_WITHOUT_SHARE = ("code", BITS, "new", "gone")
_ZERO_OF_NEW = ("spills", "stack", "local_bytes")  # what a kernel without an old one to compare with may not have
RULES = ("spills", "stack", "registers", "shared", *FIGURES[5:], *_WITHOUT_SHARE, COMPILE_TIME)


def nothing_compared(changes: Sequence[Change]) -> bool:
    """Whether there are old kernels, and none of them is there now: no rule on code or figures looks at one."""
    return any(change.old for change in changes) and not any(change.old and change.new for change in changes)


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a comparison fail. what: one of RULES. share: how far a figure may grow, 0.1 is 10%; a new kernel may
    have no spills, stack or local memory. budgets: what counts in place of that, for kernels that have one. both_ways:
    whether a figure that shrank fails, too."""

    what: str
    share: float = 0.0
    budgets: Budgets = field(default_factory=Budgets)
    both_ways: bool = False

    @property
    def text(self) -> str:
        if self.what == COMPILE_TIME:
            return f"{self.what}:{1 + self.share:.3g}x"
        return f"{self.what}+{100 * self.share:.3g}%" if self.share else self.what

    def fits(self, change: Change) -> bool:
        """Whether the change breaks the rule. A kernel without code, or with a figure that is not known any more, does:
        it is not known that it did not grow."""
        if self.what in ("new", "gone"):  # of an edited configuration the old one is gone, and another is new
            return change.status.value == self.what or bool(change.edited)
        if self.what == COMPILE_TIME:
            times = change.compile_us
            return times is not None and times[1] > max(times[0], _LEAST_US) * (1 + self.share)
        over = None if change.new is None else self.budgets.is_over(self.what, change.new)
        if over or self._is_above_zero(change):
            return True
        if change.old is None or change.new is None:
            return False
        if change.status in (ChangeStatus.FAILED, ChangeStatus.UNKNOWN):
            return True
        if self.what == BITS:
            return change.bits_changed
        if self.what == "code":
            return change.code_changed or change.bounds_changed or bool(change.loaded_changed)
        pairs = [change.figure(name) for name in self._figures(change)]
        if self.what == "instructions" and None not in (executed := change.figure("executed")):
            pairs.append(executed)
        grew = any(a is not None and (b is None or b > a * (1 + self.share)) for a, b in pairs)
        shrank = self.both_ways and any(a is not None and b is not None and b < a for a, b in pairs)
        return shrank or (grew and over is None)

    def _is_above_zero(self, change: Change) -> bool:
        """Whether a new kernel has spills, stack or local memory, or may have: budgets that let it spill allow all."""
        if change.old is not None or change.new is None or self.what not in _ZERO_OF_NEW:
            return False
        figures = (change.new.figures.get(name) for name in self._figures(change))
        return self.budgets.is_over("spills", change.new) is not False and any(value != 0 for value in figures)

    def told(self, change: Change) -> str:
        """Name the rule, for a change that breaks it."""
        if change.new is not None and self.budgets.is_over(self.what, change.new):
            return f"{self.text} (over its budget)"
        return f"{self.text} (new: must be 0)" if self._is_above_zero(change) else self.text

    def _figures(self, change: Change) -> Sequence[str]:
        """Return the figure that the rule judges. If no side knows its spills: all access to local memory."""
        if self.what != "spills":
            return (self.what,)
        sides = [side for side in (change.old, change.new) if side is not None]
        known = any(side.figures.get(name) is not None for side in sides for name in _SPILLS)
        return _SPILLS if known else ("local_bytes",)


def rules(text: str) -> tuple[Rule, ...]:
    """Read "spills,stack,registers+10%,code,compile-time:2x". Raises UsageError."""
    wanted = []
    for part in text.split(","):
        match = _RULE.fullmatch(part.strip())
        what = None if match is None else match["what"]
        if match is None or what not in RULES or (match["share"] and what in (*_WITHOUT_SHARE, COMPILE_TIME)):
            raise UsageError(f"--fail-on {part.strip()!r}: give {', '.join(RULES)}; figures also as in registers+10%")
        if (match["times"] is not None) != (what == COMPILE_TIME) or float(match["times"] or 1) < 1:
            raise UsageError(f"--fail-on {part.strip()!r}: write compile-time:2x, and other rules without a factor")
        wanted.append(Rule(what, float(match["times"]) - 1 if match["times"] else float(match["share"] or 0) / 100))
    return tuple(wanted)


def _not_compiled(changes: Sequence[Change]) -> list[Change]:
    """Return configurations of autotuned kernels that are gone, while a dry run compiled others of the same kernel.

    A dry run may compile fewer of them than there are."""
    there = {change.identity.lasting for change in changes if change.new is not None}
    gone = (it for it in changes if it.new is None and it.old is not None and it.old.dry_run and it.old.configuration)
    return [change for change in gone if change.identity.lasting in there]


def fewer_configurations(changes: Sequence[Change]) -> list[str]:
    """Write a note on each autotuned kernel of which fewer configurations were compiled than before."""
    left = Counter(change.identity.lasting for change in _not_compiled(changes))
    old = Counter(it.identity.lasting for it in changes if it.old is not None and it.old.configuration)
    remedy = "a dry run compiles all with --autotune all"
    return [
        f"{a} {arch}: {old[a, arch, by] - n} of {old[a, arch, by]} configurations compiled; {remedy}"
        for (a, arch, by), n in left.items()
    ]


def not_counted(changes: Sequence[Change], wanted: Sequence[Rule]) -> list[str]:
    """Write a note where rules on counters judge a kernel that has none on its old side. Raises UsageError if no
    kernel has any."""
    if not (asked := [rule.text for rule in wanted if rule.what in COUNTERS]):
        return []
    old = [change.old for change in changes if change.old is not None]
    without = [it.identity.kernel for it in old if not it.is_counted]
    if old and len(without) == len(old):
        raise UsageError(f"--fail-on {asked[0]}: the old side has no counters; `tritonhook lock --count` locks them")
    return (
        [f"{', '.join(asked)} not judged, as the old side has no counters of it: {listed(without)}"] if without else []
    )


def failures(changes: Sequence[Change], wanted: Sequence[Rule]) -> Mapping[Identity, tuple[str, ...]]:
    """Return the rules that each kernel breaks, without the kernels that break none."""
    told = {change.identity: tuple(rule.told(change) for rule in wanted if rule.fits(change)) for change in changes}
    if wanted:
        for change in _not_compiled(changes):
            told[change.identity] += ("configuration not compiled",)
    return {identity: broken for identity, broken in told.items() if broken}
