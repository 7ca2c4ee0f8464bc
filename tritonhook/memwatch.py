"""Watch a program's GPU memory: find the kernels for which the driver reserves memory outside every allocator.

    with tritonhook.memwatch.watch() as w:
        run_my_model()
    print(w.timelines[0].attribution())

Triton's own hooks read the context's stack limit and free memory before and after each Triton kernel is loaded and
first launched. NVML confirms these numbers and gives the timeline: one short call per GPU every 10 ms, from a thread
that lives as long as the watch. If the GPU, NVML or torch is missing, the result's notes say so. The driver is not
called while a CUDA graph is captured, and CUDA is never initialised by the watch, so that the program can still fork.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tritonhook._util.files import write_whole
from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml
from tritonhook.errors import UsageError
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memory.watcher import Watch

PERIOD_MS = 10.0
_SHORTEST_MS = 1.0


def watch(
    period_ms: float = PERIOD_MS, *, driver: Driver | None = None, nvml: Nvml | None = None, hooks: Any = None
) -> Watch:
    """Make a watch for a `with` block; after the block its `timelines` are the result.

    period_ms: time between two samples, 1 or more. driver, nvml, hooks: replace the machine's own in tests.
    Raises UsageError for a period below 1 ms, and nothing else: the result's notes name what is missing.
    """
    if not period_ms >= _SHORTEST_MS:
        raise UsageError(f"period_ms={period_ms}: give 1 or more; for eight GPUs NVML's calls take about 1 ms")
    return Watch(period_ms, driver, nvml, hooks)


# --- in a process of `tritonhook mem watch` ------------------------------------------------------


def begin_run(folder: str, period_ms: float) -> None:
    """Watch this process from now until its exit, then write its timelines to a new file in the folder."""
    current = watch(period_ms)
    current.__enter__()
    owner = os.getpid()

    def finish() -> None:
        if os.getpid() != owner:  # a forked child inherits this handler, but not the thread
            return
        current.stop()
        document = {
            "format": 1,
            "argv": sys.argv,
            "notes": current.notes,
            "timelines": [{"format": 1, **asdict(timeline)} for timeline in current.timelines],
        }
        write_whole(Path(folder, f"{owner}-{time.time_ns()}.json"), json.dumps(document))

    atexit.register(finish)


def read_run(folder: Path) -> tuple[list[MemoryTimeline], list[str]]:
    """Read the timelines and notes that processes wrote into a folder, in the order in which they ended."""
    from tritonhook._util.schema import read_json
    from tritonhook.memory.timeline import Watched

    timelines, notes = list[MemoryTimeline](), list[str]()
    for path in sorted(folder.glob("*.json"), key=lambda p: int(p.stem.rpartition("-")[2])):
        try:
            document = read_json(path.read_bytes(), Watched)
            timelines += document.timelines
            if not document.timelines:
                notes += [f"process {path.stem.partition('-')[0]}: {note}" for note in document.notes]
        except (OSError, ValueError) as error:
            notes.append(f"{path.name}: cannot be read ({error})")
    return timelines, notes
