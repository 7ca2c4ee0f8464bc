"""Run a program with limits on its time and memory, and account for it. Knows nothing of ptxas.

Made for many short runs: about a quarter of a millisecond each on top of the program's own time. Input, output and
log are files in memory that the program finds under /proc/self/fd, so that nothing is left behind, whoever is
killed when.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tritonhook.errors import ToolError
from tritonhook.outcome import Limits

# Descriptors in the program, far above what a shell uses for itself.
_INPUT, _OUTPUT = 103, 104
INPUT_PATH, OUTPUT_PATH = f"/proc/self/fd/{_INPUT}", f"/proc/self/fd/{_OUTPUT}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. returncode: negative for a signal, as in subprocess. cpu_s: of this
    process alone, by the system's account (whose peak of memory is of no use: it begins with the parent's)."""

    returncode: int
    output: bytes
    log: str
    cpu_s: float
    wall_s: float
    timed_out: bool


def run_limited(command: Sequence[str], data: bytes, limits: Limits) -> Ended:
    """Run `command`, which reads `data` from INPUT_PATH and writes OUTPUT_PATH. Raises ToolError if it cannot start."""
    files = [os.memfd_create(name) for name in ("input", "output", "log")]
    try:
        _write(files[0], data)
        start = time.perf_counter()
        pid = _spawn(command, *files)
        timed_out, status, usage = _wait(pid, limits)
        wall_s = time.perf_counter() - start
        return Ended(
            returncode=os.waitstatus_to_exitcode(status),
            output=_read(files[1]),
            log=_read(files[2]).decode("utf-8", "replace"),
            cpu_s=usage.ru_utime + usage.ru_stime,
            wall_s=wall_s,
            timed_out=timed_out,
        )
    finally:
        for file in files:
            os.close(file)


def _spawn(command: Sequence[str], source: int, output: int, log: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        (os.POSIX_SPAWN_DUP2, source, _INPUT),
        (os.POSIX_SPAWN_DUP2, output, _OUTPUT),
    ]
    try:  # not subprocess: its Popen alone takes as long as all of this
        return os.posix_spawn(
            command[0], tuple(command), _environment(), file_actions=actions, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None


def _environment() -> dict[str, str]:
    """Little, so that the program's memory lies alike wherever it is started (and Python has less to copy)."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}


def _wait(pid: int, limits: Limits) -> tuple[bool, int, resource.struct_rusage]:
    """Whether it was stopped for its time, its wait status and its resource usage."""
    try:
        # Set from here rather than between fork and exec, where Python would need a full fork.
        with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or has a lower limit already
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        timed_out = not _ends_within(pid, limits.seconds)
        if timed_out:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        return timed_out, status, usage
    except BaseException:  # KeyboardInterrupt above all
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise


def _ends_within(pid: int, seconds: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _read(file: int) -> bytes:
    """All of a file, wherever its writer left the common offset."""
    pieces = []
    position = 0
    while piece := os.pread(file, 1 << 24, position):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)
