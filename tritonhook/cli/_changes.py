"""Changes between two sets of kernels, as `check`, `diff` and `run --watch` print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import settings_of, titles
from tritonhook.cli._github import without_commands
from tritonhook.cli._inputs import captures_at, input_of, kernels_at
from tritonhook.cli._lockable import Failed, spills_note, with_executed
from tritonhook.cli._pair import AS_COMPILED, compared
from tritonhook.cli._parser import Group, option, positive
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cli._sites import KernelPage, capture_page
from tritonhook.errors import UsageError
from tritonhook.report.result import count
from tritonhook.snapshot.changes import Change, ChangeStatus, renumbered
from tritonhook.snapshot.changes import compare as compare_facts
from tritonhook.snapshot.crossed import MOST, Text, crossed
from tritonhook.snapshot.facts import COUNTERS, KernelFacts
from tritonhook.snapshot.rules import (
    RULES,
    Rule,
    failures,
    fewer_configurations,
    not_counted,
    nothing_compared,
    rules,
)

if TYPE_CHECKING:
    from tritonhook.report.result import Result
    from tritonhook.report.results.snapshot import KernelChanges
    from tritonhook.snapshot.folders import Kernels


def fail_on_option() -> Any:
    return option(
        type=rules,
        default=(),
        metavar="RULE,...",
        help=f"exit with 1 only if one of these grew or changed: {', '.join(RULES)}; registers+10%% allows 10%% more",
    )


@dataclass(frozen=True, kw_only=True)
class ShownChanges(Group):
    """Which changed kernels are printed. Exit codes and counts are of all."""

    top: int | None = option(type=positive, metavar="N", help="show only the first N kernels")
    filter: str | None = option(metavar="REGEX", help="show only kernels whose name or `changed by` matches")
    only: str | None = option(choices=("worse", "better"), help="show only kernels that got worse, or better")

    def of(self, result: KernelChanges) -> KernelChanges:
        """Raise UsageError for a filter that is no regular expression."""
        if self.top is None and self.filter is None and self.only is None:
            return result
        try:
            pattern = None if self.filter is None else re.compile(self.filter, re.IGNORECASE)
        except re.error as error:
            said = f"not a regular expression: {error}; put \\ before a character that stands for itself"
            raise UsageError(f"--filter {self.filter}: {said}") from None
        return result.chosen(self.top, pattern, self.only)


def told_apart(changes: Sequence[Change], text: Text) -> tuple[list[Change], list[str]]:
    """Return the changes and notes. Kernels with another PTX and another ptxas are also assembled crosswise."""
    two = min(sum(change.has_two_steps for change in changes), MOST)
    with working(f"telling PTX and ptxas apart for {count(two, 'kernel')}"):
        return crossed(changes, text)


def give_changes(
    results: Results,
    wanted: Sequence[Rule],
    old: str,
    new: str,
    changes: Sequence[Change],
    notes: Sequence[str] = (),
    gate: bool = True,
    tell: Callable[[KernelChanges], None] | None = None,
    shown: ShownChanges | None = None,
    pages: Sequence[KernelPage] = (),
    failed: Failed = (),
) -> int:
    """Print the changes as asked for. Returns the exit code: 1 if a rule of --fail-on (wanted) is broken, or nothing
    was compared; without rules, if a kernel has other code, is new or gone; else 2 if one failed to compile. gate:
    whether the verb ends with it. tell: who else is told of the result, as GitHub. shown: which kernels are printed.
    pages: of the kernels. failed: kernels that the new side could not compile, with the error."""
    from tritonhook.report.results.snapshot import KernelChanges, page_key

    notes = [*notes, *spills_note(facts for change in changes for facts in (change.old, change.new) if facts)]
    broken = failures(changes, wanted)
    notes += [*fewer_configurations(changes), *not_counted(changes, wanted)]
    if blind := nothing_compared(changes):
        fails = ", so --fail-on fails" if wanted and gate else ""
        notes.append(f"no kernel is on both sides: nothing was compared{fails}")
    result = KernelChanges.of(old, new, changes, broken, notes, failed)
    printed = result if shown is None else shown.of(result)
    listed_keys = {page_key(kernel) for kernel in printed.kernels if kernel.status is not ChangeStatus.SAME}
    with without_commands(tell is not None):
        give(results, printed, pages=[page for page in pages if page[0] in listed_keys])
    if tell is not None:
        tell(result)
    is_bad = blind or bool(broken) if wanted else any(change.is_different for change in changes)
    return 1 if is_bad else 2 if failed else 0


def give_folders(
    results: Results, fail_on: Sequence[Rule], a: str, b: str, shown: ShownChanges | None = None, counts: bool = False
) -> int:
    """Compare the kernels of two capture folders, or of two runs in one, and print what changed. counts: their counters
    too."""
    sides, notes = kernels_at(a, b)
    old, new = ([facts for _, facts in kernels] for kernels in sides)
    if counts or any(rule.what in COUNTERS for rule in fail_on):
        old, further = with_executed(sides[0], old, counts=True, bits=False)
        new, more = with_executed(sides[1], renumbered(old, new), old, counts=True, bits=False)
        notes += [*further, *more]
    captures = {facts.ptx_sha256: capture for kernels in sides for capture, facts in kernels}
    changes, further = told_apart(compare_facts(old, new), lambda it: captures[it.ptx_sha256].text(Stage.PTX))
    pages = _pages((a, b), sides, (old, renumbered(old, new)), changes)
    failed = tuple(captures_at(b).failed.values())
    noted = [*notes, *further]
    return give_changes(results, fail_on, a, b, changes, noted, shown=shown, pages=pages, failed=failed)


Called = tuple[str, str, Capture]  # a captured kernel: path, title, capture


def _pages(
    places: Sequence[str], sides: Sequence[Kernels], facts: Sequence[Sequence[KernelFacts]], changes: Sequence[Change]
) -> list[KernelPage]:
    """Make a page for each change: both kernels, or the one that exists."""
    from tritonhook.report.results.snapshot import page_key

    known = {
        (side, one.identity): capture
        for side, kernels in enumerate(sides)
        for (capture, _), one in zip(kernels, facts[side], strict=True)
    }
    called = titles({key: (function_name(it.kernel), it.arch, settings_of(it.options)) for key, it in known.items()})

    def page(change: Change) -> KernelPage:
        keys = [(side, one.identity) for side, one in enumerate((change.old, change.new)) if one is not None]
        return page_key(change.identity), partial(_page, [(places[key[0]], called[key], known[key]) for key in keys])

    return [page(change) for change in changes]


def _page(kernels: Sequence[Called]) -> Result:
    """Compare two captured kernels with their code, or show one kernel."""
    inputs = [input_of(f"{place}: {title}", capture) for place, title, capture in kernels]
    if len(inputs) == 2 and all(given.cubin is not None or given.ptx is not None for given in inputs):
        return compared(AS_COMPILED, False, inputs, (kernels[0][1], kernels[1][1]))[1](True)
    return capture_page(kernels[-1][2], kernels[-1][1])
