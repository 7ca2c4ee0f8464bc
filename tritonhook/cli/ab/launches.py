"""Which recorded launch is repeated: the one that --args or --launch names, else the most frequent or the longest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tritonhook.capture.store import CaptureFolder, RecordedLaunch, read_launch, read_launches
from tritonhook.errors import CaptureError, UsageError
from tritonhook.timing.coordinator import rough_times

_LISTED = 5  # of a script's other launches


def has_launches(place: Path) -> bool:
    """Whether a capture, or a folder of captures, has recorded launches."""
    return any(place.glob("launches/*.json")) or any(place.glob("kernels/*/launches/*.json"))


def launch_file(one: RecordedLaunch) -> Path:
    return one.folder / f"{one.key}.json"


def launch_of(args: str | None, key: str | None, targets: Sequence[str]) -> Path:
    """The record's file: `args` if it is one; else the most frequent launch of the capture `args`, or of a target.

    key: the beginning of the key of the launch that is meant. Raises UsageError.
    """
    if args is not None and Path(args).is_file():
        read_launch(Path(args))
        return Path(args)
    if args is not None and not Path(args).exists():
        raise UsageError(f"--args {args}: no such file or folder")
    for place in (args,) if args is not None else targets:
        if found := _most_frequent(Path(place), key):
            return launch_file(found)
    code_only = f"; `tritonhook diff {' '.join(targets)}` compares their code without" if len(targets) == 2 else ""
    raise UsageError(
        f"{args or targets[0]}: no recorded launch; record one with `tritonhook run --launches`, or give --args FILE"
        f"{code_only}"
    )


def _most_frequent(place: Path, key: str | None) -> RecordedLaunch | None:
    found = list(read_launches(place))
    with suppress(CaptureError):  # a capture outside a capture folder has no counts
        counted = CaptureFolder.open(place.absolute().parent.parent).launches(place.absolute().name)
        found = list(counted) or found
    if key is None:
        return found[0] if found else None
    fitting = [one for one in found if one.key.startswith(key)]
    if len(fitting) != 1:
        listed = "\n  ".join(f"{one.key}  {one.launch.summary}" for one in found)
        raise UsageError(f"--launch {key}: {len(fitting)} launches fit; the recorded ones are:\n  {listed or '(none)'}")
    return fitting[0]


def launches_of(captures: CaptureFolder, entry: str | None, key: str | None) -> list[RecordedLaunch]:
    """The recorded launches of a capture folder; of the kernel `entry`, and with keys that begin so, if given."""
    return [
        one
        for record in captures.records
        for one in captures.launches(record)
        if entry in (None, captures.capture(record).kernel) and one.key.startswith(key or "")
    ]


def longest(
    label: str, captures: CaptureFolder, launches: Sequence[RecordedLaunch]
) -> tuple[RecordedLaunch, tuple[str, ...]]:
    """Time every launch roughly. Returns the one with most time in all, and notes with the shares of the others.

    A single launch is not timed. Raises UsageError if none can be repeated, DeviceError without a GPU.
    """
    if len(launches) == 1:
        return launches[0], ()
    by_key = {(one.record, one.key): one for one in launches}
    measured = [entry for entry in rough_times(captures.path) if (entry["record"], entry["launch"]) in by_key]
    usable = [entry for entry in measured if entry["us"] is not None]
    if not usable:
        raise UsageError(
            f"{label}: none of its launches can be launched again: {measured[0]['why'] if measured else ''}"
        )
    total = sum(entry["us"] * entry["count"] for entry in usable)
    lines = []
    for entry in usable[: _LISTED + 1]:
        share, name = entry["us"] * entry["count"] / total, captures.capture(entry["record"]).kernel
        lines.append(f"{name} {share:.0%} ({entry['count']} x {entry['us']:.1f} us, --launch {entry['launch']})")
    more = f", and {len(usable) - len(lines)} more" if len(usable) > len(lines) else ""
    failed = (f"{len(measured) - len(usable)} launches could not be repeated",) if len(usable) < len(measured) else ()
    best = by_key[usable[0]["record"], usable[0]["launch"]]
    return best, (f"of the recorded launches' time: {'; '.join(lines)}{more}", *failed)
