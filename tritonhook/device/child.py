"""A child process with the GPU: requests go to it, messages come back, one JSON object a line each, within time limits.

A kernel can end its process, hang in it, or lose the GPU for it: so it is launched in a child, and `Lost` describes how
that ended. This module has both sides, and the messages of all children; each user adds its own. What a child
prints goes to standard error.
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

START_S = 120.0  # for a child to load its libraries and make a context
_LEAVE_S = 10.0  # for a child to end by itself


class Message(msgspec.Struct, tag=True):
    """Base of what goes to and fro: an object whose "type" is the class's name. Fields may be dataclasses and paths."""


M = TypeVar("M", bound=Message)


class Begin(Message):
    """Asks for a context on the GPU."""


class Begun(Message):
    """Message: a context exists. device: the GPU's name."""

    device: str


class At(Message):
    """Message: the launch of this name comes next; the time limit of a launch starts."""

    name: str


class After(Message):
    """Message: this launch ended."""


class Failed(Message):
    """A request cannot be carried out; the next one can. kind: the error's class, of `errors`."""

    text: str
    kind: str


class GpuLost(Message):
    """A launch ended with an error after which the process can use the GPU no more. It ends."""

    text: str


class ContextLost(Exception):
    """Raised in a child, which then sends GpuLost."""


class Lost(Exception):
    """A child crashed or hung, and has been ended. The text has the reason: exit status, signal, time limit, or its
    message about the GPU. at: its launch; None if it was not launching. hung: True if its time limit passed."""

    def __init__(self, at: str | None, text: str, hung: bool = False) -> None:
        super().__init__(text)
        self.at, self.hung = at, hung


def _line(message: Message) -> str:
    """Write JSON by `json`: msgspec writes no NaN, and no path that is not UTF-8."""
    return json.dumps(msgspec.to_builtins(message, enc_hook=lambda value: os.fspath(value))) + "\n"


def _message(line: str | bytes, kinds: Iterable[type[Message]]) -> Any:
    one_of = functools.reduce(operator.or_, kinds)
    return msgspec.convert(json.loads(line), one_of, dec_hook=lambda kind, value: kind(value))


class Child:
    """The parent's side of one child. limit_s: of a launch.

    Methods that wait raise Lost, and the error that the child sends; rest_s is the time limit between launches. None:
    there is no limit.
    """

    def __init__(self, command: Sequence[str], limit_s: float | None = None) -> None:
        # A session of its own: Ctrl-C goes to the user's process only, which then ends this one.
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
        """Ask the child for a context, as soon as it has loaded its libraries."""
        self.send(Begin())

    @property
    def device(self) -> str:
        """The GPU's name. Waits for the context."""
        if self._device is None:
            self._device = self.answer(Begun, rest_s=START_S).device
        return self._device

    def send(self, request: Message) -> None:
        self._at = None
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended; that is read next
            self._process.stdin.write(_line(request).encode())
            self._process.stdin.flush()

    def ask(self, request: Message, *kinds: type[M], rest_s: float | None) -> M:
        """Send a request and wait for its answer."""
        self.send(request)
        return self.answer(*kinds, rest_s=rest_s)

    def answer(self, *kinds: type[M], rest_s: float | None) -> M:
        """Wait for the next message of these kinds."""
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
            return "the process closed its output and went on"
        if status >= 0:
            return f"the process ended with status {status}"
        return f"the process was ended by {signal.Signals(-status).name}"


# --- the child's side ----------------------------------------------------------------------------


def own_output() -> TextIO:
    """Return the stream for messages. From now on all other output of this process goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve(
    requests: TextIO, answers: TextIO, carry_out: Callable[[Any], Iterable[Message]], *kinds: type[Message]
) -> None:
    """Answer each request with the messages that `carry_out` gives, until there are no more, or the GPU is lost."""

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
