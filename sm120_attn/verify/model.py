"""A static issue-slot model of a steady loop: how busy the matrix pipe could be. A model, not a measurement.

utilisation = T / (T + a N): T is the matrix pipe's time for the loop's instructions, N the number of others, a how
much of their issue time the warps of a scheduler cannot hide from each other. a was fitted on published figures of
public kernels on the RTX PRO 6000: 0.7 to 1.1 with two warps per scheduler that a third one loads for (TMA), 1.6 to
1.7 with one warp per scheduler that loads for itself (cp.async).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config import Config
from .sass import Loop

CAVEAT = (
    "a model fitted on two or three published points per class of kernel; clocks, power, L2, the last wave of CTAs and "
    "causal imbalance are outside it. Compare kernels of one class and one ptxas only, and believe differences of N "
    "above 10 %. Nothing was measured on an SM120."
)
# Clocks of one matrix instruction on one of an SM's four schedulers; full rate: RTX PRO 6000, GB10; half: GeForce.
# Block-scaled FP8 (QMMA.SF) runs at full rate on both.
CLOCKS = {"full rate": 16, "half rate": 32}
HIDDEN = {"two warps per scheduler": (0.7, 1.1), "one warp per scheduler": (1.6, 1.7)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The matrix pipe's utilisation at the two ends of a's range, for one rate of the pipe."""

    rate: str
    clocks: int
    low: float
    high: float


def predict(loop: Loop, config: Config) -> tuple[Prediction, ...]:
    """One prediction per rate of the matrix pipe."""
    small, large = HIDDEN[warps_per_scheduler(config)]
    found = []
    for rate, clocks in CLOCKS.items():
        if loop.matrix_opcode.startswith("QMMA.SF"):
            clocks = CLOCKS["full rate"]
        t = loop.matrix * clocks
        found.append(Prediction(rate, t, t / (t + large * loop.others), t / (t + small * loop.others)))
    return tuple(found)


def clocks_per_product(prediction: Prediction, config: Config) -> tuple[float, float]:
    """Clocks of a scheduler's matrix pipe per 1,000 products of Q and K, fewest and most, by which kernels of
    different dtypes and tiles can be compared: time for the same work."""
    warp_rows = config.rows_per_warp
    thousands = warp_rows * config.tile_n * config.head_dim / 1000
    return tuple(prediction.clocks / share / thousands for share in (prediction.high, prediction.low))


def warps_per_scheduler(config: Config) -> str:
    """Which class the kernel is in."""
    return "two warps per scheduler" if config.warps * config.ctas_per_sm >= 8 else "one warp per scheduler"
