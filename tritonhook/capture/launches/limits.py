"""Check a launch against the limits of a GPU: grid, block, cluster, registers, shared memory, TMA descriptors.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tritonhook.capture.launches.record import Descriptor, Launch, Tiling
from tritonhook.cubin.resources import REGISTERS, WARP, most_shared, registers_of_warp

GRID, BLOCK = (2**31 - 1, 65_535, 65_535), (1024, 1024, 64)
_THREADS = 1024  # threads of a block
_CLUSTER = 16  # blocks of a cluster; the limit is 8 unless the kernel allows a non-portable cluster size
_ALIGNED = 16  # bytes: alignment of a tensor map's address and strides; allocations are aligned to 256
_BOX, _STEP, _SIZE, _STRIDE = 256, 8, 2**32, 2**40  # limits of a tensor map: elements, elements, elements, bytes
_SWIZZLED = {1: 32, 2: 64, 3: 128}  # maximum bytes in a row of a box, by CUtensorMapSwizzle
LOCAL_BYTES = 512 << 10  # local memory of a thread
PARAMETER_BYTES = 32_764


def _beyond(name: str, extents: Sequence[int], most: Sequence[int]) -> str | None:
    for axis, extent, limit in zip("xyz", extents, most, strict=True):
        if extent > limit:
            return f"{name} {axis} of {extent:,}: a GPU allows {limit:,}"
    return None


def why_no_grid(grid: Sequence[int], ctas: int) -> str | None:
    """Return why no GPU can launch a grid, else None. grid: in blocks. ctas: blocks per cluster."""
    if ctas > _CLUSTER:
        return f"a cluster of {ctas:,} blocks: a GPU allows {_CLUSTER}"
    return _beyond("grid", grid, GRID)


def why_not(launch: Launch, arch: str, shared: int = 0, registers: int = 0) -> str | None:
    """Return why no GPU of this architecture can execute a launch, else None. arch: e.g. "sm_90a". shared: static
    shared memory in bytes, without the reserved part. registers: registers of a thread; 0 if not known."""
    for why in (_beyond("block", launch.block, BLOCK), why_no_grid(launch.grid, math.prod(launch.cluster))):
        if why is not None:
            return why
    if (threads := math.prod(launch.block)) > _THREADS:
        return f"a block of {threads:,} threads: a GPU allows {_THREADS:,}"
    if -(-threads // WARP) * registers_of_warp(registers) > REGISTERS:
        return f"{registers} registers in each of {threads:,} threads: a GPU allows {REGISTERS:,} in a block"
    for axis, extent, of_cluster in zip("xyz", launch.grid, launch.cluster, strict=True):
        if extent % of_cluster:
            return f"grid {axis} of {extent:,} is not a multiple of cluster {axis}, {of_cluster}"
    if (size := shared + launch.shared) > (limit := most_shared(arch)):
        return f"{size:,} bytes of shared memory in a block: {arch} allows {limit:,}"
    for one in launch.parameters:
        if isinstance(one, Descriptor) and (reason := why_no_tensor_map(one.offset, one.tiling)) is not None:
            return f"parameter {one.name}: {reason}"
    return None


def why_no_tensor_map(address: int, tiling: Tiling) -> str | None:
    """Return why the driver refuses to encode a tensor map, else None. address: address of the tensor, or its offset in
    an allocation."""
    row, span = tiling.box[0] * tiling.bits // 8, _SWIZZLED.get(tiling.swizzle)
    if address % _ALIGNED or any(stride % _ALIGNED or not 0 <= stride < _STRIDE for stride in tiling.strides):
        return f"address and strides of a tensor map must be multiples of {_ALIGNED} bytes, strides below 2^40"
    if not all(1 <= extent <= _BOX for extent in tiling.box):
        return f"a box of {'x'.join(map(str, tiling.box))} elements: TMA allows 1 to {_BOX}"
    if not tiling.interleave and (row % _ALIGNED or (span is not None and row > span)):
        most = f", with this swizzle at most {span}" if span else ""
        return f"rows of {row:,} bytes in a box: TMA copies multiples of {_ALIGNED}{most}"
    if not all(1 <= size <= _SIZE for size in tiling.shape) or not all(1 <= step <= _STEP for step in tiling.steps):
        return f"sizes of a tensor map must be 1 to 2^32, steps 1 to {_STEP}"
    return None
