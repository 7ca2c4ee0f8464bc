"""Measure the average SM clock between two points of a stream with the GPU's own counters. Judge the conditions of a
block of samples, which NVML reports.

A kernel of one thread stores a stamp before and after each sample: its SM's cycle counter and the global timer. Both
stamps usually come from the same SM (the first free one); a pair from two SMs is ignored. NVML reports the clock at one
moment; the stamps give the average over the sample.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook.device.cuda_driver import Driver

# One thread stores {cycles, nanoseconds, SM} as three u64. Runs on any GPU from sm_70 on; the driver assembles the PTX.
STAMP = """
.version 6.4
.target sm_70
.address_size 64
.visible .entry tritonhook_stamp(.param .u64 place)
{
    .reg .b64 %rd<5>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [place];
    mov.u64 %rd2, %globaltimer;
    mov.u64 %rd3, %clock64;
    mov.u32 %r1, %smid;
    cvt.u64.u32 %rd4, %r1;
    st.global.u64 [%rd1], %rd3;
    st.global.u64 [%rd1+8], %rd2;
    st.global.u64 [%rd1+16], %rd4;
    ret;
}
"""
_WORDS = 3
_LOWEST_MHZ, _HIGHEST_MHZ = 100.0, 5000.0  # an average outside this range means that a counter jumped


class Clock:
    """Stores stamps (cycle counter, timer, SM) from torch's current stream, two for each sample."""

    def __init__(self, pairs: int) -> None:
        """Load the clock kernel. Raises DeviceError if the driver rejects it."""
        import torch

        self._driver = Driver()
        self._function = self._driver.function(self._driver.load(STAMP.encode() + b"\0"), "tritonhook_stamp")
        self._words = torch.zeros(2 * pairs * _WORDS, dtype=torch.int64, device="cuda")
        self._next = 0

    def begin(self) -> None:
        """Start again: the next stamps overwrite the earlier ones."""
        self._next = 0

    def stamp(self) -> None:
        import torch

        place = ctypes.c_uint64(self._words.data_ptr() + 8 * _WORDS * self._next)
        self._driver.launch(self._function, (place,), block=1, stream=torch.cuda.current_stream().cuda_stream)
        self._next += 1

    def pairs(self) -> list[tuple[Any, ...]]:
        """Read the stamps (cycles, ns, SM) before and after each sample since `begin`. The stream must have
        finished."""
        words = self._words[: self._next * _WORDS].tolist()
        stamps = [tuple(words[i : i + _WORDS]) for i in range(0, len(words), _WORDS)]
        return list(zip(stamps[::2], stamps[1::2], strict=True))


def clock_mhz(pairs: Sequence[tuple[Any, ...]]) -> float | None:
    """Compute the average SM clock of several samples in MHz; None if no pair of stamps is usable.

    The sum of cycles is divided by the sum of nanoseconds: the global timer has steps of up to a microsecond, too
    coarse for one short sample.
    """
    spans = [(after[0] - before[0], after[1] - before[1]) for before, after in pairs if before[2] == after[2]]
    usable = [(cycles, ns) for cycles, ns in spans if cycles > 0 and ns > 0]
    if not usable:
        return None
    mhz = 1000 * sum(cycles for cycles, _ in usable) / sum(ns for _, ns in usable)
    return mhz if _LOWEST_MHZ < mhz < _HIGHEST_MHZ else None


# --- the conditions of a block --------------------------------------------------------------------


MIN_CLOCK = 0.75  # fraction of the highest clock below which a block is discarded; nvbench has the same limit


@dataclass(frozen=True, slots=True)
class Conditions:
    """State of the GPU during one block of samples. None: not known.

    slowed: names of the clock-event reasons by which the hardware or its temperature limited the clock.
    power_capped: whether the software power cap was active. Usual under load, so it is only recorded.
    other_processes: number of processes of other programs that had the GPU open.
    """

    sm_clock_mhz: int | float | None = None  # NVML returns integers, and documents store them as integers
    sm_clock_max_mhz: int | float | None = None
    temperature_c: int | float | None = None
    power_w: float | None = None
    slowed: tuple[str, ...] = ()
    power_capped: bool | None = None
    other_processes: int | None = None

    @property
    def unfit(self) -> str | None:
        """Reason to discard a block measured under these conditions; None if it can be used."""
        if self.slowed:
            return f"the GPU was slowed down ({', '.join(self.slowed)})"
        if self.sm_clock_mhz and self.sm_clock_max_mhz and self.sm_clock_mhz < MIN_CLOCK * self.sm_clock_max_mhz:
            return f"the SM clock was only {self.sm_clock_mhz:.0f} of {self.sm_clock_max_mhz:.0f} MHz"
        return None
