"""PTX of a loop with mma.sync for sm_90a that takes more than 32 registers, and whose code `cutlass` changes."""

from __future__ import annotations

from pathlib import Path

from tritonhook.ptx.module import Ptx


def mma_loop(name: str) -> Ptx:
    return Ptx(Path(__file__).with_suffix(".ptx").read_text()).rename_entries({"work": name})
