"""Why an emulated run ends before its kernel does."""

from __future__ import annotations

from collections.abc import Sequence

from tritonhook.errors import EmulationError, TritonHookError


class Fault(TritonHookError):
    """An access that a GPU refuses, or that lies outside of the launch's buffers.

    text: what was accessed, and how. thread: its number among the machine's threads. pc, line: of the instruction.
    who: the thread and its CTA, as people read it.
    """

    who = ""

    def __init__(self, text: str, thread: int, pc: int | None = None, line: int | None = None) -> None:
        self.text, self.thread, self.pc, self.line = text, thread, pc, line
        super().__init__(text, thread, pc, line)

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


class Hang(TritonHookError):
    """Threads that wait for what never comes, or a kernel of too many steps.

    pcs: of the instructions where they are. is_certain: nothing outside of their clusters could let them go on.
    """

    def __init__(self, text: str, pcs: Sequence[int] = (), is_certain: bool = False) -> None:
        self.pcs, self.is_certain = tuple(pcs), is_certain
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
