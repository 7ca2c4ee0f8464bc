"""Find races between launches, in a dry run that executes launches one after the other.

For each storage, the latest launches are stored with the bytes that they wrote and read. A new launch races with an
earlier launch of another stream if nothing orders them, both access the same byte, and at least one of them writes it.
With programmatic dependent launch, a kernel's accesses before its wait can also race with the previous launch of the
same stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tritonhook.capture.dry_run.gpu import line_of_program
from tritonhook.capture.dry_run.streams import order
from tritonhook.capture.dry_run.suppressions import found
from tritonhook.emulate.sanitizer.world import Accessed
from tritonhook.emulate.words import Array

# A buffer of a launch: (tensor, first byte of the buffer in the tensor's storage, name, function that returns the name
# of the element at a byte).
_Buffer = tuple[Any, int, str, Callable[[int], str]]
_MOST = 256  # maximum number of launches stored for each storage


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """The accesses of one launch to one storage. launch: number of the launch. stream: number of its stream. where:
    line of the program. written, read: begins and ends of the accessed pieces, in bytes of the storage."""

    launch: int
    stream: int
    kernel: str
    where: str
    written: Array
    read: Array

    @property
    def is_ordered(self) -> bool:
        """True if the current stream or the host has waited for this launch."""
        known: int = max(clock.get(self.stream, 0) for clock in (order.stream.clock, order.host))
        return known >= self.launch

    def covers(self, other: _Access) -> bool:
        """Check whether every access that races with `other` also races with this launch. other: an earlier launch of
        the same stream."""
        reads = _lie_in(other.read, self.read) or _lie_in(other.read, self.written)
        return reads and _lie_in(other.written, self.written)


def _meet(a: Array, b: Array) -> int | None:
    """Return a byte that is in a piece of a and in a piece of b; None if there is none."""
    if not a.size or not b.size:
        return None
    last: Array = np.searchsorted(b[0], a[1], "left") - 1  # the last piece of b that begins before a piece of a ends
    meets = np.flatnonzero((last >= 0) & (b[1][last] > a[0]))
    return int(max(a[0][meets[0]], b[0][last[meets[0]]])) if len(meets) else None


def _lie_in(a: Array, b: Array) -> bool:
    """Check whether each piece of a is inside a piece of b."""
    if not a.size or not b.size:
        return not a.size
    last = np.searchsorted(b[0], a[0], "right") - 1
    return bool(((last >= 0) & (b[1][last] >= a[1])).all())


class StreamRaces:
    """The latest launches of a process, by storage. Each entry has a weak reference to the storage, so that the key of
    a freed storage is not used again before the entry is removed."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, list[_Access]]] = {}
        self._operations = 0

    def launched(self, kernel: str, places: Iterable[_Buffer], accesses: Sequence[Accessed]) -> None:
        """Record a launch on the current stream, and report its races. accesses: the launch's accesses to each buffer
        in `places`."""
        if "torch" not in sys.modules:  # only torch has streams
            return
        from torch.multiprocessing.reductions import StorageWeakRef

        for key in [key for key, (one, _) in self._of.items() if one.expired()]:
            del self._of[key]
        where, stream = line_of_program(), order.stream
        new = list[tuple[int, _Access]]()
        before = stream.clock.get(stream.number, 0) if order.operations == self._operations else 0
        self._operations = order.operations
        for (tensor, start, *names), one in zip(places, accesses, strict=True):
            storage = StorageWeakRef(tensor.untyped_storage())
            made = _Access(0, stream.number, kernel, where, one.written + start, one.read + start)
            early = _Access(0, stream.number, kernel, where, one.early_written + start, one.early_read + start)
            _, earlier = self._of.setdefault(storage.cdata, (storage, []))
            for other in earlier:
                if other.stream != stream.number and not other.is_ordered:
                    _note(other, made, names, start)
                elif other.launch == before > order.host.get(stream.number, 0):
                    _note(other, early, names, start)
            new.append((storage.cdata, made))
        number = order.launched()
        for key, made in new:
            made = replace(made, launch=number)
            storage, earlier = self._of[key]
            kept = [other for other in earlier if other.stream != made.stream or not made.covers(other)]
            kept = [other for other in kept if order.host.get(other.stream, 0) < other.launch]
            self._of[key] = storage, [*kept[-_MOST:], made]


def _note(first: _Access, second: _Access, names: Sequence[Any], start: int) -> None:
    pairs = (first.written, second.written), (first.written, second.read), (first.read, second.written)
    at = next((at for pair in pairs if (at := _meet(*pair)) is not None), None)
    if at is None:
        return
    streams = [f"stream {one.stream}" if one.stream else "the default stream" for one in (second, first)]
    name, element = names[0], names[1](at - start)
    name += f", at {element}" if element else ""
    both = f"both access byte {at - start:,} of {name}, and one writes"
    behind = (
        f"launch in {streams[0]} ({second.where}) after the launch of {first.kernel} in {streams[1]} ({first.where})"
    )
    text = f"{second.kernel}: race: nothing orders its {behind}: {both}"
    if first.stream == second.stream:
        text = f"{second.kernel}: race: its {behind} begins before that launch has ended, and does not wait: {both}"
    found.add(second.kernel, "race", [second.where, first.where], text)


races = StreamRaces()
