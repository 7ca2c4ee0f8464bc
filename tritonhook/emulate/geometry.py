"""The grid, blocks and clusters of a launch, and the special registers in which threads read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Machine

WARP = 32


@dataclass(frozen=True, slots=True)
class Geometry:
    """The part of a launch that a machine executes. grid, block, cluster: dimensions of the launch. ctas: linear
    numbers of the CTAs to execute; CTAs of one cluster are adjacent, in order of their ranks."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    ctas: tuple[int, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)

    @property
    def cluster_size(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @property
    def block_threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def padded_threads(self) -> int:
        """The threads of a CTA, rounded up to whole warps."""
        return -(-self.block_threads // WARP) * WARP


def coordinates(linear: Array, extent: tuple[int, int, int]) -> Array:
    """Convert linear numbers to x, y, z: shape (3, numbers)."""
    x, y, _ = extent
    return np.stack([linear % x, linear // x % y, linear // (x * y)]).astype(np.uint32)


def specials(machine: Machine) -> dict[str, Array]:
    """Return the special registers by their PTX names, e.g. `%tid.x`: one uint32 per thread of the machine."""
    geometry = machine.geometry
    found: dict[str, Array] = {}
    numbers = {"nwarpid": geometry.padded_threads // WARP, "cluster_nctarank": geometry.cluster_size}
    ctaid = coordinates(np.asarray(geometry.ctas), geometry.grid)
    for number, axis in enumerate("xyz"):
        size, of_ctas = geometry.cluster[number], ctaid[number]
        found[f"%tid.{axis}"], found[f"%ctaid.{axis}"] = machine.tid[number], machine.ctaid[number]
        for name, values in (("cluster_ctaid", of_ctas % np.uint32(size)), ("clusterid", of_ctas // np.uint32(size))):
            found[f"%{name}.{axis}"] = np.repeat(values, geometry.padded_threads)
        numbers[f"ntid.{axis}"], numbers[f"nctaid.{axis}"] = geometry.block[number], geometry.grid[number]
        numbers[f"cluster_nctaid.{axis}"], numbers[f"nclusterid.{axis}"] = size, geometry.grid[number] // size
    found |= {f"%{name}": np.broadcast_to(np.uint32(value), machine.threads) for name, value in numbers.items()}
    found["%laneid"], found["%warpid"], found["%cluster_ctarank"] = machine.lane, machine.warp, machine.rank
    bit = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    below = bit - np.uint32(1)
    for name, mask in (("eq", bit), ("lt", below), ("le", below | bit), ("gt", ~(below | bit)), ("ge", ~below)):
        found[f"%lanemask_{name}"] = np.tile(mask, machine.threads // WARP)
    return found


def halves(cta: Array, unit: Array, random: np.random.Generator | None) -> Array:
    """Divide the threads into two halves at random; half 0 is scheduled first. Return the half of each thread; without
    `random`, 0 for all.

    cta: CTA of each thread. unit: number of each thread's warp in the CTA, or of its warpgroup if warpgroups compute
    products; threads of a unit stay together."""
    if random is None:
        return np.zeros(len(cta), np.int64)
    number = cta * WARP + unit
    return random.integers(0, 2, int(number.max()) + 1)[number]
