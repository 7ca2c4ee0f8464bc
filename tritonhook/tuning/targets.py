"""The kernels of a capture folder that can be tuned, each with its launches and its share of the GPU's time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import stem
from tritonhook.capture.store import CaptureFolder, RecordedLaunch
from tritonhook.errors import CaptureError, TritonHookError
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.tuning.candidates import Subject

_OTHERS = 2  # launches of a kernel besides the longest one, at which a gain must not be a loss
_MATTERS = 0.1  # the share of a kernel's time at which a launch is one of them


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch of a kernel. path: its record. count: how often it was made. us: its time, roughly; None if not
    known."""

    record: str
    key: str
    path: Path
    summary: str
    count: int
    us: float | None = None

    @property
    def total(self) -> float:
        return self.count * (0.0 if self.us is None else self.us)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that can be tuned: one PTX, compiled once or several times.

    record: in its capture folder. ptx: the hash of its normalised PTX. launches: the one that takes most time first, or
    the most frequent one where times are not known. share: of the GPU's time; None if not known.
    """

    record: str
    name: str
    arch: str
    front_end: str
    ptx: str
    launches: tuple[Launched, ...]
    share: float | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What a policy's entry has as its identity."""
        return self.name, self.arch, self.front_end, self.ptx

    @property
    def others(self) -> tuple[Launched, ...]:
        """The further launches at which a gain must hold."""
        whole = sum(one.total for one in self.launches) or 1.0
        return tuple(one for one in self.launches[1:] if one.total / whole >= _MATTERS)[:_OTHERS]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kernel that is not tuned, and why."""

    kernel: str
    record: str
    reason: str
    share: float | None = None


def kernels_in(captures: CaptureFolder, entry: str | None = None) -> list[Kernel | Skipped]:
    """The kernels of a capture folder, without those that lost an autotuning. entry: only kernels of this name."""
    found: dict[tuple[str, ...], Kernel] = {}
    skipped: list[Skipped] = []
    for record in captures.records:
        if record in captures.lost:
            continue
        capture = captures.try_capture(record)
        if isinstance(capture, CaptureError):
            skipped.append(Skipped(record, record, str(capture)))
        elif entry in (None, capture.kernel):
            one = _kernel(captures, record, capture)
            if isinstance(one, Skipped):
                skipped.append(one)
                continue
            group = (stem(one.name), *one.identity[1:])
            earlier = found.get(group)
            found[group] = one if earlier is None else replace(earlier, launches=earlier.launches + one.launches)
    return [*found.values(), *skipped]


def subject_of(captures: CaptureFolder, kernel: Kernel, trust: bool = False) -> Subject | Skipped:
    """What assembles a kernel; why not, where its ptxas is not here. trust: as in find_recorded."""
    try:
        return Subject.of(captures.capture(kernel.record), trust)
    except TritonHookError as error:
        return Skipped(kernel.name, kernel.record, str(error), kernel.share)


def with_shares(kernels: Iterable[Kernel], measured: Sequence[Mapping[str, Any]]) -> list[Kernel | Skipped]:
    """The same kernels with their shares of the time of all launches, the largest first. measured: as rough_times."""
    by_launch = {(entry["record"], entry["launch"]): entry for entry in measured}
    whole = sum((entry["us"] or 0.0) * entry["count"] for entry in measured) or 1.0
    found: list[Kernel | Skipped] = []
    for kernel in kernels:
        entries = [by_launch.get((one.record, one.key), {}) for one in kernel.launches]
        timed = [
            replace(one, us=entry["us"])
            for one, entry in zip(kernel.launches, entries, strict=True)
            if entry.get("us") is not None
        ]
        if not timed:
            why = next((entry["why"] for entry in entries if entry.get("why")), "it was not timed")
            found.append(Skipped(kernel.name, kernel.record, f"it cannot be launched again: {why}"))
            continue
        timed.sort(key=lambda one: -one.total)
        found.append(replace(kernel, launches=tuple(timed), share=sum(one.total for one in timed) / whole))
    return sorted(found, key=lambda one: -(one.share or 0.0))


def that_matter(
    kernels: Iterable[Kernel | Skipped], top: int | None, min_share: float
) -> tuple[list[Kernel], list[Skipped]]:
    """The kernels to tune and the others. top: at most so many. min_share: none with a smaller share."""
    wanted: list[Kernel] = []
    left: list[Skipped] = []
    for one in kernels:
        if isinstance(one, Skipped):
            left.append(one)
        elif one.share is not None and one.share < min_share:
            left.append(Skipped(one.name, one.record, f"its share is below {min_share:.1%}", one.share))
        elif top is not None and len(wanted) >= top:
            left.append(Skipped(one.name, one.record, f"not one of the first {top}", one.share))
        else:
            wanted.append(one)
    return wanted, left


def _kernel(captures: CaptureFolder, record: str, capture: Capture) -> Kernel | Skipped:
    name = capture.kernel
    text = capture.text(Stage.PTX)
    if capture.front_end == "cute":
        return Skipped(name, record, "launches of CuTe kernels are not recorded; time a lever with `tritonhook ab`")
    if capture.rewritten_from is not None or capture.lever is not None:
        return Skipped(name, record, "it was rewritten already; capture the program without that")
    if text is None:
        return Skipped(name, record, f"no PTX in the capture; {capture.note or 'it was not available'}")
    try:
        launches = captures.launches(record)
    except CaptureError as error:
        return Skipped(name, record, str(error))
    if not launches:
        why = next((note for note in captures.notes if "was not recorded" in note and name in note), None)
        remedy = "record launches on a GPU with `tritonhook run --launch-values`"
        return Skipped(name, record, why or f"no launch was recorded; {remedy}")
    found = tuple(map(_launched, launches))
    return Kernel(record, name, capture.arch, capture.front_end, normal_sha256(text, name), found)


def _launched(one: RecordedLaunch) -> Launched:
    return Launched(one.record, one.key, one.folder / f"{one.key}.json", one.launch.summary, one.count or 1)
