"""What one Hopper attention kernel is compiled for, and what an sm_90 GPU can run. Only values, no triton."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .config import BITS, SHARED_BYTES

HOPPER = (90,)
HEAD_DIMS = (64, 128, 256)

# A consumer is one warpgroup, and wgmma works on 64 rows of it.
CONSUMER_ROWS = 64
WARPGROUP_THREADS = 128
REGISTERS = 65536
# setmaxnreg takes multiples of 8. The consumers hold scores and accumulator, the loading warps nearly nothing.
CONSUMER_REGISTERS = {1: 240, 2: 240, 3: 160}
# The ring barriers, 8 bytes each, and what warp specialisation hands to the partitions.
BARRIER_BYTES = 1024
# What K and V of the heads in work may take of the 50 MiB.
L2_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class HopperConfig:
    """One forward attention kernel for sm_90a.

    dtype       of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16". O has it too, but is bf16 for fp8.
    head_dim    columns of Q, K, V and O
    causal      row i sees keys 0 .. i + shift only; the shift, which is the alignment, is a launch argument
    name        the entry's name in the PTX
    consumers   warpgroups that compute, 64 query rows each
    block_n     keys of a block
    kv_stages   K blocks in flight, and V blocks as well; None: as many as fit, at most 4
    turns       consumers issue their MMAs in turns, so that one computes softmax while the other has the
                tensor cores (ping-pong)
    """

    dtype: str = "bf16"
    head_dim: int = 128
    causal: bool = False
    name: str = "attention_hopper"
    consumers: int = 2
    block_n: int = 128
    kv_stages: int | None = None
    turns: bool = True
    early: bool = False
    late_scale: bool = True

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def fp8(self) -> bool:
        return self.element_bytes == 1

    @property
    def out_dtype(self) -> str:
        return "bf16" if self.fp8 else self.dtype

    @property
    def block_m(self) -> int:
        """Query rows of a tile."""
        return self.consumers * CONSUMER_ROWS

    @property
    def shared_out(self) -> bool:
        """O is staged where Q was: there is no room for both."""
        return self.head_dim == 256 and not self.fp8

    @property
    def stages(self) -> int:
        if self.kv_stages is not None:
            return self.kv_stages
        return min(4, (SHARED_BYTES - self._shared_bytes_without_kv) // self._stage_bytes)

    @property
    def _stage_bytes(self) -> int:
        return 2 * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        elements = self.block_m * self.head_dim
        out = 0 if self.shared_out else 2 * elements
        return elements * self.element_bytes + out + BARRIER_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K and V stages, barriers."""
        return self._shared_bytes_without_kv + self.stages * self._stage_bytes

    @property
    def consumer_registers(self) -> int:
        return CONSUMER_REGISTERS[self.consumers]

    @property
    def entry_registers(self) -> int:
        """Registers per thread at launch, for the consumers' warpgroups and the loading one."""
        return REGISTERS // ((self.consumers + 1) * WARPGROUP_THREADS) // 8 * 8

    @property
    def tile_registers(self) -> int:
        """Registers per consumer thread that tiles take: fp32 scores and accumulator, the MMA's probabilities."""
        threads_per_row = WARPGROUP_THREADS // CONSUMER_ROWS
        return (self.block_n + self.head_dim + self.block_n * self.element_bytes // 4) // threads_per_row

    def section(self, keys: int, heads_per_kv: int) -> int:
        """Heads of Q whose tiles are taken together: as many as have their K and V in the L2 cache."""
        kv_bytes = 2 * keys * self.head_dim * self.element_bytes
        return max(1, L2_BYTES // kv_bytes) * heads_per_kv

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box of each tensor descriptor: [batch, head, row, column], V of fp8 transposed."""
        q = [1, 1, CONSUMER_ROWS, self.head_dim]
        kv = [1, 1, self.block_n, self.head_dim]
        return {"q_desc": q, "k_desc": kv, "v_desc": [1, 1, self.head_dim, self.block_n] if self.fp8 else kv, "o_desc": q}

    def why_not(self, arch: int) -> str | None:
        """The first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in HOPPER:
            return f"arch {arch}: wgmma exists on sm_90 only"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}, what tiles are cut for"
        if self.consumers not in CONSUMER_REGISTERS:
            return f"consumers {self.consumers}: 1, 2 or 3 warpgroups fit beside the loading one"
        if self.block_n not in (64, 128, 256):
            return f"block_n {self.block_n}: 64, 128 or 256, powers of two that wgmma takes as N"
        if self.tile_registers + 24 > self.consumer_registers:
            return (
                f"{self.tile_registers} registers for the tiles of block_n {self.block_n}: "
                f"a thread of {self.consumers} consumers has {self.consumer_registers}"
            )
        if self.stages < 2:
            return f"kv_stages {self.stages}: the next K is needed while V of this block is in use"
        if self.shared_bytes > SHARED_BYTES:
            return f"{self.shared_bytes} shared bytes for {self.stages} kv_stages: a CTA has {SHARED_BYTES}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.name):
            return f"name {self.name!r}: Triton wants letters, digits and underscores, no digit first"
        return None

    def require(self, arch: int) -> None:
        """Raise ValueError with the reason if `arch` cannot run this kernel."""
        reason = self.why_not(arch)
        if reason is not None:
            raise ValueError(f"hopper attention kernel for sm_{arch}: {reason}")
