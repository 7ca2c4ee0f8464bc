"""How many blocks and warps of a kernel an SM holds at a time, and what limits them: NVIDIA's occupancy calculator.

The limits are those of "Technical Specifications per Compute Capability" in the CUDA C++ Programming Guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WARP = 32  # threads
_REGISTERS, _QUARTERS, _UNIT = 65_536, 4, 256  # of an SM; its parts; registers that a warp is given at a time
_RESERVED, _SHARED_UNIT = 1024, 128  # bytes of shared memory: of each block for the system; a block is given at a time
_KIB = 1024
_NUMBER = re.compile(r"sm_(\d+)[af]?")


@dataclass(frozen=True, slots=True)
class _SmLimits:
    warps: int
    blocks: int
    shared: int  # bytes


_LARGE, _SMALL = _SmLimits(64, 32, 228 * _KIB), _SmLimits(48, 24, 100 * _KIB)
_LIMITS = {
    80: _SmLimits(64, 32, 164 * _KIB),
    86: _SmLimits(48, 16, 100 * _KIB),
    87: _SmLimits(48, 16, 164 * _KIB),
    89: _SMALL,
    90: _LARGE,
    100: _LARGE,
    103: _LARGE,
    110: _SmLimits(48, 24, 228 * _KIB),
    120: _SMALL,
    121: _SMALL,
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """blocks, warps: of one SM at a time. most_warps: that it can hold. limits: what keeps further blocks out."""

    blocks: int
    warps: int
    most_warps: int
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        """ "12 of 64 warps in 3 blocks, limited by registers"."""
        blocks = f"{self.blocks:,} block{'' if self.blocks == 1 else 's'}"
        return f"{self.warps} of {self.most_warps} warps in {blocks}, limited by {' and '.join(self.limits)}"


def occupancy(arch: str, registers: int | None, threads: int | None, shared: int | None) -> Occupancy | None:
    """None where the architecture or a figure is not known. arch: such as "sm_90a". registers: of a thread. threads,
    shared: of a block, shared memory in bytes with what the launch adds."""
    number = _NUMBER.fullmatch(arch)
    limits = _LIMITS.get(int(number[1])) if number else None
    if limits is None or not registers or not threads or shared is None:
        return None
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // _UNIT) * _UNIT
    of_block = -(-(shared + _RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
    fits = {
        "registers": _QUARTERS * (_REGISTERS // _QUARTERS // of_warp) // warps,
        "shared memory": limits.shared // of_block,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(fits.values())
    return Occupancy(blocks, blocks * warps, limits.warps, tuple(name for name, fit in fits.items() if fit == blocks))
