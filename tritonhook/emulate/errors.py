"""Why an emulated run ends before its kernel does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook.errors import EmulationError, TritonHookError


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an address came from. pointers: values that it was computed from. pc, wrapped: of a 32-bit number on the
    way that wrapped, in words; None and "" if none did."""

    pointers: tuple[int, ...] = ()
    pc: int | None = None
    wrapped: str = ""


class Fault(TritonHookError):
    """An access that a GPU refuses, or that lies outside of the launch's buffers.

    text: what was accessed, and how. thread: its number among the machine's threads. pc, line: of the instruction.
    who: the thread and its CTA, as people read it. origin: of the address. wrapped_line: of what wrapped on the way.
    """

    who = ""
    origin = Origin()
    wrapped_line = 0

    def __init__(self, text: str, thread: int, pc: int | None = None, line: int | None = None) -> None:
        self.text, self.thread, self.pc, self.line = text, thread, pc, line
        super().__init__(text, thread, pc, line)

    def __str__(self) -> str:
        text = self.text if self.line is None else f"line {self.line}: {self.text}"
        return f"{text}; line {self.wrapped_line}: {self.origin.wrapped}" if self.origin.wrapped else text


class Outside(Fault):
    """An access of global memory that lies in none of the launch's buffers. access: "read of 4 bytes". index: where it
    begins in global memory."""

    def __init__(self, access: str, index: int, text: str, thread: int) -> None:
        self.access, self.index = access, index
        super().__init__(text, thread)


class Hang(TritonHookError):
    """Threads that wait for what never comes, or a kernel of too many steps.

    pcs, lines: of the instructions where they are. is_certain: nothing outside of their clusters could let them go on.
    """

    def __init__(
        self, text: str, pcs: Sequence[int] = (), lines: Sequence[int] = (), is_certain: bool = False
    ) -> None:  # fmt: skip
        self.pcs, self.lines, self.is_certain = tuple(pcs), tuple(lines), is_certain
        super().__init__(text)


class Late(Hang):
    """A kernel that has not ended within the time limit."""


class Unfinished(TritonHookError):
    """A launch that was not executed to its end, for a reason that lies in the emulator: memory or time."""


class NotExecuted(EmulationError):
    """A launch of a program without results, as it was not understood or not executed to its end. kind: which of both,
    in words."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)
