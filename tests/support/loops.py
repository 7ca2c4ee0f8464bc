"""PTX of one loop around one instruction, whose code `cutlass` in the name changes: mma_f16, fma, tcgen05_f16."""

from __future__ import annotations

from pathlib import Path

from tritonhook.ptx.module import Ptx, retarget

TEXTS = Path(__file__).with_suffix("")


def loop(instruction: str, name: str, target: str | None = None, version: str | None = None) -> Ptx:
    """Read the kernel and rename it. target, version: instead of its own."""
    ptx = Ptx((TEXTS / f"{instruction}.ptx").read_text()).rename_entries({"kernel_x": name})
    return retarget(ptx, target or ptx.target, version or ptx.version)
