"""Read the kernels of a lock: of a capture folder, of built files, of scripts that run dry. For `lock` and `check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import ALL, FIRST, PINNED, DryRun
from tritonhook.capture.dry_run.process import check_assembled
from tritonhook.capture.model import Capture
from tritonhook.cli._inputs import captures_at, is_folder, kernels_at
from tritonhook.cli._parser import option
from tritonhook.cli._programs import is_script, run_well
from tritonhook.cli._progress import working
from tritonhook.cubin.shipped import is_shipped
from tritonhook.errors import UsageError, listed
from tritonhook.report.result import count
from tritonhook.snapshot.facts import KernelFacts, built_kernels
from tritonhook.snapshot.folders import Kernels
from tritonhook.snapshot.lockable import lockable

Failed = Sequence[tuple[str, str]]  # kernels that could not be compiled, each with the error


def autotune_option() -> Any:
    return option(
        choices=(ALL, FIRST, PINNED),
        help="of an autotuned kernel in a script's dry run, compile all configurations (default), the first that fits, "
        "or what the project's policy pins",
    )


class Found(NamedTuple):
    """Kernels ready for a lock, each with its PTX. captured: those of a capture folder, with their captures. failed:
    those that were not compiled, with the error."""

    lockable: list[tuple[KernelFacts, str | None]]
    captured: Kernels
    notes: list[str]
    failed: Failed


@contextmanager
def dry_places(
    places: Sequence[str], archs: str | None, autotune: str | None, without: str
) -> Iterator[Mapping[str, str]]:
    """Yield the places, each with the name that the user gave it. With architectures, run the scripts among them dry,
    into one temporary capture folder. without: as for run_well. Raises UsageError, and as run_well."""
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
    """Replace places in a note by the names that the user gave them."""
    for place, own in named.items():
        note = note.replace(f"{place}: ", f"{own}: ", 1)
    return note


def is_built(place: str) -> bool:
    """Return True for a built file, and for a folder without captures."""
    path = Path(place)
    return is_shipped(path) or (path.is_dir() and not is_folder(place) and not (path / "capture.json").exists())


def lockable_at(
    places: Sequence[str],
    known: Sequence[KernelFacts] = (),
    check_archs: Callable[[str, set[str]], None] | None = None,
) -> Found:
    """Read the kernels at these places. known: as for captured.lockable. check_archs: called with a place and the
    architectures of its kernels, before their code is read. Raises UsageError, CaptureError, CubinError, ToolError."""
    built = [place for place in places if is_built(place)]
    captures = [place for place in places if place not in built]
    if len(captures) > 1:
        raise UsageError(f"{' '.join(captures)}: give one capture folder; built files may be several")
    pairs: list[tuple[KernelFacts, str | None]] = []
    kernels: Kernels = []
    notes: list[str] = []
    failed: Failed = ()
    for place in captures:
        folder = captures_at(place)
        if check_archs is not None:
            check_archs(place, {capture.arch for capture in folder.captures().values() if isinstance(capture, Capture)})
        failed = tuple(folder.failed.values())
        (kernels,), notes = kernels_at(folder, names=(place,))
        pairs = lockable(kernels, known)
    if built:
        with working(f"reading the kernels of {' and '.join(built)}"):
            read = built_kernels(built)
        pairs += [(facts, None) for facts in read.kernels]
        notes += read.notes
    return Found(pairs, kernels, notes, failed)


def with_executed(
    captured: Kernels, facts: Sequence[KernelFacts], known: Sequence[KernelFacts] = (), *, counts: bool, bits: bool
) -> tuple[list[KernelFacts], list[str]]:
    """Add counters and bits to the facts of captured kernels, by executing their launches on the CPU. facts: of these,
    in their order, and of others behind them. known: as for executed.with_executed. Also return notes."""
    if not (counts or bits):
        return list(facts), []
    check_numpy()
    from tritonhook.snapshot.executed import with_executed

    with working(f"executing {count(len(captured), 'kernel')}"):
        pairs = [(capture, own) for (capture, _), own in zip(captured, facts, strict=False)]
        done, notes = with_executed(pairs, known, counts, bits)
    return [*done, *facts[len(done) :]], notes


def spills_note(kernels: Iterable[KernelFacts]) -> list[str]:
    """Note the kernels whose spills neither their code nor their PTX shows."""
    names = list(
        dict.fromkeys(f"{kernel.identity.kernel} {kernel.identity.arch}" for kernel in kernels if kernel.ran_again)
    )
    return [f"spills counted by one more run of ptxas, which gave the same code: {listed(names)}"] if names else []
