"""Conditions: the state of the GPU during one block of samples. Values only; nvml.py reads them."""

from __future__ import annotations

from dataclasses import dataclass

MIN_CLOCK = 0.75  # of the highest clock; below it nvbench discards a sample too


@dataclass(frozen=True, slots=True)
class Conditions:
    """The GPU during one block. None: not known.

    slowed: names of the clock-event reasons by which the hardware or its temperature limited the clock.
    power_capped: whether the software power cap was active; usual under load, and only recorded.
    other_processes: how many processes besides this comparison's had the GPU open.
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
        """Why a block under these conditions is not used; None if it is used."""
        if self.slowed:
            return f"the GPU was slowed down ({', '.join(self.slowed)})"
        if self.sm_clock_mhz and self.sm_clock_max_mhz and self.sm_clock_mhz < MIN_CLOCK * self.sm_clock_max_mhz:
            return f"the SM clock was {self.sm_clock_mhz:.0f} of {self.sm_clock_max_mhz:.0f} MHz"
        return None
