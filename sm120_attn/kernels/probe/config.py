"""ProbeConfig: all compile-time parameters of a probe. Imports neither cutlass nor torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...config import ARCHS, FP8

WHATS = ("lane map", "mma", "banks")
ROW_BYTES = 16  # bytes that ldmatrix reads at a lane's address
PATHS = ("native", "portable")  # how V is loaded: by Mma8 or by Mma8Portable, see kernels/mma_fp8.py
# Orders in which ldmatrix reads rows of V and K, for rows of 128 and 64 bytes: "turned" is the order of the FP8
# kernels, "straight" is that order without the rotation by four rows. "eight ways" is the worst order, with eight lanes
# in the same banks.
ORDERS = (
    *(f"{tensor} D{head_dim} {rows}" for head_dim in (128, 64) for tensor in "VK" for rows in ("turned", "straight")),
    "eight ways",
)
BANK_WARPS, CHAINS, BANK_LOADS = 16, 4, 64


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """One probe. what: one of WHATS; dtype: dtype of the operands of the probe "mma"."""

    arch: str = "sm_120a"
    what: str = "banks"
    dtype: str = "e4m3"

    @property
    def byte_wise(self) -> bool:
        """Whether the target has ldmatrix of bytes. Else the probe reads the same addresses with 16-bit ldmatrix."""
        return self.arch != "sm_90a"

    @property
    def scalings(self) -> tuple[bool, ...]:
        """The kinds of MMA that the target has: plain, and block-scaled with all scales 1."""
        return (False, True) if self.arch != "sm_90a" else (False,)

    @property
    def name(self) -> str:
        return f"sm120_attn_probe_{self.what.replace(' ', '_')}" + f"_{self.dtype}" * (self.what == "mma")


def why_not(config: ProbeConfig) -> str | None:
    """Return the reason why this kernel cannot be built, or None."""
    if config.arch not in ARCHS:
        return f"arch {config.arch!r}: must be {' or '.join(ARCHS)}"
    if config.what not in WHATS:
        return f"what {config.what!r}: must be {' or '.join(WHATS)}"
    if config.dtype not in FP8:
        return f"dtype {config.dtype!r}: must be {' or '.join(FP8)}"
    return None
