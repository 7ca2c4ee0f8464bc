"""Signals that end a verb: SIGTERM and SIGHUP end it as Ctrl-C does.

`Witness` distinguishes signals to the whole process group from signals to this process only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from tritonhook.errors import Terminated

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_WITNESS_S = 0.05  # time in which a signal to the group reaches all of its processes
_ONE_EVENT_S = 1.0  # `timeout` signals this process and then its group: both are one event


def interrupt(number: int) -> KeyboardInterrupt:
    """Make the exception that a signal raises in a verb."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def heeded() -> list[signal.Signals]:
    """List the signals of ENDING that end this process. A signal that was ignored from the start (by nohup) stays
    ignored: a child program inherits an ignored signal, but would not inherit it if this process set a handler."""
    return [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise an exception for each signal of ENDING, so that temporary folders and child processes are cleaned up."""
    last = -_ONE_EVENT_S

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _ONE_EVENT_S:  # a second exception would interrupt the clean-up
            last = now
            raise interrupt(number)

    ours = threading.current_thread() is threading.main_thread()  # Python allows no other thread to set handlers
    previous = {number: signal.signal(number, end) for number in heeded()} if ours else {}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Witness:
    """A process in our group that blocks the signals of ENDING. A signal pending there was sent to the whole group."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(ENDING, -_ONE_EVENT_S)
        self._begin()

    def _begin(self) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        null = subprocess.DEVNULL
        try:  # the child ends when its standard input is closed: at the latest when this process ends
            command = [sys.executable, "-ISc", "input()"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def has_reached(self, pid: int, number: signal.Signals) -> bool:
        """Return True if a signal that this process has just received was sent to the whole group, and process `pid` is
        in the group."""
        with suppress(ProcessLookupError):
            if os.getpgid(pid) != os.getpgrp():
                return False
        end = time.monotonic() + _WITNESS_S
        while (now := time.monotonic()) - self._last[number] >= _ONE_EVENT_S and now < end:
            if self._has_pending(number):
                self._last[number] = now
                self.end()
                self._begin()
            else:
                time.sleep(_WITNESS_S / 20)
        return now - self._last[number] < _ONE_EVENT_S

    def _has_pending(self, number: signal.Signals) -> bool:
        with suppress(OSError, StopIteration):  # without /proc this is unknown: pass the signal on
            lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
            pending = next(line.split()[1] for line in lines if line.startswith("ShdPnd:"))
            return bool(int(pending, 16) >> (number - 1) & 1)
        return False

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
