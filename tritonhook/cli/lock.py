"""Write a lock of captured kernels, or of those in built libraries: a text file for code review and CI.

For each kernel the lock has what identifies it, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU. Built libraries have
machine code only: registers, stack, shared memory, access to local memory and bytes of code of every kernel and target.

  tritonhook lock tritonhook-captures
  tritonhook lock build/libfoo.so dist/*.whl extension.cubin
  tritonhook show tritonhook.lock
  tritonhook check tritonhook-captures        # after a change: what is different?
  tritonhook check --ptxas 13.5.37            # what would this ptxas change?
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.project import USUAL_LOCK, lock_path
from tritonhook.cli._lockable import budget_notes, lockable_at
from tritonhook.cli._parser import Group, argument, flag, option
from tritonhook.cli._streams import check_new
from tritonhook.cli.check import spills_note
from tritonhook.errors import SnapshotError
from tritonhook.report.format import count
from tritonhook.snapshot.lockfile import read_whole_lock, write_lock


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    places: tuple[str, ...] = argument(
        nargs="+", metavar="PLACE", help="capture folder; or built libraries, archives, wheels, cubins, folders of them"
    )
    output: str | None = option(
        "-o", "--output", metavar="FILE", help=f"write the lock here (default: the project's, else {USUAL_LOCK})"
    )
    force: bool = flag(help="replace a lock that exists")


def run(options: Options) -> int:
    out = lock_path(Path.cwd()) if options.output is None else Path(options.output)
    check_new(out, options.force)
    locked, _, notes = lockable_at(options.places)
    budgets = None
    with suppress(SnapshotError):  # no lock to replace: there are none to keep
        budgets = read_whole_lock(out).budgets
    write_lock(out, locked, budgets=budgets)
    kept = sum(ptx is not None for _, ptx in locked)
    with_ptx = f"; {out}.d has the PTX of {kept:,}" if kept else ""
    print(f"wrote {out}: {count(len(locked), 'kernel')}{with_ptx}")
    kernels = [facts for facts, _ in locked]
    for note in (*notes, *spills_note(kernels), *budget_notes(kernels)):
        print(f"- {note}")
    return 0
