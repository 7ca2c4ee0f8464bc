"""Compare a lock with kernels as they are now: with fresh captures, or with its own PTX under another ptxas.

tritonhook check kernels.lock tritonhook-captures
tritonhook check kernels.lock --ptxas 13.5.37 --fail-on spills,registers+10%
tritonhook check kernels.lock tritonhook-captures --update      # accept what is there now
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tritonhook.cli._files import check_new
from tritonhook.cli._results import add_results
from tritonhook.cli._snapshots import add_fail_on, facts_at, give_changes
from tritonhook.cli._sweeps import add_sweep_options, running, sweep_cache
from tritonhook.errors import UsageError
from tritonhook.ptx.miscompiles import note_of
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.levels import level_of
from tritonhook.ptxas.tool import Tool
from tritonhook.report.format import count
from tritonhook.snapshot.changes import Change, Status, compare
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.lockfile import kept_ptx, locked_tests, read_lock, write_lock
from tritonhook.snapshot.locking import lockable, settled
from tritonhook.snapshot.reading import disassembler
from tritonhook.snapshot.recheck import Task, recheck


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lock", help="what `tritonhook lock` wrote")
    parser.add_argument("captures", nargs="?", help="capture folder (default: assemble the lock's own PTX)")
    parser.add_argument(
        "--ptxas", metavar="VERSION|PATH", help="assemble the lock's PTX with this one (default: each kernel's own)"
    )
    parser.add_argument("--options", metavar="'...'", help="ptxas options (default: each kernel's own)")
    parser.add_argument("--update", action="store_true", help="write the captures to the lock")
    add_fail_on(parser)
    add_sweep_options(parser)
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.lock)
    locked = read_lock(path)
    if arguments.captures is None:
        if arguments.update:
            raise UsageError("--update: give the captures to write to the lock")
        tasks = _tasks(arguments, path, locked)
        notes = note_of((task.ptx, task.ptxas.version, level_of(task.options)) for task in tasks)
        changes = _rechecked(arguments, tasks)
        notes += _notes_on_failures(changes)
        return give_changes(arguments, str(path), _assembled_by(arguments), changes, notes)
    if arguments.ptxas or arguments.options:
        raise UsageError("--ptxas and --options: only without captures, which are assembled already")
    if arguments.update:
        check_new(path, force=True)
    now = lockable(facts_at(arguments.captures), () if arguments.update else locked)
    notes = note_of((text, kernel.ptxas, level_of(kernel.options)) for kernel, text in now)
    changes = compare(locked, [kernel for kernel, _ in now])
    _check_archs(arguments.captures, changes)
    if not arguments.update:
        return give_changes(arguments, str(path), arguments.captures, changes, notes)
    write_lock(path, settled(path, locked, now), locked_tests(path))
    notes.append(f"{path} now holds what is in {arguments.captures}")
    give_changes(arguments, str(path), arguments.captures, changes, notes)
    return 0


def _notes_on_failures(changes: Sequence[Change]) -> list[str]:
    failed = sum(change.status is Status.FAILED for change in changes)
    remedy = "take another one with --ptxas, or leave it out to take each kernel's own"
    return [f"{count(failed, 'kernel')} not assembled by this ptxas; {remedy}"] if failed else []


def _check_archs(captures: str, changes: Sequence[Change]) -> None:
    """Raises UsageError if the captures are for other architectures than the lock: all kernels would be gone."""
    old = {change.old.identity.arch for change in changes if change.old}
    new = {change.new.identity.arch for change in changes if change.new}
    if not old & new:
        raise UsageError(
            f"{captures}: its kernels are for {', '.join(sorted(new))}, the lock's for {', '.join(sorted(old))}; "
            "capture on the same kind of GPU, or make a lock for each"
        )


def _tasks(arguments: argparse.Namespace, path: Path, locked: Sequence[KernelFacts]) -> list[Task]:
    """The lock's own PTX, to be assembled again."""
    tools: dict[str | None, Tool] = {}
    options = None if arguments.options is None else tuple(arguments.options.split())
    tasks = []
    for kernel in locked:
        wanted = arguments.ptxas or kernel.ptxas
        if wanted not in tools:
            tools[wanted] = find_ptxas(wanted)
        own = DEFAULT_ARGUMENTS if kernel.options is None else kernel.options
        tasks.append(Task(kernel, kept_ptx(path, kernel), tools[wanted], own if options is None else options))
    return tasks


def _rechecked(arguments: argparse.Namespace, tasks: Sequence[Task]) -> list[Change]:
    with running(arguments, sweep_cache(arguments)) as (go, expect):
        expect(len(tasks))
        facts = recheck(tasks, go, disassembler())
    return compare([task.locked for task in tasks], facts)


def _assembled_by(arguments: argparse.Namespace) -> str:
    tool = f"ptxas {find_ptxas(arguments.ptxas).version}" if arguments.ptxas else "the same ptxas"
    return f"its PTX, assembled by {tool}{f' {arguments.options}' if arguments.options else ''}"
