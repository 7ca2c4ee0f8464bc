"""What the files of memory hold: what a process of `mem watch` leaves, and calibrations."""

from __future__ import annotations

from tritonhook._util.schema import Fields
from tritonhook.memory.prediction import Calibration
from tritonhook.memory.timeline import MemoryTimeline


class Watched(Fields):
    """What one process of a watched program left. notes: what is missing. timelines: one for each GPU."""

    notes: tuple[str, ...]
    timelines: tuple[MemoryTimeline, ...]


class Calibrations(Fields):
    """The file of calibrations."""

    calibrations: tuple[Calibration, ...]
