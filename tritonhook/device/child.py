"""A child process that uses the GPU. Requests to it and its messages are lines of JSON, with time limits.

A kernel can crash its process, hang, or make the GPU unusable for the process. So kernels are launched in a child, and
the exception `Lost` describes how the child ended. This module implements the protocol for parent and child, and the
messages that all children have in common; each user of the module adds its own messages. All other output of a child
goes to standard error.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO, TypeVar

import msgspec

from tritonhook import errors
from tritonhook.errors import TritonHookError

START_S = 120.0  # time limit for a child to load its libraries and create a context
_LEAVE_S = 10.0  # time limit for a child to exit by itself


class Message(msgspec.Struct, tag=True):
    """Base class of requests and messages. In JSON, "type" is the name of the class. Fields may be dataclasses and
    paths."""


M = TypeVar("M", bound=Message)


class Begin(Message):
    """Request: create a context on the GPU."""


class Begun(Message):
    """Message: the context exists. device: the GPU's name."""

    device: str


class At(Message):
    """Message: a launch begins; its time limit starts now. name: describes the launch in the error if it fails."""

    name: str


class After(Message):
    """Message: the launch ended."""


class Failed(Message):
    """Message: a request failed; the child accepts further requests. kind: the error's class in tritonhook.errors."""

    text: str
    kind: str


class GpuLost(Message):
    """Message: a launch failed with an error after which this process cannot use the GPU. The child exits."""

    text: str


class ContextLost(Exception):
    """The process cannot use the GPU any more. Raised in a child, which then sends GpuLost and exits."""


class Lost(Exception):
    """A child crashed or hung, and has been killed. The text is the reason: exit status, signal, time limit, or the
    text of GpuLost. at: name of the launch at that time; None if there was none. hung: True if the time limit
    passed."""

    def __init__(self, at: str | None, text: str, hung: bool = False) -> None:
        super().__init__(text)
        self.at, self.hung = at, hung


def _line(message: Message) -> str:
    """Encode a message. Uses `json`, as msgspec cannot encode NaN and paths that are not UTF-8."""
    return json.dumps(msgspec.to_builtins(message, enc_hook=lambda value: os.fspath(value))) + "\n"


def _message(line: str | bytes, kinds: Iterable[type[Message]]) -> Any:
    one_of = functools.reduce(operator.or_, kinds)
    return msgspec.convert(json.loads(line), one_of, dec_hook=lambda kind, value: kind(value))


class Child:
    """The parent's access to one child. limit_s: time limit of a launch; None: no limit.

    Methods that wait raise Lost if the child crashes or hangs. If a Failed message arrives, they raise the error that
    it names. rest_s: time limit for messages outside launches; None: no limit.
    """

    def __init__(self, command: Sequence[str], limit_s: float | None = None) -> None:
        # The child gets its own session, so that Ctrl-C reaches only the parent, which then ends the child.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False, start_new_session=True
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._read = b""
        self._limit_s = limit_s
        self._at: str | None = None
        self._device: str | None = None

    def begin(self) -> None:
        """Ask the child to create a context after it has loaded its libraries; does not wait."""
        self.send(Begin())

    @property
    def device(self) -> str:
        """The GPU's name. The first use waits for the context."""
        if self._device is None:
            self._device = self.answer(Begun, rest_s=START_S).device
        return self._device

    def send(self, request: Message) -> None:
        self._at = None
        assert self._process.stdin is not None
        with suppress(OSError):  # the child has ended, which the next read reports
            self._process.stdin.write(_line(request).encode())
            self._process.stdin.flush()

    def ask(self, request: Message, *kinds: type[M], rest_s: float | None) -> M:
        """Send a request and wait for an answer of one of these classes."""
        self.send(request)
        return self.answer(*kinds, rest_s=rest_s)

    def answer(self, *kinds: type[M], rest_s: float | None) -> M:
        """Wait for the next message of one of these classes."""
        while True:
            limit_s = rest_s if self._at is None else self._limit_s
            line = self._line(limit_s)
            if line is None:
                raise self._lost(f"no end within {limit_s:g} s", hung=True)
            if not line:
                raise self._lost(self._ended())
            message = _message(line, (*kinds, At, After, Failed, GpuLost))
            if isinstance(message, GpuLost):
                raise self._lost(message.text)
            if isinstance(message, Failed):
                raise getattr(errors, message.kind, TritonHookError)(message.text)
            if not isinstance(message, (At, After)):
                wanted: M = message
                return wanted
            self._at = message.name if isinstance(message, At) else None

    def finish(self) -> None:
        """Close the child's input, upon which it exits; kill it if it does not exit within 10 s."""
        assert self._process.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(_LEAVE_S)
        self.end()

    def end(self) -> None:
        """Kill the child. A hanging kernel ends with its process."""
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _line(self, limit_s: float | None) -> bytes | None:
        """Read the next line; None if `limit_s` passes first, b"" at the end of the output."""
        assert self._process.stdout is not None
        until = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._read:
            if not self._selector.select(None if until is None else max(0.0, until - time.monotonic())):
                return None
            data = self._process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
            if not data:
                return b""
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _lost(self, text: str, hung: bool = False) -> Lost:
        self.end()
        return Lost(self._at, text, hung)

    def _ended(self) -> str:
        """Describe how the child ended."""
        try:
            status = self._process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            return "the process closed its output but did not end"
        if status >= 0:
            return f"the process ended with status {status}"
        return f"the process was ended by {signal.Signals(-status).name}"


# --- the child's side ----------------------------------------------------------------------------


def own_output() -> TextIO:
    """Return a stream to the original standard output, for messages. From now on, all other output of this process goes
    to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve(
    requests: TextIO, answers: TextIO, carry_out: Callable[[Any], Iterable[Message]], *kinds: type[Message]
) -> None:
    """Run the child's loop: pass each request to `carry_out` and send the messages that it yields, until the input ends
    or the GPU is lost. kinds: classes of the requests."""

    def say(message: Message) -> None:
        answers.write(_line(message))
        answers.flush()

    for line in requests:
        try:
            for message in carry_out(_message(line, kinds)):
                say(message)
        except ContextLost as error:
            return say(GpuLost(str(error)))
        except TritonHookError as error:
            say(Failed(str(error), type(error).__name__))
