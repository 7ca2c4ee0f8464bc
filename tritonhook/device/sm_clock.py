"""The average SM clock between two points of a stream, from the GPU's own counters; and the conditions
of a block of samples, as NVML reports them.

A kernel of one thread stores its SM's cycle counter and the global timer before and after each sample. The two stamps
of a pair usually come from one SM (the first free one); other pairs are omitted. NVML's clock would be the
value of one moment; this is the average over the time of the sample.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook.device.cuda_driver import Driver

# One thread: {cycles, nanoseconds, SM} as three u64. Written for any GPU; the driver assembles it.
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
_LOWEST_MHZ, _HIGHEST_MHZ = 100.0, 5000.0  # outside of this range a counter has jumped


class Clock:
    """Stamps in torch's current stream, two for each sample."""

    def __init__(self, pairs: int) -> None:
        """Load the clock kernel. Raises DeviceError if the driver rejects it."""
        import torch

        self._driver = Driver()
        self._function = self._driver.function(self._driver.load(STAMP.encode() + b"\0"), "tritonhook_stamp")
        self._words = torch.zeros(2 * pairs * _WORDS, dtype=torch.int64, device="cuda")
        self._next = 0

    def begin(self) -> None:
        """Store the next stamps at the start of the buffer again."""
        self._next = 0

    def stamp(self) -> None:
        import torch

        place = ctypes.c_uint64(self._words.data_ptr() + 8 * _WORDS * self._next)
        self._driver.launch(self._function, (place,), block=1, stream=torch.cuda.current_stream().cuda_stream)
        self._next += 1

    def pairs(self) -> list[tuple[Any, ...]]:
        """Read (cycles, ns, SM) before and after each sample since `begin`; the stream must have finished."""
        words = self._words[: self._next * _WORDS].tolist()
        stamps = [tuple(words[i : i + _WORDS]) for i in range(0, len(words), _WORDS)]
        return list(zip(stamps[::2], stamps[1::2], strict=True))


def clock_mhz(pairs: Sequence[tuple[Any, ...]]) -> float | None:
    """Compute the average SM clock over several samples; None if no pair is usable.

    Divide all cycles by all nanoseconds: the global timer has steps of up to a microsecond, too coarse for one short
    sample.
    """
    spans = [(after[0] - before[0], after[1] - before[1]) for before, after in pairs if before[2] == after[2]]
    usable = [(cycles, ns) for cycles, ns in spans if cycles > 0 and ns > 0]
    if not usable:
        return None
    mhz = 1000 * sum(cycles for cycles, _ in usable) / sum(ns for _, ns in usable)
    return mhz if _LOWEST_MHZ < mhz < _HIGHEST_MHZ else None


# --- the conditions of a block --------------------------------------------------------------------


MIN_CLOCK = 0.75  # share of the highest clock; below it nvbench discards a sample, too


@dataclass(frozen=True, slots=True)
class Conditions:
    """The GPU during one block. None: unknown.

    slowed: names of the clock-event reasons by which the hardware or its temperature limited the clock.
    power_capped: whether the software power cap was active; usual under load, and only recorded.
    other_processes: number of foreign processes that had the GPU open.
    """

    sm_clock_mhz: int | float | None = None  # NVML gives whole numbers, and a document keeps them so
    sm_clock_max_mhz: int | float | None = None
    temperature_c: int | float | None = None
    power_w: float | None = None
    slowed: tuple[str, ...] = ()
    power_capped: bool | None = None
    other_processes: int | None = None

    @property
    def unfit(self) -> str | None:
        """Reason why a block under these conditions is not used; None if it is used."""
        if self.slowed:
            return f"the GPU was slowed down ({', '.join(self.slowed)})"
        if self.sm_clock_mhz and self.sm_clock_max_mhz and self.sm_clock_mhz < MIN_CLOCK * self.sm_clock_max_mhz:
            return f"the SM clock was {self.sm_clock_mhz:.0f} of {self.sm_clock_max_mhz:.0f} MHz"
        return None
