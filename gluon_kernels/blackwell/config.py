"""Configurations of the Blackwell attention, and the limits of sm_100 and sm_103. Imports no triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

from ..config import BITS, SHARED_BYTES, KernelConfig, why_not_name

# sm_100a and sm_103a have tcgen05 MMA and tensor memory (TMEM).
BLACKWELL = (100, 103)
TMEM_COLUMNS = 512
TMEM_LANES = 128

# Slots of each ring in which a softmax partition sends row scales to the correction partition.
SCALE_SLOTS = 2
# Upper bound for the bytes of the mbarriers, 8 each, and of the arguments that warp specialisation stores. The largest
# size in a compiled kernel was 728 bytes.
BARRIER_BYTES = 1024
MOST_KV_STAGES = 8

# The correction partition and each softmax partition have four warps. The mma, load and epilogue partitions have one
# warp each. A fourth single warp has no work.
WARPS = 4
SM_REGISTERS = 65536
ROLE_REGS = 24


@dataclass(frozen=True, slots=True)
class AttentionConfig(KernelConfig):
    """One forward attention kernel for sm_100a or sm_103a.

    dtype           type of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16"; sums, maxima and accumulators are fp32
    head_dim        columns of Q, K, V and O
    causal          query i sees keys 0 .. i + causal_offset only; the offset is an argument of the launch
    packed_row_sum  add the probabilities in pairs with add.rn.f32x2. If False, gl.sum adds them: in Triton 3.6 and 3.7
                    with one add.f32 for each, in 3.8 and 3.9 with packed additions that Triton chooses
    name            the entry's name in the PTX
    block_m         query rows of a tile, which is computed in two halves
    block_n         keys of a block
    kv_stages       K and V blocks in flight; None: as many as fit, at most 8
    exp_parts       number of column parts in which the probabilities are computed and stored: a thread has too few
                    registers to convert 128 scores at once
    exp_turns       the two softmax partitions use the exp2 unit in turn; None: True for head_dim 64, else False
    ragged          the last queries may not fill a tile, and the last keys may not fill a block
    out             dtype of O; None: the dtype of Q
    out_parts       number of column parts in which O is scaled and stored
    softmax_regs    registers of a softmax thread; the correction partition gets the SM's remaining registers
    fma_parts       how many of the exp_parts are computed with multiply-adds instead of the exp2 unit: see
                    device/exp2_polynomial.py
    """

    KERNEL: ClassVar[str] = "blackwell"
    ARCH: ClassVar[int] = 100

    dtype: str = "fp8e5"
    head_dim: int = 64
    causal: bool = False
    packed_row_sum: bool = False
    name: str = "attention_fwd"
    block_m: int = 256
    block_n: int = 128
    kv_stages: int | None = None
    exp_parts: int = 4
    exp_turns: bool | None = None
    ragged: bool = False
    out: str | None = None
    out_parts: int = 2
    softmax_regs: int = 192
    fma_parts: int = 0

    @property
    def out_dtype(self) -> str:
        return self.out or self.dtype

    @property
    def stages(self) -> int:
        """K and V blocks in flight."""
        if self.kv_stages is not None:
            return self.kv_stages
        room = SHARED_BYTES - self._shared_bytes_without_kv
        return min(MOST_KV_STAGES, room // (self.block_n * self.head_dim * self.element_bytes))

    @property
    def fma_degree(self) -> int:
        """Degree of the exp2 polynomial, whose error is below that of rounding the probabilities to dtype."""
        return 2 if self.element_bytes == 1 else 3

    @property
    def turns(self) -> bool:
        """Whether the halves take turns with the exp2 unit. With head_dim 64 this unit is the bottleneck."""
        return self.head_dim == 64 if self.exp_turns is None else self.exp_turns

    @property
    def exp_bits(self) -> int:
        """Probabilities are stored times 2 ** exp_bits, to use e4m3's range: its normal numbers are 2^-6 to 448."""
        return 8 if self.dtype == "fp8e4nv" else 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K and V stages, row scales, barriers."""
        return self._shared_bytes_without_kv + self.stages * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        q_and_o = self.block_m * self.head_dim * (self.element_bytes + BITS[self.out_dtype] // 8)
        return q_and_o + SCALE_SLOTS * self.block_m * 4 + BARRIER_BYTES

    @property
    def tmem_columns(self) -> int:
        """32-bit TMEM columns: both halves' scores, which become probabilities in place, and their accumulators."""
        return 2 * (self.block_n + self.head_dim)

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box of each tensor descriptor: [batch, head, row, column]."""
        half = self.block_m // 2
        return {
            "q_desc": [1, 1, half, self.head_dim],
            "k_desc": [1, 1, self.block_n, self.head_dim],
            "v_desc": [1, 1, self.block_n, self.head_dim],
            "o_desc": [1, 1, half, self.head_dim // self.out_parts],
        }

    @property
    def correction_regs(self) -> int:
        """Registers of a correction thread: the SM's registers that softmax and the four single warps leave over."""
        return (SM_REGISTERS // 32 - 2 * WARPS * self.softmax_regs - WARPS * ROLE_REGS) // WARPS

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each tensor descriptor."""
        return {name: self.out_dtype if name == "o_desc" else self.dtype for name in self.boxes}

    def why_not(self, arch: int, seqlen_q: int | None = None, seqlen_k: int | None = None) -> str | None:
        """Return the first reason why compute capability `arch` (100 = sm_100) cannot run this kernel, or None.

        With sequence lengths, also check that this kernel can compute them.
        """
        if arch not in BLACKWELL:
            return f"arch {arch}: tcgen05 MMA and tensor memory exist on sm_100 and sm_103 only"
        for dtype in (self.dtype, self.out_dtype):
            if dtype not in BITS:
                return f"dtype {dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in (64, 128):
            return f"head_dim {self.head_dim}: must be 64 or 128, to fit tensor memory and a TMA box"
        if self.block_m != 2 * TMEM_LANES:
            return f"block_m {self.block_m}: must be {2 * TMEM_LANES}, two halves with one row per TMEM lane"
        if self.block_n not in (64, 128):
            return f"block_n {self.block_n}: must be 64 or 128, as a softmax thread holds a whole row of scores"
        if self.tmem_columns > TMEM_COLUMNS:
            return f"block_n {self.block_n} needs {self.tmem_columns} TMEM columns; an SM has {TMEM_COLUMNS}"
        if self.stages < 2:
            return f"kv_stages {self.stages}: must be 2 or more, as the MMA holds V of a block and waits for the next K"
        if self.shared_bytes > SHARED_BYTES:
            return f"kv_stages {self.stages} needs {self.shared_bytes} bytes of shared memory; a CTA has {SHARED_BYTES}"
        if self.exp_parts not in (1, 2, 4):
            return f"exp_parts {self.exp_parts}: must be 1, 2 or 4"
        if not 0 <= self.fma_parts <= self.exp_parts:
            return f"fma_parts {self.fma_parts}: must be 0 to {self.exp_parts}, the number of exp_parts"
        if self.out_parts not in (1, 2, 4):
            return f"out_parts {self.out_parts}: must be 1, 2 or 4"
        if self.softmax_regs % 8 or self.correction_regs < ROLE_REGS or self.softmax_regs < self.block_n:
            return (
                f"softmax_regs {self.softmax_regs}: must be a multiple of 8, enough for {self.block_n} scores, at most "
                "232"
            )
        if not self.ragged:
            if seqlen_q is not None and seqlen_q % self.block_m:
                return f"seqlen_q {seqlen_q}: must be a multiple of {self.block_m} for a kernel without `ragged`"
            if seqlen_k is not None and seqlen_k % self.block_n:
                return f"seqlen_k {seqlen_k}: must be a multiple of {self.block_n} for a kernel without `ragged`"
        return why_not_name(self.name)


def default_config(
    arch: int, dtype: str, head_dim: int, *, causal: bool, seqlen_q: int, seqlen_k: int
) -> AttentionConfig:
    """Choose the configuration for a problem. It is not tuned: there was no Blackwell GPU to tune on.

    It was chosen by counting instructions of the machine code:
    * packed_row_sum halves the additions of the row sum.
    * 216 registers for softmax leave 56 for the correction, which then handles O in quarters. With this split the loops
      over key blocks do not spill.
    * On sm_100 a quarter of the exponentials are computed with multiply-adds, as the exp2 unit has more to do than the
      tensor cores. A block then takes 97 exp2 instructions instead of 129, and 120 more instructions of other kinds.
      sm_103 does not need this, as it has twice the exp2 rate (source: NVIDIA).
    """
    config = AttentionConfig(
        dtype,
        head_dim,
        causal,
        packed_row_sum=True,
        out="bf16" if BITS[dtype] == 8 else None,
        out_parts=4,
        softmax_regs=216,
        fma_parts=1 if arch == 100 else 0,
    )
    return replace(config, ragged=bool(seqlen_q % config.block_m or seqlen_k % config.block_n))


def candidates(config: AttentionConfig) -> Iterator[AttentionConfig]:
    """Yield `config`, then other configurations that compute the same, for a tuner."""
    choices: dict[str, tuple[Any, ...]] = {
        "packed_row_sum": (True, False),
        "block_n": (128, 64),
        "fma_parts": (0, 1, 2),
        "exp_turns": (False, True),
        "softmax_regs": (216, 200, 192),
    }
    yield config
    for values in product(*choices.values()):
        other = replace(config, **dict(zip(choices, values, strict=True)))
        if other != config and other.why_not(BLACKWELL[0]) is None:
            yield other
