"""Read kernels from locks, capture folders, built files and dry runs of scripts; compare them, and print what changed.

For `lock`, `check`, `diff` and `run --watch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import ALL, FIRST, PINNED, DryRun
from tritonhook.capture.dry_run.process import assembled
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import titles_of
from tritonhook.cli._github import without_commands
from tritonhook.cli._inputs import captures_at, input_of, is_folder, kernels_at, regular_expression
from tritonhook.cli._parser import Group, option, positive
from tritonhook.cli._programs import is_script, run_well
from tritonhook.cli._progress import working
from tritonhook.cli._results import KernelPage, Results, capture_page, give
from tritonhook.cubin.shipped import is_shipped
from tritonhook.errors import UsageError, listed
from tritonhook.report.result import count
from tritonhook.snapshot.changes import Change, ChangeStatus, renumbered
from tritonhook.snapshot.changes import compare as compare_facts
from tritonhook.snapshot.crossed import MOST, Text, crossed
from tritonhook.snapshot.facts import COUNTERS, Identity, KernelFacts, built_kernels
from tritonhook.snapshot.lockable import lockable
from tritonhook.snapshot.rules import RULES, Rule, failures, fewer_configurations, not_counted, nothing_compared, rules

if TYPE_CHECKING:
    from tritonhook.report.result import Result
    from tritonhook.report.results.snapshot import KernelChanges

Failed = Sequence[tuple[str, str]]  # kernels that could not be compiled, each with the error


def autotune_option() -> Any:
    return option(
        choices=(ALL, FIRST, PINNED),
        help="configurations of an autotuned kernel to compile in a script's dry run: all (default), the first that "
        "fits, or the one that the project's policy pins",
    )


class Found(NamedTuple):
    """Kernels ready for a lock. texts: PTX of each kernel, or None. captures: the captured kernels, which are the first
    of `kernels`. failed: kernels that could not be compiled, with the error."""

    kernels: list[KernelFacts]
    texts: list[str | None]
    captures: list[Capture]
    notes: list[str]
    failed: Failed


@contextmanager
def dry_places(
    places: Sequence[str], archs: str | None, autotune: str | None, without: str
) -> Iterator[Mapping[str, str]]:
    """Yield the places to read, each with the name that the user gave it. With `archs`, run the scripts among the
    places dry, and yield one temporary capture folder instead of them.

    without: what is not done if a script fails, for messages, e.g. "nothing was compared". Raises UsageError,
    ProgramError.
    """
    scripts = [it for it in places if not is_built(it) and (archs is not None or (is_script(it) and not is_folder(it)))]
    if archs is None:
        if scripts:
            raise UsageError(f"{scripts[0]}: a script; give --arch sm_90a,... to run it dry, or give captures")
        if autotune is not None:
            raise UsageError("--autotune: only for a script with --arch; on a GPU use `tritonhook run --autotune`")
        yield dict(zip(places, places, strict=True))
        return
    if not scripts or any(Path(script).is_dir() for script in scripts):
        raise UsageError("--arch: give a script, which is run dry; captured kernels already have an architecture")
    runs = [assembled(DryRun.of(arch.strip())) for arch in archs.split(",")]
    with TemporaryDirectory(prefix="tritonhook-dry-") as folder:
        words = ["-m", "tritonhook", "run", "--out", folder, "--autotune", autotune or ALL]
        for dry in runs:
            for script in scripts:
                command = [sys.executable, *words, "--arch", dry.arch, script]
                run_well(command, dict(os.environ), script, without, dry.arch)
        yield {**{it: it for it in places if it not in scripts}, folder: " ".join(scripts)}


def is_built(place: str) -> bool:
    """Return True for a built file (library, archive, wheel, cubin), and for a folder without captures."""
    path = Path(place)
    return is_shipped(path) or (path.is_dir() and not is_folder(place) and not (path / "capture.json").exists())


def lockable_at(
    named: Mapping[str, str], known: Sequence[KernelFacts] = (), locked: Sequence[KernelFacts] = ()
) -> Found:
    """Read the kernels of a capture folder and of built files.

    named: the places, each with the user's name for it, which messages use. known: as for lockable. locked: the lock's
    kernels, with which the caller compares the result. Raises CaptureError, CubinError or ToolError. Raises UsageError,
    before it reads code, if no capture has an architecture of `locked`.
    """
    built = [place for place in named if is_built(place)]
    captures = [place for place in named if place not in built]
    if len(captures) > 1:
        raise UsageError(
            f"{' '.join(captures)}: give only one capture folder; several are allowed for built files only"
        )
    found = Found([], [], [], [], [])
    for place in captures:
        folder = captures_at(place)
        archs = {it.arch for it in folder.captures().values() if isinstance(it, Capture)}
        old = {kernel.identity.arch for kernel in locked}
        if locked and archs and not old & archs:  # otherwise every locked kernel would be reported as gone
            raise UsageError(
                f"{named[place]}: its kernels are for {', '.join(sorted(archs))}, the lock's for "
                f"{', '.join(sorted(old))}; capture on the same kind of GPU, or make a lock for each kind"
            )
        (kernels,), notes = kernels_at(folder, names=(place,))
        pairs = lockable(kernels, known)
        notes = [note.replace(f"{place}: ", f"{named[place]}: ", 1) for note in notes]
        facts, texts = [own for own, _ in pairs], [text for _, text in pairs]
        found = Found(facts, texts, [capture for capture, _ in kernels], notes, tuple(folder.failed.values()))
    if built:
        with working(f"reading the kernels of {' and '.join(built)}"):
            own, notes = built_kernels(built)
        return found._replace(
            kernels=[*found.kernels, *own], texts=[*found.texts, *[None] * len(own)], notes=[*found.notes, *notes]
        )
    return found


def with_executed(
    captures: Sequence[Capture], facts: Sequence[KernelFacts], known: Sequence[KernelFacts] = (), *,
    counts: bool, bits: bool,
) -> tuple[list[KernelFacts], list[str]]:  # fmt: skip
    """Execute launches of captured kernels on the CPU, and add counters and bits to the kernels' facts. Returns the
    facts, and notes.

    facts: those of the captures in the same order, then those of other kernels. known: kernels of a lock, whose
    launches are executed again.
    """
    if not (counts or bits):
        return list(facts), []
    check_numpy()
    from tritonhook.snapshot.executed import with_executed

    with working(f"executing {count(len(captures), 'kernel')}"):
        done, notes = with_executed(list(zip(captures, facts, strict=False)), known, counts, bits)
    return [*done, *facts[len(done) :]], notes


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """Note the kernels whose spills were counted by another run of ptxas, because neither code nor PTX shows spills."""
    names = list(dict.fromkeys(f"{it.identity.kernel} {it.identity.arch}" for it in kernels if it.ran_again))
    return [f"spills counted by one more run of ptxas, which gave the same code: {listed(names)}"] if names else []


# --- what changed --------------------------------------------------------------------------------


def fail_on_option() -> Any:
    return option(
        type=rules,
        default=(),
        metavar="RULE,...",
        help=f"exit with 1 only if one of these grew or changed: {', '.join(RULES)}; registers+10%% allows 10%% more",
    )


@dataclass(frozen=True, kw_only=True)
class ShownChanges(Group):
    """Options that select the changed kernels to print. Exit codes and counts cover all kernels."""

    top: int | None = option(type=positive, metavar="N", help="show only the first N kernels")
    filter: str | None = option(metavar="REGEX", help="show only kernels whose name or `changed by` matches")
    only: str | None = option(choices=("worse", "better"), help="show only kernels that got worse (or better)")

    def of(self, result: KernelChanges) -> KernelChanges:
        """Keep the kernels that the options select. Raises UsageError if --filter is not a regular expression."""
        if self.top is None and self.filter is None and self.only is None:
            return result
        pattern = None if self.filter is None else regular_expression("--filter", self.filter)
        return result.chosen(self.top, pattern, self.only)


def told_apart(changes: Sequence[Change], text: Text) -> tuple[list[Change], list[str]]:
    """Find out whether the PTX or ptxas caused each change: where both differ, assemble the old PTX with the new ptxas
    and the new PTX with the old ptxas. Returns the changes, and notes."""
    two = min(sum(change.has_two_steps for change in changes), MOST)
    with working(f"finding out whether PTX or ptxas changed {count(two, 'kernel')}"):
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
    """Print the changes, and return the exit code.

    With rules of --fail-on (`wanted`), the code is 1 if a rule is broken or nothing was compared. Without rules it is 1
    if a kernel has other code, is new or is gone. Otherwise it is 2 if a kernel failed to compile, else 0.

    gate: whether the verb ends with this code. tell: also called with the result, e.g. to report it on GitHub. shown:
    selects the kernels to print. pages: pages of the kernels. failed: kernels of the new side that could not be
    compiled, with the error.
    """
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
    """Compare the kernels of two capture folders, or of two runs in one folder, and print what changed. counts: also
    execute launches on the CPU, and compare their counters."""
    sides, notes = kernels_at(a, b)
    captures = [[capture for capture, _ in kernels] for kernels in sides]
    old, new = ([facts for _, facts in kernels] for kernels in sides)
    counts = counts or any(rule.what in COUNTERS for rule in fail_on)
    old, of_old = with_executed(captures[0], old, counts=counts, bits=False)
    new, of_new = with_executed(captures[1], renumbered(old, new), old, counts=counts, bits=False)
    by_ptx = {facts.ptx_sha256: capture for kernels in sides for capture, facts in kernels}
    changes, further = told_apart(compare_facts(old, new), lambda it: by_ptx[it.ptx_sha256].text(Stage.PTX))
    known = {
        (side, one.identity): capture
        for side, facts in enumerate((old, new))
        for capture, one in zip(captures[side], facts, strict=True)
    }
    pages = list(_pages((a, b), known, changes))
    failed, notes = tuple(captures_at(b).failed.values()), [*notes, *of_old, *of_new, *further]
    return give_changes(results, fail_on, a, b, changes, notes, shown=shown, pages=pages, failed=failed)


def _pages(
    places: Sequence[str], known: Mapping[tuple[int, Identity], Capture], changes: Sequence[Change]
) -> Iterator[KernelPage]:
    """Yield a page for each change: the diff of both kernels with their code, or the kernel that exists on one side
    only. known: the captured kernels, by side (0: old, 1: new) and identity."""
    from tritonhook.cli._pair import AS_COMPILED, compared
    from tritonhook.report.results.snapshot import page_key

    called = titles_of(known)

    def page(keys: Sequence[tuple[int, Identity]]) -> Result:
        inputs = [input_of(f"{places[key[0]]}: {called[key]}", known[key]) for key in keys]
        if len(inputs) == 2 and all(given.cubin is not None or given.ptx is not None for given in inputs):
            return compared(AS_COMPILED, False, inputs, (called[keys[0]], called[keys[1]]))[1](True)
        return capture_page(known[keys[-1]], called[keys[-1]])

    for change in changes:
        keys = [(side, one.identity) for side, one in enumerate((change.old, change.new)) if one is not None]
        yield page_key(change.identity), partial(page, keys)
