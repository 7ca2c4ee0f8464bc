"""Occupancy as NVIDIA's calculator says."""

from __future__ import annotations

import pytest

from tritonhook.cubin.resources import occupancy


@pytest.mark.parametrize(
    ("arch", "registers", "threads", "shared", "blocks", "limits"),
    [
        ("sm_90a", 168, 128, 50_176, 3, ("registers",)),
        ("sm_90a", 32, 128, 0, 16, ("registers", "warps")),
        ("sm_90a", 16, 32, 0, 32, ("blocks",)),
        ("sm_90a", 32, 128, 113 * 1024, 2, ("shared memory",)),
        ("sm_90a", 32, 128, 114 * 1024, 1, ("shared memory",)),  # each block takes 1 KiB more
        ("sm_80", 100, 256, 37_888, 2, ("registers",)),
        ("sm_89", 16, 128, 0, 12, ("warps",)),
        ("sm_120a", 16, 32, 99 * 1024, 1, ("shared memory",)),
    ],
)
def test_what_fits_and_what_limits_it(
    arch: str, registers: int, threads: int, shared: int, blocks: int, limits: tuple[str, ...]
) -> None:
    found = occupancy(arch, registers, threads, shared)
    assert found is not None
    assert (found.blocks, found.warps, found.limits) == (blocks, blocks * threads // 32, limits)


@pytest.mark.parametrize(
    ("arch", "registers", "threads", "shared"),
    [
        ("gfx942", 32, 128, 0),
        ("sm_75", 32, 128, 0),
        ("sm_90a", None, 128, 0),
        ("sm_90a", 32, None, 0),
        ("sm_90", 8, 32, None),
    ],
)
def test_what_is_not_known_is_none(arch: str, registers: int | None, threads: int | None, shared: int | None) -> None:
    assert occupancy(arch, registers, threads, shared) is None
