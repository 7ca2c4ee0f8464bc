"""What one attention kernel is compiled for, and what the hardware can run. Only values, no triton."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

BITS = {"fp8e5": 8, "fp8e4nv": 8, "fp16": 16, "bf16": 16}
# Alignments of the causal mask, as launchers take them.
CAUSAL = (None, "top-left", "bottom-right")

# sm_100a and sm_103a: tcgen05 MMA, tensor memory, 227 KiB of shared memory per CTA.
BLACKWELL = (100, 103)
SHARED_BYTES = 227 * 1024
TMEM_COLUMNS = 512
TMEM_LANES = 128

# Slots of each ring of row scales.
SCALE_SLOTS = 2
# The mbarriers, 8 bytes each, and what warp specialisation hands to the partitions: 728 bytes were seen.
BARRIER_BYTES = 1024
MOST_KV_STAGES = 8

# Correction and each softmax have four warps; mma, load and epilogue one each, and a fourth idles beside them.
WARPS = 4
SM_REGISTERS = 65536
ROLE_REGS = 24


class OfDtype:
    """What follows from a config's `dtype`."""

    __slots__ = ()
    dtype: str

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True)
class AttentionConfig(OfDtype):
    """One forward attention kernel.

    dtype           of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16"; sums, maxima and accumulators are fp32
    head_dim        columns of Q, K, V and O
    causal          row i sees the keys 0..i + diagonal only; the diagonal, which is the alignment, comes at launch
    packed_row_sum  add the probabilities in pairs by add.rn.f32x2; else by gl.sum: one add.f32 at a time in
                    Triton 3.6 and 3.7, while 3.8 and 3.9 pack it in their own way
    name            the entry's name in the PTX
    block_m         query rows of a tile, computed as two halves; block_n: keys of a block
    kv_stages       K or V blocks in flight; None: as many as fit, at most 8
    exp_parts       column parts in which the probabilities are computed and stored
    fma_parts       of these, how many are computed by multiply-adds instead of the exp2 unit (see exp2.py)
    exp_turns       the two softmax partitions take turns at exp2; None: yes for head_dim 64
    ragged          the last rows may not fill a tile, nor the last keys a block
    out             dtype of O; None: like Q, K and V
    out_parts       column parts in which O is scaled and stored
    softmax_regs    registers of a softmax thread; the correction partition has what these leave of the SM's
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
    def fma_degree(self) -> int:
        """Of the polynomial: it errs less than the rounding of the probabilities to dtype."""
        return 2 if self.element_bytes == 1 else 3

    @property
    def turns(self) -> bool:
        """With 64 columns the exp2 unit is the bottleneck, so the halves take turns at it."""
        return self.head_dim == 64 if self.exp_turns is None else self.exp_turns

    @property
    def exp_bits(self) -> int:
        """e4m3 ends at 448 and is subnormal below 2^-6: probabilities are stored 2^8 times too large."""
        return 8 if self.dtype == "fp8e4nv" else 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K/V stages, scales, barriers."""
        return self._shared_bytes_without_kv + self.stages * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        q_and_o = self.block_m * self.head_dim * (self.element_bytes + BITS[self.out_dtype] // 8)
        return q_and_o + SCALE_SLOTS * self.block_m * 4 + BARRIER_BYTES

    @property
    def tmem_columns(self) -> int:
        """32-bit TMEM columns: scores (then probabilities, in place) and accumulator of both halves."""
        return 2 * (self.block_n + self.head_dim)

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box (batch, head, row, column) of each tensor descriptor."""
        half = self.block_m // 2
        return {
            "q_desc": [1, 1, half, self.head_dim],
            "k_desc": [1, 1, self.block_n, self.head_dim],
            "v_desc": [1, 1, self.block_n, self.head_dim],
            "o_desc": [1, 1, half, self.head_dim // self.out_parts],
        }

    @property
    def correction_regs(self) -> int:
        """Registers of a correction thread: what softmax and the four one-warp roles (one is idle) leave over."""
        return (SM_REGISTERS // 32 - 2 * WARPS * self.softmax_regs - WARPS * ROLE_REGS) // WARPS

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each tensor descriptor."""
        return {name: self.out_dtype if name == "o_desc" else self.dtype for name in self.boxes}

    def why_not(self, arch: int, n_queries: int | None = None, n_keys: int | None = None) -> str | None:
        """The first reason why compute capability `arch` (100 = sm_100) cannot run this kernel, or None.

        With the lengths of a problem, also why this kernel cannot compute that."""
        if arch not in BLACKWELL:
            return f"arch {arch}: tcgen05 MMA and tensor memory exist on sm_100 and sm_103 only"
        for dtype in (self.dtype, self.out_dtype):
            if dtype not in BITS:
                return f"dtype {dtype!r}: not one of {', '.join(BITS)}"
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
        if not 0 <= self.fma_parts <= self.parts:
            return f"fma_parts {self.fma_parts}: of {self.parts} exp_parts"
        if self.out_parts not in (1, 2, 4):
            return f"out_parts {self.out_parts}: O is scaled whole, in halves or in quarters"
        if self.softmax_regs % 8 or self.correction_regs < ROLE_REGS or self.softmax_regs < self.block_n:
            return f"softmax_regs {self.softmax_regs}: a multiple of 8, enough for {self.block_n} scores, at most 232"
        if not self.ragged:
            if n_queries is not None and n_queries % self.block_m:
                return f"n_queries {n_queries}: not a multiple of {self.block_m}, and the kernel is not `ragged`"
            if n_keys is not None and n_keys % self.block_n:
                return f"n_keys {n_keys}: not a multiple of {self.block_n}, and the kernel is not `ragged`"
        return why_not_name(self.name)

    def require(self, arch: int, n_queries: int | None = None, n_keys: int | None = None) -> None:
        """Raise ValueError with the reason if `arch` cannot run this kernel, or the kernel not this problem."""
        reason = self.why_not(arch, n_queries, n_keys)
        if reason is not None:
            raise ValueError(f"attention kernel for sm_{arch}: {reason}")


def entry_name(specialization) -> str:
    """The entry's name is the NAME constexpr: Triton's compile hash covers constexprs, but not `repr`."""
    return specialization.constants["NAME"]


def why_not_name(name: str) -> str | None:
    """Why an entry cannot be called so, or None."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return f"name {name!r}: Triton wants letters, digits and underscores, no digit first"
    return None


def default_config(
    arch: int, dtype: str, head_dim: int, *, causal: bool, n_queries: int, n_keys: int
) -> AttentionConfig:
    """The config for a problem where nothing was tuned: no Blackwell GPU was at hand to tune on.

    Chosen by counting what ptxas assembles. Pairs in the row sum: half the additions. 216 registers for softmax, which
    leaves the correction 56 and O in quarters: the split without spills in the loops over key blocks. A quarter of the
    exponentials by multiply-adds on sm_100, whose exp2 unit has more to do than its tensor cores: then a block takes
    97 of its instructions instead of 129, and 120 more of the others. sm_103 has twice the exp2 rate (NVIDIA).
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
    return replace(config, ragged=bool(n_queries % config.block_m or n_keys % config.block_n))


def candidates(config: AttentionConfig) -> Iterator[AttentionConfig]:
    """Configs that compute the same as `config`, for a tuner; `config` comes first."""
    choices = {
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
