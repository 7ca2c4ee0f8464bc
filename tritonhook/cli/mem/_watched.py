"""Programs that run to their end while their GPU memory is watched."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tritonhook.children.environment import watch_environment
from tritonhook.cli._programs import Ended, run_to_end, why_no_gpu
from tritonhook.errors import DeviceError
from tritonhook.memory.timeline import MemoryTimeline
from tritonhook.memwatch import PERIOD_MS, read_run


def _check_gpu() -> None:
    """Raise DeviceError without a GPU, with a remedy."""
    if (why := why_no_gpu()) is not None:
        raise DeviceError(
            f"{why}; the script was not run. Without a GPU, `tritonhook mem predict FILE|CAPTURES --gpu NAME` computes "
            "how much memory the driver will reserve"
        )


def watched(command: list[str], stdout_is_ours: bool = False) -> tuple[Ended, list[MemoryTimeline], list[str]]:
    """Run a program to its end. Returns how it ended, the timelines, and notes on what is missing.

    Raises DeviceError without a GPU, before anything runs.
    """
    _check_gpu()
    with tempfile.TemporaryDirectory(prefix="tritonhook-watch-") as folder:
        ended = run_to_end(command, watch_environment(Path(folder), PERIOD_MS, os.environ), stdout_is_ours)
        timelines, notes = read_run(Path(folder))
    if not timelines and not notes:
        notes.append("nothing was watched: no process imported triton and ended normally")
    return ended, timelines, notes
