"""What the file of a process of `mem watch` holds."""

from __future__ import annotations

from tritonhook._util.schema import Fields
from tritonhook.memory.timeline import MemoryTimeline


class Watched(Fields):
    """What one process of a watched program left. notes: what is missing. timelines: one for each GPU."""

    notes: tuple[str, ...]
    timelines: tuple[MemoryTimeline, ...]
