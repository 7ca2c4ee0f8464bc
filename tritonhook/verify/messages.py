"""What verify asks its child process, and what that answers, beside the messages of device/child.py."""

from __future__ import annotations

from pathlib import Path

from tritonhook.capture.launches.schema import LaunchFields
from tritonhook.device.child import Message
from tritonhook.verify.model import Build, Ran


class RunBuilds(Message):
    """Asks to run builds on one input; the fields are as in model.Order. The answers are a Result for each build, and
    Done; each launch is announced by its build's label."""

    launch: LaunchFields
    input: str
    builds: tuple[Build, ...]
    runs: int
    folder: Path | None
    keep: tuple[int, ...]
    save: Path | None


class BuildResult(Message):
    ran: Ran


class Done(Message):
    pass
