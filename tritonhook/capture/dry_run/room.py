"""Compute how many CTAs of a launch a GPU can run at once. A grid barrier of more CTAs never completes."""

from __future__ import annotations

import math

from tritonhook.capture.dry_run.gpu import Gpu
from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.resources import occupancy


def room_of(gpu: Gpu | None, arch: str, launch: Launch, shared: int, registers: int | None) -> tuple[int, str] | None:
    """Return (maximum number of CTAs at once, description); None if not known. shared: static shared memory in bytes.
    registers: registers of a thread; if None, registers do not limit the number."""
    held = occupancy(arch, registers or 1, math.prod(launch.block), shared + launch.shared, launch.shared)
    if gpu is None or held is None:
        return None
    ctas = held.blocks * gpu.multiprocessors
    return ctas, f"{gpu.name} holds {ctas:,} at once, {held.blocks} on each of {gpu.multiprocessors} multiprocessors"
