"""Hardware counters of captured kernels, from an execution of a recorded launch on the CPU."""

from __future__ import annotations

from pathlib import Path

from tritonhook.capture.launches.contents import RECORDED
from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.reader import RecordedLaunch
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.counters.metrics import Counted
from tritonhook.errors import UsageError
from tritonhook.snapshot.facts import COUNTERS
from tritonhook.verify.cpu import ExecutionSettings, counted
from tritonhook.verify.differential import case_of


def launch_at(place: str | Path, shape: str = "") -> RecordedLaunch:
    """Choose the most frequent recorded launch of a captured kernel. place: the kernel's folder in a capture folder.
    shape: choose among launches of this shape only, unless "". Raises UsageError if there is no such launch."""
    recorded = CaptureFolder.open(Path(place).parents[1]).launches(Path(place).name)
    if not recorded:
        raise UsageError(f"{place}: no launch of this kernel was recorded; `tritonhook run --launches` records them")
    if (chosen := next((one for one in recorded if shape in ("", one.launch.summary)), None)) is None:
        raise UsageError(f"{place}: no launch of this shape was recorded: {shape}")
    return chosen


def count_launch(capture: Capture, recorded: RecordedLaunch, ctas: int | None = None) -> Counted:
    """Execute the machine code of a captured kernel for a launch, and return its counters. ctas: how many CTAs to
    execute; None: all.

    Raises CaptureError if there is no machine code, and NotUnderstood, UsageError, Fault, Hang, Unfinished."""
    case = case_of(capture.kernel, recorded.launch, recorded.folder, None)
    return counted(case, Cubin.from_bytes(capture.cubin, capture.kernel), ExecutionSettings(RECORDED, ctas))[0]


def figures_of(found: Counted) -> dict[str, int | None]:
    """Return the figures for a lock. None for memory figures if a memory access has no known counting rule."""
    whole = found.total
    known = not found.without
    values = whole.instructions, whole.sectors if known else None, whole.wavefronts_excess if known else None
    return dict(zip(COUNTERS, values, strict=True))


def moved(a: tuple[Capture, str], b: tuple[Capture, str]) -> list[tuple[str, str, int | None, int | None]]:
    """Compare the counters of two captured kernels, for launches of the same shape. Return the differing counters, the
    largest difference first: source line, counter, value of a, value of b. a, b: a capture and its folder. Raises the
    errors of count_launch, and UsageError if there is no such launch.
    """
    shape = launch_at(a[1]).launch.summary
    sides = [count_launch(capture, launch_at(place, shape)).lines for capture, place in (a, b)]
    by_line: list[dict[str, dict[str, int | None]]] = [
        {f"{Path(file).name}:{line}": own.ncu for (file, line), own in side.items()} for side in sides
    ]
    found = []
    for line in dict.fromkeys([*by_line[0], *by_line[1]]):
        old, new = (side.get(line, {}) for side in by_line)
        found += [(line, name, old.get(name, 0), new.get(name, 0)) for name in {**old, **new}]
    differing = [one for one in found if one[2] != one[3]]
    return sorted(differing, key=lambda one: -abs((one[3] or 0) - (one[2] or 0)))
