"""Streams and events of a dry run: they do nothing, but for which launches they order.

Launches have numbers. A clock holds the latest launch of each stream behind which something is ordered: a stream with
its next launch, an event, or the host, behind which lies all that it launches. Streams of torch do not wait for the
default one.
"""

from __future__ import annotations

import itertools
import math
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

Clock = dict[int, int]  # by stream: the number of a launch
_numbers, _launches = itertools.count(), itertools.count(1)
_streams: dict[int, DryStream] = {}  # by address


def join(clock: Clock, other: Clock) -> None:
    """Order the owner of a clock behind what another one is ordered behind."""
    for stream, launch in other.items():
        clock[stream] = max(clock.get(stream, 0), launch)


class DryContext(AbstractContextManager[Any]):
    """A device or stream that can be made the current one in a `with` block."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.cuda.{type(self).__name__}.{name}: a dry run has no GPU and does not provide it")


class _Clocked(DryContext):
    """What work of a stream is done when it is: all of it counts as done."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock: Clock = {}

    def synchronize(self) -> None:
        join(order.host, self.clock)

    def query(self) -> bool:
        self.synchronize()
        return True


class DryStream(_Clocked):
    """A stream. number: 0 for the default one."""

    device_index = priority = 0
    is_capturing = staticmethod(lambda: False)
    priority_range = staticmethod(lambda *_: (0, -5))

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.number = next(_numbers)
        self.cuda_stream = self.number << 12  # an address
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
    """A stream by its address: the same one as each other stream that has it."""

    def __init__(self, stream_ptr: int = 0, *_: Any, **__: Any) -> None:
        if (known := _streams.get(stream_ptr)) is None:
            super().__init__()
            _streams[stream_ptr] = known = self
        self.number, self.clock, self.cuda_stream = known.number, known.clock, stream_ptr


class DryEvent(_Clocked):
    """An event. Time between two: not known. Not NaN: programs compute a number of repetitions from it."""

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
    """host: its clock. default: the default stream. stack: the streams of `with` blocks, the current one is last.
    operations: of torch, which may lie between two launches."""

    @property
    def stream(self) -> DryStream:
        found: DryStream = self.stack[-1]
        return found

    def set(self, stream: DryStream) -> None:
        self.stack[-1] = stream

    def synchronize(self) -> int:
        """Let the host wait for all streams: for all launches up to now. Returns 0, as CUDA does."""
        self.host = dict(self.latest)
        return 0

    def read(self) -> None:
        """Let the host wait for the current stream, whose results it reads."""
        self.stream.synchronize()

    def launched(self) -> int:
        """Put a launch into the current stream, and return its number."""
        stream, number = self.stream, next(_launches)
        join(stream.clock, self.host)
        stream.clock[stream.number] = self.latest[stream.number] = number
        return number


_default = _streams[1] = DryStream()  # 1: cudaStreamLegacy
order = Order(host={}, latest={}, default=_default, stack=[_default], operations=0)
