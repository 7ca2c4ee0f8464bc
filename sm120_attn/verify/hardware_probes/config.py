"""What the probes are compiled for. Only values: no cutlass, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...config import ARCHS, FP8

WHATS = ("lane map", "mma", "banks")
ROW_BYTES = 16  # of a row that a lane gives to ldmatrix
PATHS = ("native", "portable")  # of V, see mma_policy
# Rows of V and K in the order that the FP8 kernels ask for them, for rows of 128 bytes and of 64, and in that without
# the turn by four rows; and the worst, eight lanes in the same banks.
ORDERS = (
    *(f"{tensor} D{head_dim} {rows}" for head_dim in (128, 64) for tensor in "VK" for rows in ("turned", "straight")),
    "eight ways",
)
BANK_WARPS, CHAINS, BANK_LOADS = 16, 4, 64


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """what: one of WHATS; dtype: of "mma"."""

    arch: str = "sm_120a"
    what: str = "banks"
    dtype: str = "e4m3"

    @property
    def byte_wise(self) -> bool:
        """Whether the target has ldmatrix of bytes; else ldmatrix of 16 bits goes to the same addresses."""
        return self.arch != "sm_90a"

    @property
    def scalings(self) -> tuple[bool, ...]:
        """The kinds of MMA that the target has: plain, and block-scaled with all scales 1."""
        return (False, True) if self.arch != "sm_90a" else (False,)

    @property
    def name(self) -> str:
        return f"sm120_attn_probe_{self.what.replace(' ', '_')}" + f"_{self.dtype}" * (self.what == "mma")


def why_not(config: ProbeConfig) -> str | None:
    """The reason why this kernel cannot be built; None if it can."""
    if config.arch not in ARCHS:
        return f"arch {config.arch!r}: compiled for {', '.join(ARCHS)} only"
    if config.what not in WHATS:
        return f"probe {config.what!r}: there are {', '.join(WHATS)}"
    if config.dtype not in FP8:
        return f"dtype {config.dtype!r}: of FP8"
    return None
