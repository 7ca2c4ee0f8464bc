"""The kernels that `lock` and `check` work on: of a capture folder, of built files, or of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tritonhook.capture.model import Capture
from tritonhook.cli._inputs import captures_at, is_folder, kernels_at
from tritonhook.cli._streams import working
from tritonhook.cubin.shipped import is_shipped
from tritonhook.errors import UsageError
from tritonhook.snapshot.built import built_kernels
from tritonhook.snapshot.captured import Kernels
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.recheck import lockable


class Found(NamedTuple):
    """Kernels ready for a lock, each with its PTX. captured: those of a capture folder, with their captures."""

    lockable: list[tuple[KernelFacts, str | None]]
    captured: Kernels
    notes: list[str]


def is_built(place: str) -> bool:
    """Whether this is a built file, or a folder that is not one of captures."""
    path = Path(place)
    return is_shipped(path) or (path.is_dir() and not is_folder(place) and not (path / "capture.json").exists())


def lockable_at(
    places: Sequence[str], known: Sequence[KernelFacts] = (), check_archs: Callable[[str, set[str]], None] | None = None
) -> Found:
    """The kernels at these places. known: as for recheck.lockable. check_archs: is given a
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
    what = "access local memory, and only their PTX tells which of it are spills: see local_bytes"
    return [f"{unknown:,} of the built kernels {what}"] if unknown else []
