"""Discard what Triton prints to stdout in some threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tritonhook._util.locks import ForkLock


class MutedThreads:
    """Replacement of sys.stdout while at least one thread is muted. It discards the output of muted threads and passes
    on the output of all other threads."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._threads: set[int] = set()
        self._real: Any = None

    @property
    def is_muted(self) -> bool:
        """True if the calling thread is muted."""
        return threading.get_ident() in self._threads

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self._threads else int(self._real.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @contextlib.contextmanager
    def mute(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            if not self._threads:
                self._real, sys.stdout = sys.stdout, self
            self._threads.add(thread)
        try:
            yield
        finally:
            self._forget(lambda other: other == thread)

    def after_fork(self) -> None:
        """Unmute the threads that do not exist in a forked child."""
        own = threading.get_ident()
        self._forget(lambda thread: thread != own)

    def _forget(self, gone: Callable[[int], bool]) -> None:
        with self._lock:
            self._threads = {thread for thread in self._threads if not gone(thread)}
            if not self._threads and sys.stdout is self:
                sys.stdout = self._real


muted_threads = MutedThreads()
os.register_at_fork(after_in_child=muted_threads.after_fork)
