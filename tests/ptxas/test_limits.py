"""Programs with limits on their time and memory: what is measured, what is stopped, and that no file stays open."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas.limits import INPUT_PATH, OUTPUT_PATH, Limits, run_limited, start_limited, wait_for


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


def test_a_program_is_late_at_its_deadline(time_over: Callable[[], None]) -> None:
    running = start_limited(("/bin/sleep", "60"), b"", Limits(seconds=0))
    running.stop_if_late()
    assert running.timed_out
    running.abandon()


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
