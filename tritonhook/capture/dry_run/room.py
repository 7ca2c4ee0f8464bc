"""How many CTAs of a launch a GPU holds at once: a barrier of more CTAs never opens."""

from __future__ import annotations

import math

from tritonhook.capture.dry_run.gpu import Gpu
from tritonhook.capture.launches.record import Launch
from tritonhook.cubin.resources import occupancy


def room_of(gpu: Gpu | None, arch: str, launch: Launch, shared: int, registers: int | None) -> tuple[int, str] | None:
    """Compute the most CTAs, and describe them; None if it is not known. shared: static, in bytes. registers: of a
    thread; None: not known, then as if there were enough."""
    held = occupancy(arch, registers or 1, math.prod(launch.block), shared + launch.shared, launch.shared)
    if gpu is None or held is None:
        return None
    ctas = held.blocks * gpu.multiprocessors
    return ctas, f"{gpu.name} holds {ctas:,} at once, {held.blocks} on each of {gpu.multiprocessors} multiprocessors"
