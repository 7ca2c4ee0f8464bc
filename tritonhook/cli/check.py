"""Compare a lock with kernels as they are now: with fresh captures, or with its own PTX under another ptxas.

Exit codes: 0 all kernels are as in the lock, 1 a kernel changed, is new or gone (with --fail-on: a rule is broken), 2
trouble.

tritonhook check kernels.lock tritonhook-captures
tritonhook check kernels.lock --ptxas 13.5.37 --fail-on spills,registers+10%
tritonhook check kernels.lock tritonhook-captures --update      # accept what is there now
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tritonhook.cli._files import check_new
from tritonhook.cli._results import add_results
from tritonhook.cli._snapshots import add_fail_on, give_changes, kernels_at
from tritonhook.cli._sweeps import add_sweep_options, running, sweep_cache
from tritonhook.errors import SnapshotError, UsageError
from tritonhook.ptx.miscompiles import note_of
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS
from tritonhook.ptxas.discovery import find_ptxas
from tritonhook.ptxas.levels import level_of
from tritonhook.ptxas.tool import Tool
from tritonhook.report.format import count
from tritonhook.snapshot.captured import disassembler
from tritonhook.snapshot.changes import Change, Status, compare
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.lockfile import kept_ptx, locked_tests, read_lock, write_lock
from tritonhook.snapshot.recheck import Task, lockable, recheck, settled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lock", help="lock, which `tritonhook lock` wrote")
    parser.add_argument("captures", nargs="?", help="capture folder (default: assemble the lock's own PTX)")
    parser.add_argument(
        "--ptxas", metavar="VERSION|PATH", help="assemble the lock's PTX with this ptxas (default: each kernel's own)"
    )
    parser.add_argument("--options", metavar="'...'", help="ptxas options (default: each kernel's own)")
    parser.add_argument("--update", action="store_true", help="replace what the lock says by the captures")
    add_fail_on(parser)
    add_sweep_options(parser)
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.lock)
    locked = read_lock(path)
    if arguments.captures is None:
        if arguments.update:
            raise UsageError("--update: give the captures to write to the lock")
        left_out = {kernel.identity: why for kernel in locked if (why := _why_not_again(kernel, arguments.ptxas))}
        if locked and len(left_out) == len(locked):
            raise SnapshotError(f"{path}: no kernel of it can be assembled again: {next(iter(left_out.values()))}")
        tasks = _tasks(arguments, path, [kernel for kernel in locked if kernel.identity not in left_out])
        notes = [f"not assembled again: {identity.text}: {why}" for identity, why in left_out.items()]
        notes += note_of((task.ptx, task.ptxas.version, level_of(task.options)) for task in tasks)
        changes = [Change(task.locked, now) for task, now in zip(tasks, _rechecked(arguments, tasks), strict=True)]
        unknown = (kernel for kernel in locked if kernel.identity in left_out)
        changes += [Change(kernel, replace(kernel, codes=(), figures={})) for kernel in unknown]
        changes.sort(key=lambda change: change.rank)
        notes += _notes_on_failures(arguments, changes)
        return give_changes(arguments, str(path), _assembled_by(arguments), changes, notes)
    if arguments.ptxas or arguments.options:
        raise UsageError("--ptxas and --options: only without captures, which are assembled already")
    if arguments.update:
        check_new(path, force=True)
    (kernels,), notes = kernels_at(arguments.captures)
    now = lockable(kernels, () if arguments.update else locked)
    notes += note_of((text, kernel.ptxas, level_of(kernel.options)) for kernel, text in now)
    changes = compare(locked, [kernel for kernel, _ in now])
    _check_archs(arguments.captures, changes)
    if not arguments.update:
        return give_changes(arguments, str(path), arguments.captures, changes, notes)
    write_lock(path, settled(path, locked, now), locked_tests(path))
    notes.append(f"{path} now holds what is in {arguments.captures}")
    give_changes(arguments, str(path), arguments.captures, changes, notes, gate=False)
    return 0


def _notes_on_failures(arguments: argparse.Namespace, changes: Sequence[Change]) -> list[str]:
    failed = sum(change.status is Status.FAILED for change in changes)
    if not failed:
        return []
    if arguments.options is not None:
        return ["correct --options, or leave it out to take each kernel's own"]
    remedy = "take another one with --ptxas, or leave it out to take each kernel's own"
    return [f"{count(failed, 'kernel')} not assembled by this ptxas; {remedy}"]


def _check_archs(captures: str, changes: Sequence[Change]) -> None:
    """Raises UsageError if the captures are for other architectures than the lock: all kernels would be gone."""
    old = {change.old.identity.arch for change in changes if change.old}
    new = {change.new.identity.arch for change in changes if change.new}
    if not old & new:
        raise UsageError(
            f"{captures}: its kernels are for {', '.join(sorted(new))}, the lock's for {', '.join(sorted(old))}; "
            "capture on the same kind of GPU, or make a lock for each"
        )


def _why_not_again(kernel: KernelFacts, ptxas: str | None) -> str | None:
    """Why a kernel cannot be assembled again from what the lock keeps; None if it can be."""
    if kernel.ptx_sha256 is None:
        return "its capture had no PTX; give captures"
    if kernel.ptxas is None and ptxas is None:
        return "which ptxas made it is not known; give one with --ptxas, or captures"
    return None


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


def _rechecked(arguments: argparse.Namespace, tasks: Sequence[Task]) -> list[KernelFacts]:
    with running(arguments, sweep_cache(arguments)) as (go, expect):
        expect(len(tasks))
        return recheck(tasks, go, disassembler())


def _assembled_by(arguments: argparse.Namespace) -> str:
    tool = f"ptxas {find_ptxas(arguments.ptxas).version}" if arguments.ptxas else "the same ptxas"
    return f"its PTX, assembled by {tool}{f' {arguments.options}' if arguments.options else ''}"
