"""Run any program with limits on time and memory, and measure the time that it used.

Made for many short runs: the overhead of a run is about 0.25 ms. Input, output and log are files in memory (memfd). The
program opens them under /proc/self/fd. So no temporary file remains if a process is killed.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from tritonhook._util.variables import WRAPPER
from tritonhook.errors import ToolError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run. seconds: wall time. memory_bytes: address space (RLIMIT_AS); ptxas needs about 200 MB for a
    small kernel."""

    seconds: float = 120.0
    memory_bytes: int = 8 << 30


# File descriptors in the program, higher than those that a shell uses.
_INPUT, _OUTPUT = 103, 104
INPUT_PATH, OUTPUT_PATH = f"/proc/self/fd/{_INPUT}", f"/proc/self/fd/{_OUTPUT}"


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a run. returncode: negative for a signal, as in subprocess. cpu_s: CPU time of this process alone, from
    wait4. The peak memory that wait4 reports is not used, since it is at least the parent's memory."""

    returncode: int
    output: bytes
    log: str
    cpu_s: float
    wall_s: float
    timed_out: bool


@dataclass(slots=True)
class Running:
    """A running program. The caller must call `finish` or `abandon` in the end. handle: a pidfd, which poll reports as
    readable once the program has ended."""

    pid: int
    handle: int
    files: tuple[int, int, int]  # input, output, log
    started: float
    deadline: float
    timed_out: bool = False

    def stop_if_late(self) -> None:
        if not self.timed_out and time.perf_counter() >= self.deadline:
            self.timed_out = True
            os.kill(self.pid, signal.SIGKILL)

    def finish(self) -> Ended:
        """Wait until the program has ended, read its output and log, and close all files."""
        try:
            _, status, usage = os.wait4(self.pid, 0)
            wall_s = time.perf_counter() - self.started
            return Ended(
                returncode=os.waitstatus_to_exitcode(status),
                output=_read(self.files[1]),
                log=_read(self.files[2]).decode("utf-8", "replace"),
                cpu_s=usage.ru_utime + usage.ru_stime,
                wall_s=wall_s,
                timed_out=self.timed_out,
            )
        finally:
            for file in (self.handle, *self.files):
                os.close(file)

    def abandon(self) -> None:
        """Kill the program and close all files."""
        os.kill(self.pid, signal.SIGKILL)
        self.finish()


def start_limited(command: Sequence[str], data: bytes, limits: Limits) -> Running:
    """Start `command`, which reads `data` from INPUT_PATH and writes OUTPUT_PATH. Raises ToolError."""
    with ExitStack() as opened:
        files: list[int] = []
        try:
            for name in ("input", "output", "log"):
                files.append(_memory_file(name))
                opened.callback(os.close, files[-1])
            source, output, log = files
            _write(source, data)
            started = time.perf_counter()
            pid = _spawn(command, source, output, log)
        except OSError as error:
            raise ToolError(f"{command[0]}: cannot start another run: {error.strerror}; use fewer --jobs") from None
        # Set the limit from the parent: between fork and exec, Python could set it only with a full fork.
        with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or already has a lower limit
            resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise ToolError(f"{command[0]}: cannot open a pidfd: {error.strerror}; use fewer --jobs") from None
        opened.pop_all()  # from here on, Running closes the files
    return Running(pid, handle, (source, output, log), started, started + limits.seconds)


def run_limited(command: Sequence[str], data: bytes, limits: Limits) -> Ended:
    """Run `command` as start_limited does, and wait until it has ended. Raises ToolError."""
    running = start_limited(command, data, limits)
    try:
        wait_for([running])
    except BaseException:  # e.g. KeyboardInterrupt
        running.abandon()
        raise
    return running.finish()


def wait_for(running: Sequence[Running]) -> list[Running]:
    """Wait until at least one of these programs has ended, and return the programs that have ended. Kill each program
    that exceeds its time limit."""
    poll = select.poll()
    by_handle = {item.handle: item for item in running}
    for handle in by_handle:
        poll.register(handle, select.POLLIN)
    while True:
        left = min((item.deadline for item in running if not item.timed_out), default=None)
        timeout_ms = None if left is None else max(0.0, 1000 * (left - time.perf_counter())) + 1
        if ended := poll.poll(timeout_ms):
            return [by_handle[handle] for handle, _ in ended]
        for item in running:
            item.stop_if_late()


def _memory_file(name: str) -> int:
    """Make a file in memory. Its descriptor must not be 0 to 2, _INPUT or _OUTPUT: _spawn calls dup2 onto these
    numbers, which would close the file. The system returns such a number if standard streams are closed, or with about
    25 runs at a time."""
    file = os.memfd_create(name)
    if file > 2 and file not in (_INPUT, _OUTPUT):
        return file
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _OUTPUT + 1)
    finally:
        os.close(file)


def _spawn(command: Sequence[str], source: int, output: int, log: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        (os.POSIX_SPAWN_DUP2, source, _INPUT),
        (os.POSIX_SPAWN_DUP2, output, _OUTPUT),
    ]
    try:  # faster than subprocess.Popen, which alone takes as long as the rest of a run
        return os.posix_spawn(
            command[0], tuple(command), _environment(), file_actions=actions, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None


def _environment() -> dict[str, str]:
    """Make a small environment: with it, ptxas's memory layout is the same in every shell, and Python copies less. If
    the program is the ptxas wrapper (capture/ptxas_wrapper), WRAPPER=off keeps it from recording these runs."""
    given = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return given | {WRAPPER: "off"}


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _read(file: int) -> bytes:
    """Read a whole file from its start, without using its offset, which the program has moved."""
    pieces = []
    position = 0
    while piece := os.pread(file, 1 << 24, position):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)
