"""Locks for a process that forks, locks between processes, and facts about other processes from /proc.

A forked child has one thread: a lock that another thread held at the fork would stay locked in the child forever.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType


class ForkLock:
    """A reentrant lock for a `with` statement. In a forked child it is always free at first."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


@contextmanager
def folder_locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a folder against other processes that use this function; they wait. No lock file is made. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Lock a file's folder while the file is read, changed and written. NFS does not lock folders: a change that
    another process makes at the same time is lost there."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(folder_locked(Path(os.path.realpath(path)).parent))
        yield


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


def lock_that_forks_wait_for() -> threading.RLock:
    """Make a reentrant lock for changes that a forked child must see complete: a fork waits until no other thread
    holds the lock. Python never forgets these handlers of forks, so make only one lock per module.
    """
    lock = threading.RLock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


os.register_at_fork(after_in_child=_renew_all)


def parent_of(pid: int) -> int | None:
    """Look up a process's parent and return its id; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[1])  # the program's name in "(...)" may contain spaces and ")"
    except (OSError, ValueError, IndexError):
        return None


def command_line_of(pid: int) -> list[str]:
    """Read the arguments of a process's command line; an empty list if it cannot be read."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in data.split(b"\0")[:-1]]
