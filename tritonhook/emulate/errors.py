"""Why an emulated run ends before its kernel does."""

from __future__ import annotations

from tritonhook.errors import TritonHookError


class Fault(TritonHookError):
    """An access that a GPU refuses, or that lies outside of the launch's buffers.

    text: what was accessed, and how. thread: its number among the machine's threads. pc, line: of the instruction.
    """

    def __init__(self, text: str, thread: int, pc: int | None = None, line: int | None = None) -> None:
        self.text, self.thread, self.pc, self.line = text, thread, pc, line
        super().__init__(text, thread, pc, line)

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


class Hang(TritonHookError):
    """Threads that wait for what never comes, or a kernel of too many steps."""
