"""Errors that end an emulated run before the kernel ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.errors import EmulationError, TritonHookError


@dataclass(frozen=True, slots=True)
class Origin:
    """How an address was computed. pointers: 64-bit values from which it was computed. wrapped: describes a 32-bit
    number in the computation that overflowed. pc: index of the instruction that computed this number. "" and None if
    none overflowed."""

    pointers: tuple[int, ...] = ()
    pc: int | None = None
    wrapped: str = ""


class Fault(TritonHookError):
    """An access or instruction that a GPU refuses.

    kind: kind of finding, for messages. text: describes the access. thread: its number among the machine's threads. pc,
    line: index and line of the instruction. who: thread and CTA for messages, e.g. "thread 3 of CTA 0". origin: how
    the address was computed. wrapped_line: line of the 32-bit number that overflowed, see Origin.
    """

    kind = "fault"
    who = ""
    origin = Origin()
    wrapped_line = 0

    def __init__(self, text: str, thread: int, pc: int | None = None, line: int | None = None) -> None:
        self.text, self.thread, self.pc, self.line = text, thread, pc, line
        super().__init__(text, thread, pc, line)

    def __str__(self) -> str:
        text = self.text if self.line is None else f"line {self.line}: {self.text}"
        return f"{text}; line {self.wrapped_line}: {self.origin.wrapped}" if self.origin.wrapped else text


class Misaligned(Fault):
    """An access at an address that is not a multiple of its size."""

    kind = "misaligned"


class OutOfBounds(Fault):
    """An access outside of a memory, or outside of the launch's buffers."""

    kind = "out of bounds"


class Outside(OutOfBounds):
    """An access of global memory that lies in none of the launch's buffers. access: e.g. "read of 4 bytes". index: its
    first byte in global memory."""

    def __init__(self, access: str, index: int, text: str, thread: int) -> None:
        self.access, self.index = access, index
        super().__init__(text, thread)


class Hang(TritonHookError):
    """A deadlock, or a kernel that exceeds the limit of steps.

    pcs, lines: indices and lines of the instructions where the threads are. is_certain: True if threads of other
    clusters cannot end the deadlock.
    """

    def __init__(
        self, text: str, pcs: Sequence[int] = (), lines: Sequence[int] = (), is_certain: bool = False
    ) -> None:  # fmt: skip
        self.pcs, self.lines, self.is_certain = tuple(pcs), tuple(lines), is_certain
        super().__init__(text)


class Late(Hang):
    """A kernel that has not ended within the time limit."""


class Unfinished(TritonHookError):
    """A launch that was not executed to its end because the emulator lacks memory or time. The kernel may be right."""


class NotExecuted(EmulationError):
    """A program's launch gave no results, because the emulator did not understand it or did not finish it. kind: names
    which of the two, for messages."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)
