"""Compare a lock with the kernels of today: fresh captures, or the lock's own PTX under another ptxas.

Exit codes: 0 all kernels are as in the lock, 1 a kernel changed, is new or gone (with --fail-on: a rule is broken), 2
error, such as a kernel that could not be compiled.

tritonhook check tritonhook-captures
tritonhook check --ptxas 13.5.37 --fail-on spills,registers+10%
tritonhook check mm.py ops.py --arch sm_90a,sm_120a           # the scripts run dry, without a GPU
tritonhook check build/libfoo.so --fail-on spills,stack,registers --strict
tritonhook check other.lock tritonhook-captures --update      # lock the captured kernels
tritonhook check tritonhook-captures --verify                 # also: does ptxas compute what the PTX says?
tritonhook check mm.py --arch sm_90a --sanitize               # also: races and other faults of the kernels
tritonhook check tritonhook-captures --github                 # in a step of GitHub Actions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from tritonhook.capture.project import USUAL_LOCK, lock_path, read_project
from tritonhook.capture.selection import titles_of
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.cli._changes import (
    ShownChanges,
    autotune_option,
    dry_places,
    fail_on_option,
    give_changes,
    is_built,
    lockable_at,
    told_apart,
    with_executed,
)
from tritonhook.cli._github import GitHub, lines_of, run_of_workflow
from tritonhook.cli._inputs import is_folder, options_option
from tritonhook.cli._parser import Group, argument, flag, option, part
from tritonhook.cli._programs import is_script
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, capture_page, check_new
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import SnapshotError, UsageError, listed
from tritonhook.ptx.miscompiles import note_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS
from tritonhook.report.result import count
from tritonhook.snapshot.assembled import Task, disassembler, recheck, timed
from tritonhook.snapshot.bits import told_bits
from tritonhook.snapshot.changes import Change, ChangeStatus, commands_of, compare, not_judged, renumbered
from tritonhook.snapshot.facts import Budgets, KernelFacts
from tritonhook.snapshot.lockable import settled
from tritonhook.snapshot.lockfile import WholeLock, all_kept_ptx, kept_ptx, read_whole_lock, write_lock
from tritonhook.snapshot.rules import BITS, COMPILE_TIME, Rule
from tritonhook.verify.model import sanitize_captures, verify_captures

Judge = Callable[[str], tuple[bool, str]]  # path of captures -> (whether a kernel is wrong, summary)


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    lock: str | None = argument(nargs="?", help=f"lock (default: the project's, else {USUAL_LOCK})")
    places: tuple[str, ...] = argument(
        nargs="*",
        metavar="PLACE",
        help="capture folder; built files; or scripts, with --arch (default: assemble the lock's own PTX)",
    )
    arch: str | None = option(
        metavar="sm_XX,...", help="run the scripts dry for each of these architectures, without a GPU"
    )
    autotune: str | None = autotune_option()
    ptxas: str | None = option(
        metavar="VERSION|PATH", help="assemble the lock's PTX with this ptxas (default: each kernel's own)"
    )
    ptxas_options: str | None = options_option("each kernel's own")
    update: bool = flag(help="write the captured kernels to the lock")
    fail_on: tuple[Rule, ...] = fail_on_option()
    strict: bool = flag(help="with --fail-on: also fail if a figure has shrunk; --update locks the smaller figure")
    verify: bool = flag(
        help="as `verify --cpu`: also exit with 1 if code of an installed ptxas computes other results than the PTX"
    )
    sanitize: bool = flag(help="also exit with 1 if `emulate` finds a fault in two CTAs of a captured launch")
    shown: ShownChanges = part(ShownChanges)
    github: bool = flag(
        help="in GitHub Actions: write the job's summary, annotate lines whose kernels spill, keep one comment on the "
        "pull request"
    )
    sweep: Sweep = part(Sweep)
    results: Results = part(Results)


def run(options: Options) -> int:
    options = _with_lock(options)
    path = lock_path(Path.cwd()) if options.lock is None else Path(options.lock)
    workflow = run_of_workflow(options.github, options.results)
    lock = read_whole_lock(path)
    options = replace(options, fail_on=_with_budgets(options, lock.budgets))
    name = "--verify" if options.verify else "--sanitize" if options.sanitize else ""
    if name and (not options.places or options.update):
        raise UsageError(f"{name}: give captures with launches, or a script and --arch; not allowed with --update")
    if not options.places:
        if any(rule.what == BITS for rule in options.fail_on):
            raise UsageError(
                "--fail-on bits: give captures with launches, or a script and --arch; the lock has no launches"
            )
        if options.update or options.arch is not None:
            raise UsageError("--arch: give a script" if options.arch else "--update: give the captures, or built files")
        return _check_ptx(options, path, lock.kernels, workflow)
    if options.ptxas or options.ptxas_options:
        raise UsageError("--ptxas and --options: only without captures, which are assembled already")
    if options.update:
        check_new(path, force=True)
    with dry_places(options.places, options.arch, options.autotune, "nothing was compared") as named:
        return _check_places(options, path, named, lock, workflow)


def _check_ptx(options: Options, path: Path, locked: Sequence[KernelFacts], workflow: GitHub | None) -> int:
    """Assemble the lock's own PTX again, and compare the result with the lock."""
    left_out = {kernel.identity: why for kernel in locked if (why := _why_not_again(kernel, options.ptxas))}
    if locked and len(left_out) == len(locked):
        raise SnapshotError(f"{path}: no kernel of this lock can be assembled again: {next(iter(left_out.values()))}")
    again = [kernel for kernel in locked if kernel.identity not in left_out]
    tool, given = cache(find_ptxas), None if options.ptxas_options is None else tuple(options.ptxas_options.split())
    own = [DEFAULT_ARGUMENTS if kernel.options is None else kernel.options for kernel in again]
    tasks = [
        Task(kernel, text, tool(options.ptxas or kernel.ptxas), usual if given is None else given)
        for kernel, text, usual in zip(again, all_kept_ptx(path, again), own, strict=True)
    ]
    notes = [f"not assembled again: {identity.text}: {why}" for identity, why in left_out.items()]
    notes += note_of((task.ptx, task.ptxas.version, level_of(task.options)) for task in tasks)
    with running(options.sweep) as (go, expect):
        expect(len({task.input for task in tasks}))
        now = recheck(tasks, go, disassembler())
    changes = [Change(task.locked, facts) for task, facts in zip(tasks, now, strict=True)]
    if any(rule.what == COMPILE_TIME for rule in options.fail_on):
        changes = _timed(tasks, changes, notes)
    unknown = (kernel for kernel in locked if kernel.identity in left_out)
    changes += [Change(kernel, replace(kernel, codes=(), figures={})) for kernel in unknown]
    changes.sort(key=lambda change: change.rank)
    failed = sum(change.status is ChangeStatus.FAILED for change in changes)
    if failed and given is not None:
        notes.append("correct --options, or omit it to use each kernel's own")
    elif failed:
        remedy = "choose another version with --ptxas, or omit --ptxas to use each kernel's own"
        notes.append(f"{count(failed, 'kernel')} not assembled by this ptxas; {remedy}")
    # After another run of a program, a user may expect its captures to be compared.
    if is_folder(DEFAULT_OUT) and not options.ptxas and given is None:
        notes.append(f"{DEFAULT_OUT} was not read; `tritonhook check {DEFAULT_OUT}` compares its kernels")
    by = f"ptxas {tool(options.ptxas).version}" if options.ptxas else "the same ptxas"
    new = f"its PTX, assembled by {by}{f' {options.ptxas_options}' if options.ptxas_options else ''}"
    told = None if workflow is None else workflow.tell
    return give_changes(
        options.results, options.fail_on, str(path), new, changes, notes, tell=told, shown=options.shown
    )


def _why_not_again(kernel: KernelFacts, ptxas: str | None) -> str | None:
    """Return why a kernel cannot be assembled from what the lock keeps; None if it can be."""
    if kernel.ptx_sha256 is None:
        return "the lock has no PTX of this kernel; give captures, or the built files"
    if kernel.ptxas is None and ptxas is None:
        return "the ptxas that made it is not known; choose one with --ptxas, or give captures"
    return None


def _timed(tasks: Sequence[Task], changes: Sequence[Change], notes: list[str]) -> list[Change]:
    """Replace each change's compile time, which covers the whole compilation, by the time of ptxas alone."""
    with working(f"timing ptxas for {count(len(tasks), 'kernel')}"):
        times = list(map(timed, tasks))
    if unknown := [task.locked.identity.kernel for task, us in zip(tasks, times, strict=True) if us is None]:
        notes.append(f"compile time not known, because the ptxas of the lock is not installed: {listed(unknown)}")
    return [
        Change(it.old and replace(it.old, compile_us=us and us[0]), it.new and replace(it.new, compile_us=us and us[1]))
        for it, us in zip(changes, times, strict=True)
    ]


def _check_places(
    options: Options, path: Path, named: Mapping[str, str], lock: WholeLock, workflow: GitHub | None
) -> int:
    """Compare the lock with the kernels at these places. named: each place with the user's name for it; a script's
    place is a temporary folder."""
    asked = {rule.what for rule in options.fail_on}
    if COMPILE_TIME in asked:
        raise UsageError(
            "--fail-on compile-time: a lock has no times; omit the captures, or use `tritonhook diff OLD NEW`"
        )
    bits = any(kernel.bits for kernel in lock.kernels)
    if BITS in asked and not bits:
        raise UsageError(f"--fail-on bits: {path} has no bits; make the lock again with `tritonhook lock --bits`")
    bits = bits and (BITS in asked or options.update)
    found = lockable_at(named, () if options.update else lock.kernels, lock.kernels)
    facts, counts = renumbered(lock.kernels, found.kernels), any(kernel.is_counted for kernel in lock.kernels)
    facts, of_executed = with_executed(found.captures, facts, lock.kernels, counts=counts, bits=bits)
    notes = [*found.notes]
    notes += note_of((t, it.ptxas, level_of(it.options)) for t, it in zip(found.texts, facts, strict=True))
    notes += of_executed
    left = not_judged(lock.kernels, facts)
    if left:
        others = listed(sorted(commands_of(it for it in lock.kernels if it.identity in left)))
        notes.append(f"{count(len(left), 'kernel')} of other commands not judged: {others}")
    changes = compare([kernel for kernel in lock.kernels if kernel.identity not in left], facts)
    texts = {it.ptx_sha256: text for it, text in zip(facts, found.texts, strict=True)}
    changes, further = told_apart(changes, lambda it: texts.get(it.ptx_sha256) or kept_ptx(path, it))
    notes += further
    give = partial(give_changes, options.results, options.fail_on, str(path), " ".join(options.places))
    if options.update:
        now = list(zip(facts, found.texts, strict=True))
        write_lock(path, settled(path, lock.kernels, now), lock.tests, lock.budgets)
        notes.append(f"{path} now has the kernels of {' '.join(options.places)}")
        give(changes, notes, gate=False, failed=found.failed)
        return 2 if found.failed else 0
    captures = list(zip(found.captures, facts, strict=False))  # facts of built files come after those of captures
    if bits:
        notes += told_bits(changes, {it.identity: capture for capture, it in captures}, partial(kept_ptx, path))
    judges = [("verify --cpu", verify_captures)] * options.verify + [("emulate", sanitize_captures)] * options.sanitize
    judged = [_judged(verb, judge, place, own, notes) for verb, judge in judges for place, own in named.items()]
    from tritonhook.report.results.snapshot import page_key

    called = titles_of(dict(enumerate(found.captures)))
    pages = [(page_key(it.identity), partial(capture_page, one, called[n])) for n, (one, it) in enumerate(captures)]
    told = None
    if workflow is not None:
        told = partial(workflow.tell, lines=lines_of(captures, changes, workflow.is_own))
    code = give(changes, notes, tell=told, shown=options.shown, pages=pages, failed=found.failed)
    codes = {code, *judged}
    return 1 if 1 in codes else max(codes)


def _judged(verb: str, judge: Judge, place: str, own: str, notes: list[str]) -> int:
    """Judge the kernels of a place, and append the summary to `notes`. Returns 1 if a kernel is wrong, 2 if one could
    not be judged, else 0. own: the user's name of the place."""
    try:
        with working(f"{verb} {own}"):
            is_wrong, said = judge(place)
        code, said = int(is_wrong), said if is_wrong else said.partition("\n")[0]
    except UsageError as error:
        code, said = 2, str(error)
    lines = (line.strip() for line in said.replace(place, own).splitlines())
    notes.append(f"{verb}: {'; '.join(filter(None, lines))}")
    return code


def _with_lock(options: Options) -> Options:
    """If the first argument is not a lock, but a place with kernels, count it among the places; the lock is then the
    default one."""
    first = options.lock
    if first is None or not (is_folder(first) or is_built(first) or Path(first).is_dir() or is_script(first)):
        return options
    return replace(options, lock=None, places=(first, *options.places))


def _with_budgets(options: Options, own: Budgets) -> tuple[Rule, ...]:
    """Return the rules of --fail-on, with the project's budgets. The lock's budgets apply where the project has
    none."""
    if options.strict and not options.fail_on:
        raise UsageError("--strict: only with --fail-on; without it every difference fails")
    project = read_project(Path.cwd())
    budgets = Budgets.of(project.max_registers, project.allow_spills).before(own)
    return tuple(replace(rule, budgets=budgets, both_ways=options.strict) for rule in options.fail_on)
