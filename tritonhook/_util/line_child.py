"""A child process that is given lines and answers with JSON documents, one a line, within a time limit."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_LEAVE_S = 10.0  # for a child to end by itself


class LineChild:
    """One child, and the lines that go to and fro. What it prints to standard error is the user's."""

    def __init__(self, command: Sequence[str]) -> None:
        # A session of its own: Ctrl-C goes to the user's process only, which then ends this one.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False, start_new_session=True
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._read = b""

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended; that is read next
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, limit_s: float | None = None) -> dict[str, Any] | None:
        """The next line; None if there is none in time. {"lost": ""} if the child has ended."""
        assert self._process.stdout is not None
        until = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._read:
            if not self._selector.select(None if until is None else max(0.0, until - time.monotonic())):
                return None
            data = self._process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not data:
                return {"lost": ""}
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ended(self) -> str:
        """How it ended."""
        return f"the process ended with status {self._process.wait()}"

    def finish(self) -> None:
        """Close its input, so that it ends by itself; end it if it does not."""
        assert self._process.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(_LEAVE_S)
        self.end()

    def end(self) -> None:
        """End it at once: a kernel that hangs ends with its process."""
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
