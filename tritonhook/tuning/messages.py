"""What a process that tunes is asked, and what it answers, beside those of timing/messages.py and device/child.py."""

from __future__ import annotations

from pathlib import Path

from tritonhook.device.child import Message

UNSTEADY = "its outputs differ from run to run"


class LeverCode(Message):
    """One code of a kernel. entry: its name in the cubin. launch: how it is launched, where that is not as the others
    are: the code of another configuration. like: the plain code of its configuration, which it must store the same as
    and which comes before it; None: it is one."""

    name: str
    path: Path
    entry: str
    launch: Path | None = None
    like: str | None = None


class LoadCodes(Message):
    """Asks to load codes, to check what they store, and to prepare to time those that store what they should. The
    answer is Ready; before it each code's first launch is announced by its name. keep: buffers that steer the kernel;
    the others hold special numbers in a second check. None: there is none."""

    codes: tuple[LeverCode, ...]
    launch: Path
    rtol: float | None
    seed: int
    racing: bool
    keep: tuple[int, ...] | None = None


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
