"""What one attention kernel is compiled for, and what the hardware can run. Only values, no triton."""

import re
from dataclasses import dataclass

BITS = {"fp8e5": 8, "fp8e4nv": 8, "fp16": 16, "bf16": 16}

# sm_100a and sm_103a: tcgen05 MMA, tensor memory, 227 KiB of shared memory per CTA.
BLACKWELL = (100, 103)
SHARED_BYTES = 227 * 1024
TMEM_COLUMNS = 512
TMEM_LANES = 128

# Slots of each ring of row scales; column parts in which O is scaled and stored.
SCALE_SLOTS = 2
OUT_PARTS = 2
# The mbarriers, 8 bytes each, and what warp specialisation hands to the partitions: 728 bytes were seen.
BARRIER_BYTES = 1024
MOST_KV_STAGES = 8


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One forward attention kernel.

    dtype           of Q, K, V and O: "fp8e5", "fp8e4nv", "fp16" or "bf16"; sums and maxima are fp32
    head_dim        columns of Q, K, V and O
    causal          row i sees columns 0..i only
    packed_row_sum  add the probabilities in pairs by add.rn.f32x2; else by gl.sum: one add.f32 at a time in
                    Triton 3.6 and 3.7, while 3.8 and 3.9 pack it in their own way
    name            the entry's name in the PTX
    block_m         query rows of a tile, computed as two halves; block_n: keys of a block
    kv_stages       K or V blocks in flight; None: as many as fit, at most 8
    exp_parts       column parts in which the probabilities are computed and stored
    exp_turns       the two softmax partitions take turns at exp2; None: yes for head_dim 64
    """

    dtype: str = "fp8e5"
    head_dim: int = 64
    causal: bool = False
    packed_row_sum: bool = False
    name: str = "attention_fwd"
    block_m: int = 256
    block_n: int = 128
    kv_stages: int | None = None
    exp_parts: int | None = None
    exp_turns: bool | None = None

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def stages(self) -> int:
        """K or V blocks in flight."""
        if self.kv_stages is not None:
            return self.kv_stages
        room = SHARED_BYTES - self._shared_bytes_without_kv
        return min(MOST_KV_STAGES, room // (self.block_n * self.head_dim * self.element_bytes))

    @property
    def parts(self) -> int:
        """Column parts of the probabilities: 128 fp32 scores per thread are too many to convert at once."""
        return self.exp_parts or 4

    @property
    def turns(self) -> bool:
        """With 64 columns the exp2 unit is the bottleneck, so the halves take turns at it."""
        return self.head_dim == 64 if self.exp_turns is None else self.exp_turns

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K/V stages, scales, barriers."""
        return self._shared_bytes_without_kv + self.stages * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        q_and_o = 2 * self.block_m * self.head_dim * self.element_bytes
        return q_and_o + SCALE_SLOTS * self.block_m * 4 + BARRIER_BYTES

    @property
    def tmem_columns(self) -> int:
        """32-bit TMEM columns: scores (then probabilities, in place) and accumulator of both halves."""
        return 2 * (self.block_n + self.head_dim)

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box (rows, columns) of each tensor descriptor."""
        half = self.block_m // 2
        return {
            "q_desc": [half, self.head_dim],
            "k_desc": [self.block_n, self.head_dim],
            "v_desc": [self.block_n, self.head_dim],
            "o_desc": [half, self.head_dim // OUT_PARTS],
        }

    def why_not(self, arch: int) -> str | None:
        """The first reason why compute capability `arch` (100 = sm_100) cannot run this kernel, or None."""
        if arch not in BLACKWELL:
            return f"arch {arch}: tcgen05 MMA and tensor memory exist on sm_100 and sm_103 only"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in (64, 128):
            return f"head_dim {self.head_dim}: only 64 and 128 fit tensor memory and a TMA box"
        if self.block_m != 2 * TMEM_LANES:
            return f"block_m {self.block_m}: a tile is two halves of {TMEM_LANES} rows, one TMEM lane per row"
        if self.block_n not in (64, 128):
            return f"block_n {self.block_n}: 64 or 128, since a thread of the softmax holds a row of scores"
        if self.tmem_columns > TMEM_COLUMNS:
            return f"{self.tmem_columns} TMEM columns for block_n {self.block_n}: an SM has {TMEM_COLUMNS}"
        if self.stages < 2:
            return f"kv_stages {self.stages}: the MMA holds V of one block while it waits for K of the next"
        if self.shared_bytes > SHARED_BYTES:
            return f"{self.shared_bytes} shared bytes for {self.stages} kv_stages: a CTA has {SHARED_BYTES}"
        if self.parts not in (1, 2, 4):
            return f"exp_parts {self.parts}: a part is a half or a quarter of the scores, or all of them"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.name):
            return f"name {self.name!r}: Triton wants letters, digits and underscores, no digit first"
        return None

    def require(self, arch: int) -> None:
        """Raise ValueError with the reason if `arch` cannot run this kernel."""
        reason = self.why_not(arch)
        if reason is not None:
            raise ValueError(f"attention kernel for sm_{arch}: {reason}")
