"""Write a lock of captured kernels, or of those in built libraries: a text file for code review and CI.

For each kernel the lock has its identity, its resources, and hashes of its machine code. The PTX is kept beside
the lock, so that `tritonhook check` can assemble it with another ptxas, without Triton or a GPU. Built libraries have
machine code only: registers, stack, shared memory, access to local memory and bytes of code of every kernel and target.
Of a script that fails, or is interrupted, no lock is written: the exit code is the script's, or 128 + N of signal N.

  tritonhook lock                                        # the folder that `tritonhook run` writes to
  tritonhook lock build/libfoo.so dist/*.whl extension.cubin
  tritonhook lock mm.py ops.py --arch sm_90a,sm_120a     # without a GPU: the scripts run dry
  tritonhook show tritonhook.lock
  tritonhook check tritonhook-captures        # after a change: what is different?
  tritonhook check --ptxas 13.5.37            # what would this ptxas change?
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tritonhook.capture.dry_run.gpu import ALL, FIRST, PINNED, DryRun
from tritonhook.capture.dry_run.process import check_assembled
from tritonhook.capture.model import Capture
from tritonhook.capture.project import USUAL_LOCK, lock_path
from tritonhook.capture.settings import default_out
from tritonhook.cli._inputs import captures_at, is_folder, kernels_at
from tritonhook.cli._parser import Group, argument, flag, option
from tritonhook.cli._programs import is_script, run_well
from tritonhook.cli._streams import check_new, complain, working
from tritonhook.cubin.shipped import is_shipped
from tritonhook.errors import ProgramError, SnapshotError, UsageError, listed
from tritonhook.report.result import count
from tritonhook.snapshot.captured import Kernels, lockable
from tritonhook.snapshot.facts import KernelFacts, built_kernels
from tritonhook.snapshot.lockfile import read_whole_lock, write_lock


def autotune_option() -> Any:
    return option(
        choices=(ALL, FIRST, PINNED),
        help="of an autotuned kernel in a script's dry run, compile all configurations (default), the first that fits, "
        "or what the project's policy pins",
    )


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


def run(options: Options) -> int:
    out = lock_path(Path.cwd()) if options.output is None else Path(options.output)
    check_new(out, options.force)
    places = options.places if options.arch or options.places else (default_out(),)
    try:
        with dry_places(places, options.arch, options.autotune, f"{out} was not written") as named:
            return _lock(named, out)
    except ProgramError as error:
        complain("lock", error)
        return error.status


def _lock(named: Mapping[str, str], out: Path) -> int:
    locked, _, notes = lockable_at(list(named))
    notes = [as_named(note, named) for note in notes]
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


# The kernels of a lock: of a capture folder, of built files, or of both; `check` reads them here too.


class Found(NamedTuple):
    """Kernels ready for a lock, each with its PTX. captured: those of a capture folder, with their captures."""

    lockable: list[tuple[KernelFacts, str | None]]
    captured: Kernels
    notes: list[str]


@contextmanager
def dry_places(
    places: Sequence[str], archs: str | None, autotune: str | None, without: str
) -> Iterator[Mapping[str, str]]:
    """The places, each with how the user names it. With architectures the scripts among them run dry, and are one
    capture folder, which goes away again. without: as of run_well. Raises UsageError, and else as run_well."""
    scripts = [it for it in places if not is_built(it) and (archs is not None or (is_script(it) and not is_folder(it)))]
    if archs is None:
        if scripts:
            raise UsageError(f"{scripts[0]}: a script; give --arch sm_90a,... to run it dry, or a capture folder")
        if autotune is not None:
            raise UsageError("--autotune: for a script, which --arch runs dry; else give it to `tritonhook run`")
        yield dict(zip(places, places, strict=True))
        return
    if not scripts or any(Path(script).is_dir() for script in scripts):
        raise UsageError("--arch: for a script, which is run dry; a capture folder has its architectures")
    runs = [DryRun.of(arch.strip()) for arch in archs.split(",")]
    for dry in runs:
        check_assembled(dry)
    with TemporaryDirectory(prefix="tritonhook-dry-") as folder:
        words = ["-m", "tritonhook", "run", "--out", folder, "--autotune", autotune or ALL]
        for dry in runs:
            for script in scripts:
                run_well(
                    [sys.executable, *words, "--arch", dry.arch, script], dict(os.environ), script, without, dry.arch
                )
        yield {**{it: it for it in places if it not in scripts}, folder: " ".join(scripts)}


def as_named(note: str, named: Mapping[str, str]) -> str:
    """A note on places, as the user names them."""
    for place, own in named.items():
        note = note.replace(f"{place}: ", f"{own}: ", 1)
    return note


def is_built(place: str) -> bool:
    """Whether this is a built file, or a folder that is not one of captures."""
    path = Path(place)
    return is_shipped(path) or (path.is_dir() and not is_folder(place) and not (path / "capture.json").exists())


def lockable_at(
    places: Sequence[str], known: Sequence[KernelFacts] = (), check_archs: Callable[[str, set[str]], None] | None = None
) -> Found:
    """The kernels at these places. known: as for captured.lockable. check_archs: is given a
    place and the architectures of its kernels, before their code is read. Raises UsageError, CaptureError, CubinError
    or ToolError."""
    built = [place for place in places if is_built(place)]
    captures = [place for place in places if place not in built]
    if len(captures) > 1:
        raise UsageError(f"{' '.join(captures)}: give one capture folder; built files may be several")
    pairs: list[tuple[KernelFacts, str | None]] = []
    kernels: Kernels = []
    notes: list[str] = []
    for place in captures:
        folder = captures_at(place)
        if check_archs is not None:
            check_archs(place, {capture.arch for capture in folder.captures().values() if isinstance(capture, Capture)})
        (kernels,), notes = kernels_at(folder, names=(place,))
        pairs = lockable(kernels, known)
    if built:
        with working(f"reading the kernels of {' and '.join(built)}"):
            read = built_kernels(built)
        pairs += [(facts, None) for facts in read.kernels]
        notes += read.notes
    return Found(pairs, kernels, notes)


def budget_notes(kernels: Iterable[KernelFacts]) -> list[str]:
    """What a reader of a lock of built files has to know."""
    unknown = sum(it.figures.get("spill_stores") is None and bool(it.figures.get("local_bytes")) for it in kernels)
    what = "access local memory; without PTX it is not known which accesses are spills: see local_bytes"
    return [f"{unknown:,} of the built kernels {what}"] if unknown else []


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """A note on kernels whose spills neither their code nor their PTX tells."""
    names = list(
        dict.fromkeys(f"{kernel.identity.kernel} {kernel.identity.arch}" for kernel in kernels if kernel.ran_again)
    )
    return [f"spills counted by one more run of ptxas, which gave the same code: {listed(names)}"] if names else []
