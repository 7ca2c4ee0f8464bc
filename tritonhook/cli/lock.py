"""Write a lock of captured kernels, or of kernels in built libraries: a text file for code review and CI.

For each kernel the lock has its identity, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU. Built libraries have
machine code only: the lock has registers, stack, shared memory, access to local memory and bytes of code of every
kernel and target. If a script fails or is interrupted, no lock is written, and the exit code is the script's, or 128 +
N for signal N. The exit code is 2 if a kernel could not be compiled; the lock then has the other kernels.

  tritonhook lock                                        # the folder that `tritonhook run` writes to
  tritonhook lock build/libfoo.so dist/*.whl extension.cubin
  tritonhook lock mm.py ops.py --arch sm_90a,sm_120a     # without a GPU: the scripts run dry
  tritonhook lock mm.py --arch sm_90a --bits             # also lock a hash of what the kernels store
  tritonhook show tritonhook.lock
  tritonhook check tritonhook-captures        # after a change: what is different?
  tritonhook check --ptxas 13.5.37            # what would this ptxas change?
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.project import USUAL_LOCK, lock_path
from tritonhook.capture.settings import default_out
from tritonhook.cli._changes import autotune_option, dry_places, lockable_at, spills_note, with_executed
from tritonhook.cli._parser import Group, argument, flag, option
from tritonhook.cli._results import check_new
from tritonhook.cli._streams import complain
from tritonhook.errors import ProgramError, SnapshotError
from tritonhook.report.result import count
from tritonhook.snapshot.lockfile import read_whole_lock, write_lock


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    places: tuple[str, ...] = argument(
        nargs="*",
        metavar="PLACE",
        help="capture folder (default: the one that `run` writes to); scripts, with --arch; or built libraries, "
        "archives, wheels, cubins, folders of them",
    )
    output: str | None = option(
        "-o", "--output", metavar="FILE", help=f"write the lock here (default: the project's, else {USUAL_LOCK})"
    )
    force: bool = flag(help="replace a lock that exists")
    arch: str | None = option(
        metavar="sm_XX,...",
        help="run the scripts dry for each of these architectures, without a GPU, and lock their kernels",
    )
    autotune: str | None = autotune_option()
    bits: bool = flag(
        help="also execute recorded launches on the CPU, with seeded inputs, and lock a hash of what each kernel stores"
    )
    count: bool = flag(
        help="execute a recorded launch of each kernel on the CPU, and lock its counters: instructions, sectors, bank "
        "conflicts"
    )


def run(options: Options) -> int:
    out = lock_path(Path.cwd()) if options.output is None else Path(options.output)
    check_new(out, options.force)
    places = options.places if options.arch or options.places else (default_out(),)
    try:
        with dry_places(places, options.arch, options.autotune, f"{out} was not written") as named:
            found = lockable_at(named)
            kernels, further = with_executed(found.captures, found.kernels, counts=options.count, bits=options.bits)
    except ProgramError as error:
        complain("lock", error)
        return error.status
    budgets = None
    with suppress(SnapshotError):  # there is no readable lock, so no budgets to keep
        budgets = read_whole_lock(out).budgets
    write_lock(out, zip(kernels, found.texts, strict=True), budgets=budgets)
    kept = sum(ptx is not None for ptx in found.texts)
    with_ptx = f"; {out}.d has the PTX of {kept:,}" if kept else ""
    tried = count(len(kernels) + len(found.failed), "kernel")
    print(f"wrote {out}: {f'{len(kernels):,} of ' if found.failed else ''}{tried}{with_ptx}")
    notes = [*(f"not locked: {kernel}: {why}" for kernel, why in found.failed), *found.notes, *further]
    notes += spills_note(kernels)
    unknown = sum(it.figures.get("spill_stores") is None and bool(it.figures.get("local_bytes")) for it in kernels)
    if unknown:
        what = "access local memory; without PTX it is not known which accesses are spills: see local_bytes"
        notes.append(f"{unknown:,} of the built kernels {what}")
    for note in notes:
        print(f"- {note}")
    return 2 if found.failed else 0
