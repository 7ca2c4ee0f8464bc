"""Programs with limits on their time and memory: what is measured, what is stopped, and that no file stays open."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas import limits
from tritonhook.ptxas.limits import INPUT_PATH, OUTPUT_PATH, Limits, Running, run_limited, start_limited, wait_for


@pytest.fixture(autouse=True)
def files_are_closed():
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    yield
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


def test_a_program_reads_its_input_and_writes_output_and_log() -> None:
    done = run_limited(("/bin/sh", "-c", f"cat {INPUT_PATH} > {OUTPUT_PATH}; echo said >&2; exit 3"), b"data", Limits())
    assert (done.returncode, done.output, done.log, done.timed_out) == (3, b"data", "said\n", False)
    assert done.cpu_s >= 0 and 0 < done.wall_s < 60
    assert run_limited(("/bin/sh", "-c", r"printf '\377'; exit"), b"", Limits()).log == "\ufffd"


def test_a_program_starts_with_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty standard input, one log, no ignored signals, and an environment of a few names."""
    for name in ("LD_LIBRARY_PATH", "TMPDIR", "OTHER"):
        monkeypatch.setenv(name, "given")
    program = "readlink /proc/self/fd/0; grep SigIgn /proc/self/status; echo both >&2; env"
    log = run_limited(("/bin/sh", "-c", program), b"", Limits()).log.splitlines()
    ignored = int(log[1].split()[1], 16)
    assert (log[0], ignored >> signal.SIGPIPE - 1 & 1, ignored >> signal.SIGXFSZ - 1 & 1, log[2]) == (
        "/dev/null",
        0,
        0,
        "both",
    )
    names = {"PATH", "LD_LIBRARY_PATH", "TMPDIR", "TRITONHOOK_PTXAS_WRAPPER"}
    assert names <= {line.partition("=")[0] for line in log[3:]} <= names | {"PWD", "_", "SHLVL", "OLDPWD"}
    assert {"LD_LIBRARY_PATH=given", "TRITONHOOK_PTXAS_WRAPPER=off"} <= set(log)


@pytest.mark.parametrize(
    ("number", "kept"), [(0, False), (2, False), (3, True), (103, False), (104, False), (105, True)]
)
def test_files_have_no_number_that_a_program_gets(monkeypatch: pytest.MonkeyPatch, number: int, kept: bool) -> None:
    moved, closed = [], []
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", lambda name: number)
        patch.setattr(limits.fcntl, "fcntl", lambda *given: moved.append(given) or 200)
        patch.setattr(os, "close", closed.append)
        file = limits._memory_file("log")
    assert file == (number if kept else 200)
    assert moved == ([] if kept else [(number, limits.fcntl.F_DUPFD_CLOEXEC, 105)]) and closed == [number] * (not kept)


def test_the_time_of_a_program_is_its_own_and_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    wait4, used = os.wait4, SimpleNamespace(ru_utime=1.5, ru_stime=0.25)
    monkeypatch.setattr(os, "wait4", lambda pid, options: (*wait4(pid, options)[:2], used))
    assert run_limited(("/bin/sleep", "0.1"), b"", Limits()).cpu_s == 1.75


def test_a_program_that_is_too_late_is_killed() -> None:
    done = run_limited(("/bin/sleep", "60"), b"", Limits(seconds=0.2))
    assert (done.returncode, done.timed_out) == (-signal.SIGKILL, True)
    assert 0.2 <= done.wall_s < 30


def test_a_program_gets_no_more_memory_than_its_limit() -> None:
    program = "import time; time.sleep(0.3); x = bytearray(1 << 30)"  # the limit is set once it runs
    done = run_limited((sys.executable, "-S", "-c", program), b"", Limits(memory_bytes=512 << 20))
    assert done.returncode == 1 and "MemoryError" in done.log


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ToolError, match="^/no/such: cannot run: No such file"):
        run_limited(("/no/such",), b"", Limits())


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError, ValueError])
def test_a_limit_that_cannot_be_set_stops_nothing(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """The program has ended, or has a lower limit."""

    def prlimit(*_: object) -> None:
        raise error

    monkeypatch.setattr(limits.resource, "prlimit", prlimit)
    assert run_limited(("/bin/true",), b"", Limits()).returncode == 0


@pytest.mark.parametrize(
    ("function", "calls", "said"),
    [("memfd_create", 2, "start"), ("pidfd_open", 0, "watch")],
)
def test_without_room_for_more_files_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, function: str, calls: int, said: str
) -> None:
    """No process either: whatever was started is killed, and waited for."""
    real, spawn, done, started = getattr(os, function), limits._spawn, [], []

    def full(*words: object) -> int:
        if len(done) == calls:
            raise OSError(24, "Too many open files")
        done.append(words)
        return real(*words)

    monkeypatch.setattr(os, function, full)
    monkeypatch.setattr(limits, "_spawn", lambda *given: started.append(spawn(*given)) or started[0])
    with pytest.raises(ToolError, match=rf"^/bin/sleep: cannot {said} another run: Too many open files; use fewer --j"):
        start_limited(("/bin/sleep", "60"), b"", Limits())
    assert len(started) == (said == "watch")
    for pid in started:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)


def test_a_program_is_late_at_its_deadline(time_over: Callable[[], None]) -> None:
    running = start_limited(("/bin/sleep", "60"), b"", Limits(seconds=0))
    running.stop_if_late()
    assert running.timed_out
    running.abandon()


def test_a_wait_lasts_until_the_next_deadline(monkeypatch: pytest.MonkeyPatch, time_over: Callable[[], None]) -> None:
    """A millisecond longer, as what is waited for in whole ones; of those that are not late yet; else for ever."""
    killed, waits, watched = [], [], []

    def poll(timeout_ms: float | None) -> list[tuple[int, int]]:
        waits.append(timeout_ms)
        if len(waits) == 2:
            time_over()
        return [(12, select.POLLIN)] if timeout_ms is None else []

    fake = SimpleNamespace(register=lambda *given: watched.append(given), poll=poll)
    monkeypatch.setattr(limits.select, "poll", lambda: fake)
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    first, late, last = (
        Running(pid, pid + 10, (0, 0, 0), 0.0, at, timed_out=pid == 2) for pid, at in ((1, 5), (2, 3), (3, 7))
    )
    assert wait_for([first, late, last]) == [late]
    assert watched == [(11, select.POLLIN), (12, select.POLLIN), (13, select.POLLIN)]
    assert waits == [5001.0, 5001.0, None]
    assert killed == [(1, signal.SIGKILL), (3, signal.SIGKILL)] and first.timed_out and last.timed_out
    assert wait_for([late, Running(4, 14, (0, 0, 0), 0.0, 5)]) == [late]
    assert waits[3:] == [1.0, None]


def test_the_first_to_end_is_told_and_one_that_is_late_does_not_stop_the_others() -> None:
    slow, quick, late = (
        start_limited(("/bin/sleep", seconds), b"", Limits(seconds=limit))
        for seconds, limit in (("60", 60), ("0", 60), ("60", 0.4))
    )
    try:
        assert wait_for([slow, quick, late]) == [quick]
        assert wait_for([slow, late]) == [late] and late.timed_out and not slow.timed_out
    finally:
        slow.abandon()
    assert quick.finish().returncode == 0 and late.finish().returncode == -signal.SIGKILL
