"""The rules of --fail-on: conditions under which a comparison fails."""

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
# Compiles of less than _LEAST_US microseconds are not judged, as their times vary more than twofold.
COMPILE_TIME, _LEAST_US = "compile-time", 20_000
_WITHOUT_SHARE = ("code", BITS, "new", "gone")
_ZERO_OF_NEW = ("spills", "stack", "local_bytes")  # figures that must be 0 for a new kernel
RULES = ("spills", "stack", "registers", "shared", *FIGURES[5:], *_WITHOUT_SHARE, COMPILE_TIME)


def nothing_compared(changes: Sequence[Change]) -> bool:
    """Return True if there are old kernels but no new version of any, so that rules on code and figures have nothing
    to judge."""
    return any(change.old for change in changes) and not any(change.old and change.new for change in changes)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition under which a comparison fails.

    what: one of RULES. share: allowed growth of a figure as a fraction, e.g. 0.1; a new kernel must have no spills,
    stack or local memory. budgets: a kernel that has a budget is judged by it instead of `share`. both_ways: whether a
    figure that shrank also fails.
    """

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
        """Return True if the change breaks the rule. A kernel that has lost its code or its figure also breaks the
        rule, since the figure may have grown."""
        if self.what in ("new", "gone"):  # a kernel with an edited configuration counts as new and as gone
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
        """Return True if a new kernel has, or may have, spills, stack or local memory, and no budget allows them."""
        if change.old is not None or change.new is None or self.what not in _ZERO_OF_NEW:
            return False
        figures = (change.new.figures.get(name) for name in self._figures(change))
        return self.budgets.is_over("spills", change.new) is not False and any(value != 0 for value in figures)

    def told(self, change: Change) -> str:
        """Format the rule, with the reason why the change breaks it if a budget or a limit of 0 applies."""
        if change.new is not None and self.budgets.is_over(self.what, change.new):
            return f"{self.text} (over its budget)"
        return f"{self.text} (must be 0 in a new kernel)" if self._is_above_zero(change) else self.text

    def _figures(self, change: Change) -> Sequence[str]:
        """Return the names of the figures that the rule judges. A rule on spills judges all accesses to local memory if
        neither old nor new kernel has known spills."""
        if self.what != "spills":
            return (self.what,)
        sides = [side for side in (change.old, change.new) if side is not None]
        known = any(side.figures.get(name) is not None for side in sides for name in _SPILLS)
        return _SPILLS if known else ("local_bytes",)


def rules(text: str) -> tuple[Rule, ...]:
    """Parse rules such as "spills,stack,registers+10%,code,compile-time:2x". Raises UsageError."""
    wanted = []
    for part in text.split(","):
        match = _RULE.fullmatch(part.strip())
        what = None if match is None else match["what"]
        if match is None or what not in RULES or (match["share"] and what in (*_WITHOUT_SHARE, COMPILE_TIME)):
            raise UsageError(
                f"--fail-on {part.strip()!r}: must be one of {', '.join(RULES)}; a figure may have an allowed growth, "
                "as in registers+10%"
            )
        if (match["times"] is not None) != (what == COMPILE_TIME) or float(match["times"] or 1) < 1:
            raise UsageError(
                f"--fail-on {part.strip()!r}: compile-time needs a factor of at least 1, as in compile-time:2x; other "
                "rules have no factor"
            )
        wanted.append(Rule(what, float(match["times"]) - 1 if match["times"] else float(match["share"] or 0) / 100))
    return tuple(wanted)


def _not_compiled(changes: Sequence[Change]) -> list[Change]:
    """Return the missing configurations of autotuned kernels. Only kernels of which a dry run compiled another
    configuration are included, since a dry run need not compile all configurations."""
    there = {change.identity.lasting for change in changes if change.new is not None}
    gone = (it for it in changes if it.new is None and it.old is not None and it.old.dry_run and it.old.configuration)
    return [change for change in gone if change.identity.lasting in there]


def fewer_configurations(changes: Sequence[Change]) -> list[str]:
    """Return a note on each autotuned kernel of which a dry run compiled fewer configurations than before."""
    left = Counter(change.identity.lasting for change in _not_compiled(changes))
    old = Counter(it.identity.lasting for it in changes if it.old is not None and it.old.configuration)
    remedy = "with --autotune all, a dry run compiles all configurations"
    return [
        f"{a} {arch}: {old[a, arch, by] - n} of {old[a, arch, by]} configurations compiled; {remedy}"
        for (a, arch, by), n in left.items()
    ]


def not_counted(changes: Sequence[Change], wanted: Sequence[Rule]) -> list[str]:
    """Return a note on the kernels that rules on counters cannot judge, as their old facts have no counters. Raises
    UsageError if no old kernel has counters."""
    if not (asked := [rule.text for rule in wanted if rule.what in COUNTERS]):
        return []
    old = [change.old for change in changes if change.old is not None]
    without = [it.identity.kernel for it in old if not it.is_counted]
    if old and len(without) == len(old):
        raise UsageError(f"--fail-on {asked[0]}: no old kernel has counters; `tritonhook lock --count` locks them")
    return (
        [f"{', '.join(asked)}: not judged for kernels whose old facts have no counters: {listed(without)}"]
        if without
        else []
    )


def failures(changes: Sequence[Change], wanted: Sequence[Rule]) -> Mapping[Identity, tuple[str, ...]]:
    """Return the rules that each kernel breaks, as text; kernels that break none are omitted."""
    told = {change.identity: tuple(rule.told(change) for rule in wanted if rule.fits(change)) for change in changes}
    if wanted:
        for change in _not_compiled(changes):
            told[change.identity] += ("configuration not compiled",)
    return {identity: broken for identity, broken in told.items() if broken}
