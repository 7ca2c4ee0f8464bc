"""Write a lock of captured kernels, or of those in built libraries: a text file for code review and CI.

For each kernel the lock has what identifies it, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU. Built libraries have
machine code only: registers, stack, shared memory, access to local memory and bytes of code of every kernel and target.

  tritonhook lock                                        # the folder that `tritonhook run` writes to
  tritonhook lock build/libfoo.so dist/*.whl extension.cubin
  tritonhook lock my_kernels.py --arch sm_90a,sm_120a    # without a GPU: the script runs dry
  tritonhook show tritonhook.lock
  tritonhook check tritonhook-captures        # after a change: what is different?
  tritonhook check --ptxas 13.5.37            # what would this ptxas change?
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tritonhook.capture.dry_run.gpu import DryRun
from tritonhook.capture.dry_run.process import check_assembled
from tritonhook.capture.project import USUAL_LOCK, lock_path
from tritonhook.capture.settings import default_out
from tritonhook.cli._lockable import budget_notes, lockable_at
from tritonhook.cli._parser import Group, argument, flag, option
from tritonhook.cli._programs import is_script, run_dry, script_command
from tritonhook.cli._streams import check_new
from tritonhook.cli.check import spills_note
from tritonhook.errors import SnapshotError, UsageError
from tritonhook.report.format import count
from tritonhook.snapshot.lockfile import read_whole_lock, write_lock


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    places: tuple[str, ...] = argument(
        nargs="*",
        metavar="PLACE",
        help="capture folder (default: the one that `run` writes to); a script, with --arch; or built libraries, "
        "archives, wheels, cubins, folders of them",
    )
    output: str | None = option(
        "-o", "--output", metavar="FILE", help=f"write the lock here (default: the project's, else {USUAL_LOCK})"
    )
    force: bool = flag(help="replace a lock that exists")
    arch: str | None = option(
        metavar="sm_XX,...",
        help="run the script dry for each of these architectures, without a GPU, and lock its kernels",
    )


def run(options: Options) -> int:
    out = lock_path(Path.cwd()) if options.output is None else Path(options.output)
    check_new(out, options.force)
    if (script := next(filter(is_script, options.places), None)) is not None:
        if options.arch is None or len(options.places) > 1:
            raise UsageError(f"{script}: a script; give it alone, with --arch sm_90a,... to run it dry")
        with TemporaryDirectory(prefix="tritonhook-") as folder:
            failed = _run_dry(script, options.arch.split(","), Path(folder))
            return _lock((folder,), out, failed, script)
    if options.arch is not None:
        raise UsageError("--arch: for a script, which is run dry; a capture folder has its architectures")
    return _lock(options.places or (default_out(),), out, [])


def _run_dry(script: str, archs: Sequence[str], folder: Path) -> list[str]:
    """Run the script dry for each architecture. Returns a line for each run that failed."""
    command = script_command([script], False)
    runs = [DryRun.of(arch) for arch in archs]
    for dry in runs:
        check_assembled(dry)
    codes = [(dry.arch, run_dry(command, folder, dry)) for dry in runs]
    return [f"{script} ended with status {code} in its dry run for {arch}" for arch, code in codes if code]


def _lock(places: Sequence[str], out: Path, failed: Sequence[str], script: str | None = None) -> int:
    locked, _, notes = lockable_at(places)
    if script is not None:
        notes = [note.replace(places[0], script) for note in notes]
    budgets = None
    with suppress(SnapshotError):  # no lock to replace: there are none to keep
        budgets = read_whole_lock(out).budgets
    write_lock(out, locked, budgets=budgets)
    kept = sum(ptx is not None for _, ptx in locked)
    with_ptx = f"; {out}.d has the PTX of {kept:,}" if kept else ""
    print(f"wrote {out}: {count(len(locked), 'kernel')}{with_ptx}")
    kernels = [facts for facts, _ in locked]
    for note in (*failed, *notes, *spills_note(kernels), *budget_notes(kernels)):
        print(f"- {note}")
    return int(bool(failed))
