"""Write a lock of captured kernels: a text file for code review and CI.

For each kernel the lock has what identifies it, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU.

  tritonhook lock tritonhook-captures
  tritonhook show tritonhook.lock
  tritonhook check tritonhook-captures        # after a change: what is different?
  tritonhook check --ptxas 13.5.37            # what would this ptxas change?
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.project import USUAL_LOCK, lock_path
from tritonhook.cli._inputs import kernels_at
from tritonhook.cli._parser import Group, argument, flag, option
from tritonhook.cli._streams import check_new
from tritonhook.cli.check import spills_note
from tritonhook.report.format import count
from tritonhook.snapshot.lockfile import write_lock
from tritonhook.snapshot.recheck import lockable


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    captures: str = argument(help="capture folder")
    output: str | None = option(
        "-o", "--output", metavar="FILE", help=f"write the lock here (default: the project's, else {USUAL_LOCK})"
    )
    force: bool = flag(help="replace a lock that exists")


def run(options: Options) -> int:
    out = lock_path(Path.cwd()) if options.output is None else Path(options.output)
    check_new(out, options.force)
    (kernels,), notes = kernels_at(options.captures)
    locked = lockable(kernels)
    write_lock(out, locked)
    kept = sum(ptx is not None for _, ptx in locked)
    print(f"wrote {out}: {count(len(locked), 'kernel')}; {out}.d has the PTX of {kept:,}")
    for note in (*notes, *spills_note(facts for facts, _ in locked)):
        print(f"- {note}")
    return 0
