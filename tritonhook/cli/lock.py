"""Write a lock of captured kernels: a text file for code review and CI.

For each kernel the lock has what identifies it, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU.

  tritonhook lock tritonhook-captures -o kernels.lock
  tritonhook show kernels.lock
  tritonhook check kernels.lock tritonhook-captures     # after a change: what is different?
  tritonhook check kernels.lock --ptxas 13.5.37         # what would this ptxas change?
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tritonhook.cli._files import check_new
from tritonhook.cli._snapshots import kernels_at, spills_note
from tritonhook.report.format import count
from tritonhook.snapshot.lockfile import write_lock
from tritonhook.snapshot.recheck import lockable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("captures", help="capture folder")
    parser.add_argument(
        "-o", "--output", default="kernels.lock", metavar="FILE", help="write the lock here (default: kernels.lock)"
    )
    parser.add_argument("--force", action="store_true", help="replace a lock that exists")


def run(arguments: argparse.Namespace) -> int:
    out = Path(arguments.output)
    check_new(out, arguments.force)
    (kernels,), notes = kernels_at(arguments.captures)
    found = lockable(kernels)
    write_lock(out, found)
    kept = sum(ptx is not None for _, ptx in found)
    print(f"wrote {out}: {count(len(found), 'kernel')}; {out}.d has the PTX of {kept:,}")
    for note in (*notes, *spills_note(locked for locked, _ in found)):
        print(f"- {note}")
    return 0
