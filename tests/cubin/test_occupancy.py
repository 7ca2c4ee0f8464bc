"""Occupancy as NVIDIA's calculator says."""

from __future__ import annotations

import pytest

from tritonhook.capture.dry_run.gpu import GPUS
from tritonhook.cubin.resources import occupancy

# Target, registers, threads and bytes of shared memory; blocks of an SM, and what keeps further ones out.
BLOCKS = """
sm_90a 168 128 50176 -> 3 registers
sm_90a 32 128 0 -> 16 registers,warps
sm_90a 16 32 0 -> 32 blocks
sm_90a 32 128 115712 -> 2 shared memory
sm_90a 32 128 116736 -> 1 shared memory
sm_80 100 256 37888 -> 2 registers
sm_86 32 128 50176 -> 2 shared memory
sm_86 32 128 50177 -> 1 shared memory
sm_86 32 32 0 -> 16 blocks
sm_89 16 128 0 -> 12 warps
sm_120a 16 32 101376 -> 1 shared memory
"""


@pytest.mark.parametrize("row", BLOCKS.strip().splitlines())
def test_what_fits_and_what_limits_it(row: str) -> None:
    given, _, wanted = row.partition(" -> ")
    arch, registers, threads, shared = (int(word) if word.isdigit() else word for word in given.split())
    blocks, _, limits = wanted.partition(" ")
    found = occupancy(arch, registers, threads, shared)
    assert found is not None
    assert (found.blocks, found.warps, ",".join(found.limits)) == (int(blocks), int(blocks) * threads // 32, limits)


@pytest.mark.parametrize("number", [number for number in GPUS if number >= 80])
def test_the_most_shared_memory_of_a_block_of_each_gpu_fits_an_sm_once(number: int) -> None:
    most = GPUS[number].shared_bytes
    found = [occupancy(f"sm_{number}", 16, 32, size) for size in (most // 2 - 512, most, most + 1)]
    assert [one and one.blocks for one in found] == [2, 1, 0]


def test_the_shared_memory_of_an_a40() -> None:
    """99 KiB for a block: CUDA programming guide, compute capability 8.6."""
    assert (GPUS[86].name, GPUS[86].shared_bytes) == ("NVIDIA A40", 101_376)


UNKNOWN = [("gfx942", 32, 128, 0), ("sm_75", 32, 128, 0), ("sm_90a", None, 128, 0), ("sm_90a", 32, None, 0)]


@pytest.mark.parametrize("given", [*UNKNOWN, ("sm_90", 8, 32, None)])
def test_what_is_not_known_is_none(given: tuple) -> None:
    assert occupancy(*given) is None
