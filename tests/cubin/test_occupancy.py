"""Occupancy as NVIDIA's calculator says."""

from __future__ import annotations

import pytest

from tritonhook.capture.dry_run.gpu import GPUS
from tritonhook.cubin.resources import occupancy
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

# Target, registers, threads and bytes of shared memory, in which images for sm_90 and newer count 1 KiB of the block's
# own; blocks of an SM, and what keeps further ones out.
BLOCKS = """
sm_90a 168 128 50176 -> 3 registers
sm_90a 32 128 0 -> 16 registers,warps
sm_90a 16 32 0 -> 32 blocks
sm_90a 32 128 115712 -> 2 shared memory
sm_90a 32 128 116736 -> 2 shared memory
sm_90a 32 128 117760 -> 1 shared memory
sm_80 32 128 83968 -> 1 shared memory
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
    most = GPUS[number].shared_bytes + 1024 * (number >= 90)  # the image's figure has the block's own 1 KiB
    found = [occupancy(f"sm_{number}", 16, 32, size) for size in (most // 2 - 512, most, most + 1)]
    assert [one and one.blocks for one in found] == [2, 1, 0]


def test_the_shared_memory_of_an_a40() -> None:
    """99 KiB for a block: CUDA programming guide, compute capability 8.6."""
    assert (GPUS[86].name, GPUS[86].shared_bytes) == ("NVIDIA A40", 101_376)


UNKNOWN = [("gfx942", 32, 128, 0), ("sm_75", 32, 128, 0), ("sm_90a", None, 128, 0), ("sm_90a", 32, None, 0)]


@pytest.mark.parametrize("given", [*UNKNOWN, ("sm_90", 8, 32, None)])
def test_what_is_not_known_is_none(given: tuple) -> None:
    assert occupancy(*given) is None


# (registers, threads, static and dynamic bytes of shared memory, blocks): what Nsight Compute says of launches on an
# H100 SXM, the least of its limits (launch__occupancy_limit_*); static bytes are the image's .nv.shared.
ON_H100 = (
    (8, 256, 0, 0, 8),
    (10, 256, 33_792, 0, 6),
    (12, 128, 0, 0, 16),
    (18, 128, 1_024, 16, 16),
    (23, 128, 0, 0, 16),
    (25, 128, 1_024, 256, 16),
    (25, 128, 1_024, 4_096, 16),
    (32, 128, 1_024, 4_096, 16),
    (38, 128, 0, 0, 12),
    (40, 128, 1_024, 1_024, 12),
    (48, 128, 1_024, 8_192, 10),
    (82, 128, 1_024, 32_768, 5),
    (96, 128, 1_024, 16_384, 5),
    (118, 128, 1_024, 57_344, 4),
)


@pytest.mark.parametrize(("registers", "threads", "static", "dynamic", "blocks"), ON_H100)
def test_blocks_are_those_that_nsight_compute_counts(
    registers: int, threads: int, static: int, dynamic: int, blocks: int
) -> None:
    found = occupancy("sm_90a", registers, threads, static + dynamic, dynamic)
    assert found is not None and found.blocks == blocks


# Each block takes 1 KiB for the system, also where the image does not count it: 228 KiB hold 3 of 75 + 1 KiB (CUDA
# programming guide, compute capability 9.0).
@pytest.mark.parametrize(
    ("static", "dynamic", "blocks"), [(0, 76_800, 3), (1_024, 76_800, 3), (0, 76_928, 2), (1_024, 76_928, 2)]
)
def test_the_system_takes_its_bytes_beside_those_of_the_launch(static: int, dynamic: int, blocks: int) -> None:
    found = occupancy("sm_90a", 16, 128, static + dynamic, dynamic)
    assert found is not None and found.blocks == blocks


@pytest.mark.parametrize(
    ("arch", "reserved"), [("sm_80", 0), ("sm_89", 0), ("sm_90a", 1024), ("sm_100a", 1024), ("sm_120a", 1024)]
)
def test_the_image_has_the_reserved_bytes_from_sm_90_on(arch: str, reserved: int, tools: Toolchain) -> None:
    ptx = f""".version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 o) {{
  .reg .b32 %r<4>; .reg .b64 %d;
  .shared .align 16 .b8 m[4096];
  ld.param.u64 %d, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, m; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
  st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r1, [%r2+4]; st.global.u32 [%d], %r1; ret;
}}
"""
    assert tools.assemble_or_raise(Ptx(ptx)).cubin.resources["k"].shared == 4096 + reserved
