"""Streams and events of a dry run. They do nothing except to record the order of launches, by vector clocks.

Launches have numbers. Each stream, each event and the host have a clock. A clock has one launch for each stream: the
latest launch there that must end before the next work of the clock's owner begins. A launch also comes after all work
for which the host has waited. Torch's streams do not wait for the default stream.
"""

from __future__ import annotations

import itertools
import math
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

Clock = dict[int, int]  # number of a launch, by number of a stream
_numbers, _launches = itertools.count(), itertools.count(1)
_streams: dict[int, DryStream] = {}  # by address


def join(clock: Clock, other: Clock) -> None:
    """Update a clock with the launches of another clock: take the later launch of each stream."""
    for stream, launch in other.items():
        clock[stream] = max(clock.get(stream, 0), launch)


class DryContext(AbstractContextManager[Any]):
    """Base class of devices and streams that a `with` block can make current."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.cuda.{type(self).__name__}.{name}: a dry run has no GPU and does not provide it")


class _Clocked(DryContext):
    """A stream or an event with its clock. Its work always counts as done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock: Clock = {}

    def synchronize(self) -> None:
        join(order.host, self.clock)

    def query(self) -> bool:
        self.synchronize()
        return True


class DryStream(_Clocked):
    """A stream. number: 0 for the default stream."""

    device_index = priority = 0
    is_capturing = staticmethod(lambda: False)
    priority_range = staticmethod(lambda *_: (0, -5))

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.number = next(_numbers)
        self.cuda_stream = self.number << 12  # a made-up address
        _streams.setdefault(self.cuda_stream, self)

    def __enter__(self) -> DryStream:
        order.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        order.stack.pop()

    def wait_stream(self, other: _Clocked) -> None:
        join(self.clock, other.clock)

    wait_event = wait_stream

    def record_event(self, event: DryEvent | None = None) -> DryEvent:
        made = event or DryEvent()
        made.record(self)
        return made


class ExternalStream(DryStream):
    """A stream made from an address. It shares number and clock with the existing stream at that address."""

    def __init__(self, stream_ptr: int = 0, *_: Any, **__: Any) -> None:
        if (known := _streams.get(stream_ptr)) is None:
            super().__init__()
            _streams[stream_ptr] = known = self
        self.number, self.clock, self.cuda_stream = known.number, known.clock, stream_ptr


class DryEvent(_Clocked):
    """An event. elapsed_time returns infinity, because the time is not known. Returning NaN would break programs that
    compute a number of repetitions from it."""

    cuda_event = 0
    elapsed_time = staticmethod(lambda *_: math.inf)

    def record(self, stream: DryStream | None = None) -> None:
        self.clock = dict((stream or order.stream).clock)

    def wait(self, stream: DryStream | None = None) -> None:
        (stream or order.stream).wait_event(self)


class StreamContext(DryContext):
    """torch.cuda.stream: makes a stream the current one; None changes nothing."""

    def __init__(self, stream: DryStream | None = None, *_: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        order.stack.append(self.stream or order.stream)

    def __exit__(self, *_: object) -> None:
        order.stack.pop()


class Order(SimpleNamespace):
    """The order of all launches in this process. host: the host's clock. latest: latest launch of each stream. default:
    the default stream. stack: streams of the active `with` blocks, the current stream last. operations: number of torch
    operations so far, which may be work between two launches."""

    @property
    def stream(self) -> DryStream:
        found: DryStream = self.stack[-1]
        return found

    def set(self, stream: DryStream) -> None:
        self.stack[-1] = stream

    def synchronize(self) -> int:
        """Record that the host waits for all launches so far. Returns 0, CUDA's success."""
        self.host = dict(self.latest)
        return 0

    def read(self) -> None:
        """Record that the host waits for the current stream, because it reads results."""
        self.stream.synchronize()

    def launched(self) -> int:
        """Record a launch on the current stream. Returns its number."""
        stream, number = self.stream, next(_launches)
        join(stream.clock, self.host)
        stream.clock[stream.number] = self.latest[stream.number] = number
        return number


_default = _streams[1] = DryStream()  # 1 is the address of cudaStreamLegacy
order = Order(host={}, latest={}, default=_default, stack=[_default], operations=0)
