"""What a process that tunes is asked, and what it answers, beside those of timing/messages.py and device/child.py."""

from __future__ import annotations

from pathlib import Path

from tritonhook.device.child import Message


class LeverCode(Message):
    """One code of a kernel. entry: its name in the cubin."""

    name: str
    path: Path
    entry: str


class LoadCodes(Message):
    """Asks to load codes, to check what they store against the first one, and to prepare to time those that store the
    same. The answer is Ready; before it each code's first launch is announced by its name."""

    codes: tuple[LeverCode, ...]
    launch: Path
    rtol: float | None
    seed: int
    racing: bool


class Ready(Message):
    """What a process found before it times. failed: why a code cannot be timed, by its name. unsteady: whether the
    reference itself does not store the same twice; then nothing can be timed."""

    failed: dict[str, str]
    unsteady: bool
    notes: tuple[str, ...]


class Free(Message):
    """Asks to free the buffers. The answer is Freed."""


class Freed(Message):
    pass
