"""What processes that time are asked, and what they answer, beside the messages of device/child.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tritonhook.device.child import Message
from tritonhook.timing.plan import Plan
from tritonhook.timing.result import Compiled, HowLaunched, Kernels
from tritonhook.timing.statistics import SampleBlock


class Prepare(Message):
    """Asks a process of a timed comparison to make everything ready. The answer is Prepared."""

    plan: Plan


class Prepared(Message):
    """What a process made ready; the fields are those of result.Timed. compiled: by side. tuning: by side and kernel,
    the configuration."""

    kernels: dict[str, Kernels]
    compiled: dict[str, Compiled]
    outputs: int
    wrong: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    device: str | None = None
    versions: Mapping[str, str | None] | None = None
    sides: dict[str, HowLaunched] | None = None
    flushes: bool | None = None
    tuning: dict[str, dict[str, str]] = {}
    baselines: dict[str, str] = {}


class Take(Message):
    """Asks for blocks. The answer is Taken. process: their number. sides: those that are left; none: all."""

    blocks: int
    process: int
    sides: tuple[str, ...] = ()


class Taken(Message):
    blocks: tuple[SampleBlock, ...]


class Measure(Message):
    """Asks for the rough time of a recorded launch. The answer is Measured. launch: its file."""

    captures: Path
    record: str
    launch: Path


class Measured(Message):
    """In microseconds; None where it cannot be launched again, with the reason."""

    us: float | None = None
    why: str | None = None
