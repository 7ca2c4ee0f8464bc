"""Compare a lock with kernels as they are now: with fresh captures, or with its own PTX under another ptxas.

Exit codes: 0 all kernels are as in the lock, 1 a kernel changed, is new or gone (with --fail-on: a rule is broken), 2
trouble, such as a kernel that could not be compiled.

tritonhook check tritonhook-captures
tritonhook check --ptxas 13.5.37 --fail-on spills,registers+10%
tritonhook check mm.py ops.py --arch sm_90a,sm_120a           # the scripts run dry, without a GPU
tritonhook check build/libfoo.so --fail-on spills,stack,registers --strict
tritonhook check other.lock tritonhook-captures --update      # accept what is there now
tritonhook check tritonhook-captures --verify                 # also: does ptxas compute what the PTX says?
tritonhook check mm.py --arch sm_90a --sanitize               # also: races and other faults of the kernels
tritonhook check tritonhook-captures --github                 # in a step of GitHub Actions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tritonhook._util.demangle import function_name
from tritonhook.capture.project import USUAL_LOCK, lock_path, read_project
from tritonhook.capture.selection import settings_of, titles
from tritonhook.capture.settings import DEFAULT_OUT
from tritonhook.cli._changes import ShownChanges, fail_on_option, give_changes, told_apart
from tritonhook.cli._files import check_new
from tritonhook.cli._github import GitHub, lines_of, run_of_workflow
from tritonhook.cli._inputs import is_folder
from tritonhook.cli._lockable import (
    Found,
    as_named,
    autotune_option,
    dry_places,
    is_built,
    lockable_at,
    with_executed,
)
from tritonhook.cli._parser import Group, argument, flag, option, part
from tritonhook.cli._programs import is_script
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results
from tritonhook.cli._sites import KernelPage, capture_page
from tritonhook.cli._sweeps import Sweep, running
from tritonhook.errors import SnapshotError, UsageError, listed
from tritonhook.ptx.miscompiles import note_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS
from tritonhook.report.result import count
from tritonhook.snapshot.assembled import Task, disassembler, recheck, timed
from tritonhook.snapshot.bits import told_bits
from tritonhook.snapshot.changes import Change, ChangeStatus, commands_of, compare, not_judged, renumbered
from tritonhook.snapshot.facts import Budgets, KernelFacts
from tritonhook.snapshot.lockable import settled
from tritonhook.snapshot.lockfile import WholeLock, all_kept_ptx, kept_ptx, read_whole_lock, write_lock
from tritonhook.snapshot.rules import (
    BITS,
    COMPILE_TIME,
    Rule,
)
from tritonhook.verify.model import sanitize_captures, verify_captures

Judge = Callable[[str], tuple[bool, str]]  # of captures: whether a kernel is wrong, and the summary


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    lock: str | None = argument(nargs="?", help=f"lock (default: the project's, else {USUAL_LOCK})")
    places: tuple[str, ...] = argument(
        nargs="*",
        metavar="PLACE",
        help="capture folder, built files, or with --arch scripts (default: assemble the lock's own PTX)",
    )
    arch: str | None = option(
        metavar="sm_XX,...", help="run the scripts dry for each of these architectures, without a GPU"
    )
    autotune: str | None = autotune_option()
    ptxas: str | None = option(
        metavar="VERSION|PATH", help="assemble the lock's PTX with this ptxas (default: each kernel's own)"
    )
    ptxas_options: str | None = option("--options", metavar="'...'", help="ptxas options (default: each kernel's own)")
    update: bool = flag(help="replace what the lock says by the captures")
    fail_on: tuple[Rule, ...] = fail_on_option()
    strict: bool = flag(help="--fail-on: also where a figure has shrunk; --update locks it")
    verify: bool = flag(
        help="also exit with 1 if a ptxas here does not compute what the PTX of a capture says: `verify --cpu`"
    )
    sanitize: bool = flag(help="also exit with 1 if two CTAs of a captured launch have a fault: `emulate`")
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
        raise UsageError(f"{name}: give captures with launches, or a script and --arch; not with --update")
    if not options.places:
        if any(rule.what == BITS for rule in options.fail_on):
            raise UsageError("bits: the lock has no launches; give captures with launches, or a script and --arch")
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
    """Assemble the lock's own PTX, and compare."""
    left_out = {kernel.identity: why for kernel in locked if (why := _why_not_again(kernel, options.ptxas))}
    if locked and len(left_out) == len(locked):
        raise SnapshotError(f"{path}: no kernel of it can be assembled again: {next(iter(left_out.values()))}")
    tasks = _tasks(options, path, [kernel for kernel in locked if kernel.identity not in left_out])
    notes = [f"not assembled again: {identity.text}: {why}" for identity, why in left_out.items()]
    notes += note_of((task.ptx, task.ptxas.version, level_of(task.options)) for task in tasks)
    changes = _timed(options, tasks, _rechecked(options, tasks), notes)
    unknown = (kernel for kernel in locked if kernel.identity in left_out)
    changes += [Change(kernel, replace(kernel, codes=(), figures={})) for kernel in unknown]
    changes.sort(key=lambda change: change.rank)
    notes += [*_notes_on_failures(options, changes), *_note_on_captures(options)]
    told = None if workflow is None else workflow.tell
    new, shown = _assembled_by(options), options.shown
    return give_changes(options.results, options.fail_on, str(path), new, changes, notes, tell=told, shown=shown)


def _timed(options: Options, tasks: Sequence[Task], now: Sequence[KernelFacts], notes: list[str]) -> list[Change]:
    """Return the changes. If a rule asks for ptxas's time, that time replaces the time of the whole compile."""
    if not any(rule.what == COMPILE_TIME for rule in options.fail_on):
        return [Change(task.locked, facts) for task, facts in zip(tasks, now, strict=True)]
    with working(f"timing ptxas for {count(len(tasks), 'kernel')}"):
        times = timed(tasks)
    if unknown := [task.locked.identity.kernel for task, seconds in zip(tasks, times, strict=True) if seconds is None]:
        notes.append(f"compile time not known, as the ptxas of the lock is not at hand: {listed(unknown)}")
    pairs = [seconds or (None, None) for seconds in times]
    return [
        Change(replace(task.locked, compile_us=old), replace(facts, compile_us=new))
        for task, facts, (old, new) in zip(tasks, now, pairs, strict=True)
    ]


def _check_places(
    options: Options, path: Path, named: Mapping[str, str], lock: WholeLock, workflow: GitHub | None
) -> int:
    """Compare with the kernels at these places. Of a script's dry run the folder is not what the user named."""
    if any(rule.what == COMPILE_TIME for rule in options.fail_on):
        raise UsageError("compile-time: a lock has no times; leave out the captures, or `tritonhook diff OLD NEW`")
    known = () if options.update else lock.kernels
    bits = _wants_bits(options, path, lock.kernels)
    kernels = lockable_at(list(named), known, lambda place, archs: _check_archs(named[place], lock.kernels, archs))
    now, given, notes = kernels.lockable, " ".join(options.places), kernels.notes
    notes = [as_named(note, named) for note in notes]
    notes += note_of((text, kernel.ptxas, level_of(kernel.options)) for kernel, text in now)
    texts = {kernel.ptx_sha256: text for kernel, text in now}
    facts = renumbered(lock.kernels, [kernel for kernel, _ in now])
    counts = any(kernel.is_counted for kernel in lock.kernels)
    facts, further = with_executed(kernels.captured, facts, lock.kernels, counts=counts, bits=bits)
    now = [(kernel, text) for kernel, (_, text) in zip(facts, now, strict=True)]
    notes += further
    left = not_judged(lock.kernels, facts)
    locked = [kernel for kernel in lock.kernels if kernel.identity not in left]
    if left:
        others = listed(sorted(commands_of(it for it in lock.kernels if it.identity in left)))
        notes.append(f"{count(len(left), 'kernel')} of other commands not judged: {others}")
    changes = compare(locked, facts)
    pages = _pages(lock.kernels, kernels)
    changes, further = told_apart(changes, lambda it: texts.get(it.ptx_sha256) or kept_ptx(path, it))
    notes += further
    if bits and not options.update:
        identities = [kernel.identity for kernel in renumbered(lock.kernels, [kernel for kernel, _ in now])]
        captures = dict(zip(identities, (capture for capture, _ in kernels.captured), strict=False))
        notes += told_bits(changes, captures, partial(kept_ptx, path))
    if not options.update:
        lines = [] if workflow is None else lines_of(kernels.captured, changes, workflow.is_own)
        told = None if workflow is None else partial(workflow.tell, lines=lines)
        judges: dict[str, Judge] = {"verify --cpu": verify_captures} if options.verify else {}
        if options.sanitize:
            judges["emulate"] = sanitize_captures
        judged = [
            _judged(verb, judge, place, own, notes) for verb, judge in judges.items() for place, own in named.items()
        ]
        shown, rules_ = options.shown, options.fail_on
        code = give_changes(
            options.results,
            rules_,
            str(path),
            given,
            changes,
            notes,
            tell=told,
            shown=shown,
            pages=pages,
            failed=kernels.failed,
        )
        codes = {code, *judged}
        return 1 if 1 in codes else max(codes)
    write_lock(path, settled(path, lock.kernels, now), lock.tests, lock.budgets)
    notes.append(f"{path} now holds what is in {given}")
    failed = kernels.failed
    give_changes(options.results, options.fail_on, str(path), given, changes, notes, gate=False, failed=failed)
    return 2 if failed else 0


def _wants_bits(options: Options, path: Path, locked: Sequence[KernelFacts]) -> bool:
    """Check whether kernels are executed: for the rule on bits, and for an update of a lock that has them."""
    has_bits, is_judged = any(kernel.bits for kernel in locked), any(rule.what == BITS for rule in options.fail_on)
    if is_judged and not has_bits:
        raise UsageError(f"bits: {path} has none; make it again with `tritonhook lock --bits`")
    return has_bits and (is_judged or options.update)


def _pages(locked: Sequence[KernelFacts], now: Found) -> list[KernelPage]:
    """Return a page for each captured kernel. Locked kernels have no code to show."""
    from tritonhook.report.results.snapshot import page_key

    kernels = renumbered(locked, [kernel for kernel, _ in now.lockable])  # captured ones, then those of built files
    captures = [capture for capture, _ in now.captured]
    called = titles({n: (function_name(it.kernel), it.arch, settings_of(it.options)) for n, it in enumerate(captures)})
    return [
        (page_key(kernel.identity), partial(capture_page, captures[n], title))
        for (n, title), kernel in zip(called.items(), kernels, strict=False)
    ]


def _judged(verb: str, judge: Judge, place: str, own: str, notes: list[str]) -> int:
    """Judge the kernels of a place. Returns 1 if one is wrong, 2 if one could not be judged. notes: gets what was
    found. own: how the user names the place."""
    try:
        with working(f"{verb} {own}"):
            is_wrong, said = judge(place)
    except UsageError as error:
        notes.append(f"{verb}: {_one_line(str(error).replace(place, own))}")
        return 2
    said = said.replace(place, own)
    notes.append(f"{verb}: {_one_line(said if is_wrong else said.partition(chr(10))[0])}")
    return int(is_wrong)


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _with_lock(options: Options) -> Options:
    """Return the options, with the usual lock in front where the first argument is no lock."""
    first = options.lock
    if first is None or not (is_folder(first) or is_built(first) or Path(first).is_dir() or is_script(first)):
        return options
    return replace(options, lock=None, places=(first, *options.places))


def _with_budgets(options: Options, own: Budgets) -> tuple[Rule, ...]:
    """Return the rules, with the budgets of the project; where it has none, of the lock."""
    if options.strict and not options.fail_on:
        raise UsageError("--strict: only with --fail-on; without it every difference fails")
    project = read_project(Path.cwd())
    budgets = Budgets.of(project.max_registers, project.allow_spills).before(own)
    return tuple(replace(rule, budgets=budgets, both_ways=options.strict) for rule in options.fail_on)


def _notes_on_failures(options: Options, changes: Sequence[Change]) -> list[str]:
    failed = sum(change.status is ChangeStatus.FAILED for change in changes)
    if not failed:
        return []
    if options.ptxas_options is not None:
        return ["correct --options, or leave it out to take each kernel's own"]
    remedy = "take another one with --ptxas, or leave it out to take each kernel's own"
    return [f"{count(failed, 'kernel')} not assembled by this ptxas; {remedy}"]


def _note_on_captures(options: Options) -> list[str]:
    """Name the usual capture folder if it is here: who ran a program again expects that its kernels are compared."""
    here = is_folder(DEFAULT_OUT) and options.ptxas is None and options.ptxas_options is None
    return [f"{DEFAULT_OUT} was not read; `tritonhook check {DEFAULT_OUT}` compares its kernels"] if here else []


def _check_archs(captures: str, locked: Sequence[KernelFacts], new: set[str]) -> None:
    """Raise UsageError if the captures are for other architectures than the lock: all kernels would be gone. That is
    known before their code is read."""
    old = {kernel.identity.arch for kernel in locked}
    if new and not old & new:
        raise UsageError(
            f"{captures}: its kernels are for {', '.join(sorted(new))}, the lock's for {', '.join(sorted(old))}; "
            "capture on the same kind of GPU, or make a lock for each"
        )


def _why_not_again(kernel: KernelFacts, ptxas: str | None) -> str | None:
    """Why a kernel cannot be assembled again from what the lock keeps; None if it can be."""
    if kernel.ptx_sha256 is None:
        return "there is no PTX of it; give captures, or the built files"
    if kernel.ptxas is None and ptxas is None:
        return "which ptxas made it is not known; give one with --ptxas, or captures"
    return None


def _tasks(options: Options, path: Path, locked: Sequence[KernelFacts]) -> list[Task]:
    """Return the lock's own PTX, to be assembled again."""
    tools: dict[str | None, Tool] = {}
    given = None if options.ptxas_options is None else tuple(options.ptxas_options.split())
    tasks = []
    for kernel, text in zip(locked, all_kept_ptx(path, locked), strict=True):
        wanted = options.ptxas or kernel.ptxas
        if wanted not in tools:
            tools[wanted] = find_ptxas(wanted)
        own = DEFAULT_ARGUMENTS if kernel.options is None else kernel.options
        tasks.append(Task(kernel, text, tools[wanted], own if given is None else given))
    return tasks


def _rechecked(options: Options, tasks: Sequence[Task]) -> list[KernelFacts]:
    with running(options.sweep, options.sweep.cache()) as (go, expect):
        expect(len({task.input for task in tasks}))
        return recheck(tasks, go, disassembler())


def _assembled_by(options: Options) -> str:
    tool = f"ptxas {find_ptxas(options.ptxas).version}" if options.ptxas else "the same ptxas"
    return f"its PTX, assembled by {tool}{f' {options.ptxas_options}' if options.ptxas_options else ''}"
