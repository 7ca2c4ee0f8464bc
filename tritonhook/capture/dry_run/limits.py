"""What a launch of Triton may ask of a GPU beyond what Triton itself checks when it loads a kernel: grid and cluster.

Pure. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Sequence

GRID = (2**31 - 1, 65_535, 65_535)
_CLUSTER = 16  # blocks; above 8 with the attribute that Triton sets


def why_not(grid: Sequence[int], ctas: int) -> str | None:
    """Return why no GPU makes a launch; None if there is no reason. grid: in clusters, as programs write it. ctas: of a
    cluster."""
    if ctas > _CLUSTER:
        return f"a cluster of {ctas:,} blocks; a GPU allows {_CLUSTER}"
    for axis, extent, most in zip("xyz", (grid[0] * ctas, *grid[1:]), GRID, strict=True):
        if extent > most:
            return f"grid {axis} is {extent:,}; a GPU allows {most:,}"
    return None
