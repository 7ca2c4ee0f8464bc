"""What the Hopper attention is compiled for, and what an sm_90 GPU can run. Only values, no triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

from ..config import BITS, SHARED_BYTES, KernelConfig, why_not_causal, why_not_name

HOPPER = (90,)
HEAD_DIMS = (64, 128, 256)

# A consumer is one warpgroup. Its wgmma work on 64 rows.
CONSUMER_ROWS = 64
BASE_NAME = "attention_hopper"
WARPGROUP_THREADS = 128
REGISTERS = 65536
# Registers of a consumer thread, by the number of consumers. setmaxnreg takes multiples of 8. Consumers hold scores and
# accumulators; the load partition needs few.
CONSUMER_REGISTERS = {2: 240, 3: 160}
# The same for codes, with two consumers. They need fewer, and the load partition, which transposes V, gets twice the
# difference.
CODES_REGISTERS = 232
# Registers that a consumer needs beside its tiles, at least: maxima, sums, counters, addresses.
SCALAR_REGISTERS = 24
# Each K slot and each V slot has one of the 16 named barriers; kernel.py lists the others.
MOST_KV_STAGES = 4
# Blocks of V in shared memory before they are transposed: one is transposed while the other is loaded.
TRANSPOSE_SLOTS = 2
# The fewest columns that wgmma takes. So many columns of ones sum up probabilities.
MMA_COLUMNS = 8
# The mbarriers, 8 bytes each, and the arguments that warp specialisation stores for the partitions.
BARRIER_BYTES = 1024
# How much of the L2 cache, 50 MiB, K and V of the heads that run at the same time may take. On an H100 32 MiB were
# slower, and so were fewer heads than a round of tiles needs.
L2_BYTES = 8 * 2**20
# With fewer queries fp8 takes the most exact form. Nothing was timed there.
FEW_QUERIES = 256


@dataclass(frozen=True, slots=True)
class HopperConfig(KernelConfig):
    """One forward attention kernel for sm_90a.

    dtype        type of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16". O has it too, but is bf16 for fp8
    head_dim     columns of Q, K, V and O
    causal       None; "top-left": query i sees keys 0 .. i; "bottom-right": the last query sees the last key
    name         the entry's name in the PTX
    consumers    warpgroups that compute, with 64 query rows each
    block_n      keys of a block
    kv_stages    K blocks in flight, and V blocks in flight; None: as many as fit, at most 4
    transpose_v  fp8: the load partition transposes the blocks of V; else another kernel transposes V before
    turns        consumers issue their MMAs in turn, so that one computes its softmax while another has the tensor cores
    keep_q       Q stays in registers; else each MMA reads it from shared memory
    guess        a row's maximum is that of its first block. Other blocks are not searched for a maximum until a sum
                 shows that a probability may be too large for its type
    overlap      with guess: a consumer computes probabilities while those of the block before are multiplied with V,
                 in a second set of registers; else only while other consumers have the tensor cores
    int_max      without guess: maxima are searched as integers, see block_max in softmax.py
    by_fma       with guess and without codes: how many of sixteen exponentials are computed with multiply-adds, see
                 device/exp2_polynomial.py
    codes        fp8, where lse is not asked for: probabilities are scores rounded to codes of the type, see
                 device/fp8_codes.py. Before rounding, their error is up to 4 %, a third less than the rounding error of
                 e4m3, except for the smallest (see head_bits). lse would be off by up to 0.08 (e5m2: 0.13) where one
                 key outweighs all others
    """

    KERNEL: ClassVar[str] = "hopper"
    ARCH: ClassVar[int] = 90

    dtype: str = "bf16"
    head_dim: int = 128
    causal: str | None = None
    name: str = BASE_NAME
    consumers: int = 2
    block_n: int = 128
    kv_stages: int | None = None
    transpose_v: bool = False
    turns: bool = False
    keep_q: bool = False
    guess: bool = False
    overlap: bool = False
    int_max: bool = False
    by_fma: int = 0
    codes: bool = False

    @property
    def block_m(self) -> int:
        """Query rows of a tile."""
        return self.consumers * CONSUMER_ROWS

    @property
    def shared_out(self) -> bool:
        """Whether O is staged where Q was, as there is no room for both."""
        return self.head_dim == 256 and not self.fp8

    @property
    def q_early(self) -> bool:
        """Whether the next Q is loaded during the last softmax of a tile and not after it: causal tiles are short.

        Without guess this does not help. Where O is staged in Q, Q is not free before O has been stored. With keep_q it
        is free at once.
        """
        return self.guess and self.causal is not None and not self.shared_out and not self.keep_q

    @property
    def uneven(self) -> bool:
        """Whether a consumer leaves out key blocks that other consumers of its tile need.

        With three consumers some have no rows in the last tile of most lengths, and with a mask the first one sees
        fewer keys than the last. With two consumers only a mask and small blocks make a difference.
        """
        return self.consumers == 3 or (self.causal is not None and self.block_n < self.block_m)

    @property
    def ordered(self) -> bool:
        """Whether CTAs take tiles in the order of tile_order, because tiles differ in length."""
        return self.causal is not None or self.uneven

    @property
    def lazy_bits(self) -> int:
        """How many bits a row's maximum may grow before O is scaled. Without effect with guess; see also int_max."""
        return 3 if self.dtype == "fp8e4nv" else 8

    @property
    def margin_bits(self) -> int:
        """With guess: how many bits are added to the maximum of few keys, as later keys may have larger scores.

        The probabilities of such a row are smaller by as much. Those of e4m3 stay above 2^-6, below which they lose
        bits, if they are at least 1/64 of the largest. Codes become 0 soon below that: with q = k, where the query's
        own key outweighs each other key, most of the row would be lost. So codes of e4m3 get no margin.
        """
        return 0 if self.codes and self.dtype == "fp8e4nv" else 3

    @property
    def head_bits(self) -> int:
        """fp8 probabilities are multiplied by 2 ** head_bits, so that small ones keep their bits.

        With lazy_bits they stay below 448 = 2 ** 8.8 for e4m3 and 57344 = 2 ** 15.8 for e5m2. With guess, a thread's
        sum of them does: see most_lane_sum. With codes each of them does, as long as no later score is more than 3.8
        bits (e5m2: 8.8) above the guess. Codes from 11 bits (e5m2: 21) below the guess on are too small, and from 12
        (22) on they are 0. With head_bits 3 instead of 5 for codes of e4m3, rows had twice the allowed error.
        """
        return {"fp8e4nv": 3 if self.guess and not self.codes else 5, "fp8e5": 7}.get(self.dtype, 0)

    @property
    def most_lane_sum(self) -> float:
        """With guess: up to which sum of a thread's exponentials, in one row and block, the row keeps its maximum.

        No probability is then larger, so each is in the range of its type. With the true maximum no sum is larger: it
        has block_n / 4 exponentials of at most 2 ** head_bits.
        """
        return {"fp8e4nv": 448.0, "fp8e5": 57344.0, "fp16": 32768.0, "bf16": 2.0**60}[self.dtype]

    @property
    def stages(self) -> int:
        """K blocks in flight, and V blocks in flight."""
        if self.kv_stages is not None:
            return self.kv_stages
        return min(MOST_KV_STAGES, (SHARED_BYTES - self._shared_bytes_without_kv) // self._stage_bytes)

    @property
    def _stage_bytes(self) -> int:
        return 2 * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        elements = self.block_m * self.head_dim
        out = 0 if self.shared_out else 2 * elements
        rows = TRANSPOSE_SLOTS * self.block_n * self.head_dim if self.transpose_v else 0
        ones = MMA_COLUMNS * self.block_n if self.codes else 0
        return elements * self.element_bytes + out + rows + ones + BARRIER_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K and V stages, rows of V, ones, barriers."""
        return self._shared_bytes_without_kv + self.stages * self._stage_bytes

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread."""
        if self.codes and self.transpose_v and self.consumers == 2:
            return CODES_REGISTERS
        return CONSUMER_REGISTERS[self.consumers]

    @property
    def entry_registers(self) -> int:
        """Registers of each thread at launch, of the consumers and the load partition."""
        return REGISTERS // ((self.consumers + 1) * WARPGROUP_THREADS) // 8 * 8

    @property
    def tile_registers(self) -> int:
        """Registers of a consumer thread that tiles take: fp32 scores and accumulators, left operands of the MMAs.

        With overlap there are two sets of probabilities: one is computed while the other is read.
        """
        threads_per_row = WARPGROUP_THREADS // CONSUMER_ROWS
        probabilities = self.block_n * (2 if self.overlap else 1)
        operands = (probabilities + self.head_dim * self.keep_q) * self.element_bytes // 4
        return (self.block_n + self.head_dim + operands) // threads_per_row

    def section(self, seqlen_k: int, qheads_per_kvhead: int, round_heads: int = 1) -> int:
        """How many heads of Q run at the same time: their K and V fill L2_BYTES, but at least `round_heads`."""
        kv_bytes = 2 * seqlen_k * self.head_dim * self.element_bytes
        return max(L2_BYTES // kv_bytes, -(-round_heads // qheads_per_kvhead), 1) * qheads_per_kvhead

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box of each tensor descriptor: [batch, head, row, column]. fp8 V is transposed, or pairs of bytes."""
        q = [1, 1, CONSUMER_ROWS, self.head_dim]
        k = [1, 1, self.block_n, self.head_dim]
        v = k
        if self.transpose_v:
            v = [1, 1, self.block_n, self.head_dim // 2]
        elif self.fp8:
            v = [1, 1, self.head_dim, self.block_n]
        return {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": q}

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each tensor descriptor. V that the kernel transposes is loaded as pairs of bytes."""
        v = "i16" if self.transpose_v else self.dtype
        return {"q_desc": self.dtype, "k_desc": self.dtype, "v_desc": v, "o_desc": self.out_dtype}

    def why_not(self, arch: int) -> str | None:
        """The first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in HOPPER:
            return f"arch {arch}: wgmma exists on sm_90 only"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}"
        if (reason := why_not_causal(self.causal)) is not None:
            return reason
        if self.consumers not in CONSUMER_REGISTERS:
            return f"consumers {self.consumers}: 2 or 3 warpgroups fit beside the load partition"
        if self.block_n not in (64, 128, 256):
            return f"block_n {self.block_n}: 64, 128 or 256, the powers of two that wgmma takes as N"
        if self.guess and self.block_n > 128:
            return f"block_n {self.block_n}: with guess 64 or 128, as larger sums do not bound the largest probability"
        if not 0 <= self.by_fma <= (16 if self.guess else 0):
            return f"by_fma {self.by_fma}: 0 to 16, and 0 without guess"
        if self.tile_registers + SCALAR_REGISTERS > self.consumer_registers:
            return (
                f"{self.tile_registers} registers for the tiles of block_n {self.block_n}: "
                f"a thread of {self.consumers} consumers has {self.consumer_registers}"
            )
        if self.overlap and not self.guess:
            return "overlap without guess: there are no registers for exponentials beside probabilities"
        if self.int_max and self.guess:
            return "int_max with guess: maxima are searched only where a guess was wrong"
        if self.codes and not self.fp8:
            return f"codes with {self.dtype}: only fp8 has them"
        if self.transpose_v and self.block_n > 128:
            return f"block_n {self.block_n}: transpose_v writes rows of at most 128 keys, the width of a swizzle"
        if self.transpose_v and not self.fp8:
            return f"transpose_v with {self.dtype}: wgmma reads 16-bit V as it is"
        if not 2 <= self.stages <= MOST_KV_STAGES:
            return f"kv_stages {self.stages}: must be 2 to {MOST_KV_STAGES}, as each has named barriers"
        if self.shared_bytes > SHARED_BYTES:
            return f"{self.shared_bytes} shared bytes for {self.stages} kv_stages: a CTA has {SHARED_BYTES}"
        return why_not_name(self.name)


def default_config(
    arch: int, dtype: str, head_dim: int, causal: str | None, seqlen_q: int = 4096, lse: bool = False
) -> HopperConfig:
    """The fastest configuration on an H100, measured at 1024 and 4096 queries and keys, 16 heads, batch 16 and 4.

    `lse`: exact exponentials, as lse needs them: no codes. See also FEW_QUERIES.
    """
    config = HopperConfig(dtype, head_dim, causal)
    if config.fp8:
        return replace(config, transpose_v=head_dim < 256, **_fp8_softmax(config, seqlen_q, lse))
    if head_dim == 64:
        if seqlen_q >= (2048 if causal is None else 4096):
            return replace(config, consumers=3, turns=True, int_max=True)
        return replace(config, guess=True, turns=True, keep_q=True)
    if head_dim == 256:  # shared memory is full with blocks of 128 keys
        return replace(config, block_n=64, guess=True)
    return replace(config, guess=True, turns=causal is not None and seqlen_q < 2048)


def _fp8_softmax(config: HopperConfig, seqlen_q: int, lse: bool) -> dict[str, Any]:
    """The fields of default_config in which fp8 differs."""
    masked = config.causal is not None
    three = config.head_dim == 64 and seqlen_q >= (8192 if masked else 2048)
    if seqlen_q < FEW_QUERIES:
        return {}
    if config.head_dim == 256:
        return {"int_max": True, "turns": True, "codes": not lse}
    fields = {"guess": True, "consumers": 3 if three else 2}
    if lse:
        by_fma = 1 if config.head_dim == 128 else 2
        return fields | {"by_fma": by_fma, "turns": config.head_dim == 128}
    return fields | {"codes": True, "overlap": True, "keep_q": not three, "turns": not masked or seqlen_q >= 2048}


def candidates(config: HopperConfig, arch: int) -> Iterator[HopperConfig]:
    """Configurations that compute the same as `config` on `arch`; `config` comes first.

    Those without guess have exact exponentials.
    """
    yield config
    searched: dict[str, Any] = {"guess": False, "overlap": False, "by_fma": 0, "codes": False}
    maxima: tuple[dict[str, Any], ...] = (
        {"guess": True, "overlap": True, "int_max": False},
        {"guess": True, "overlap": False, "int_max": False},
        searched | {"int_max": True},
        searched | {"int_max": False},
    )
    for consumers, block_n, turns, fields in product((2, 3), (64, 128), (False, True), maxima):
        other = replace(config, consumers=consumers, block_n=block_n, turns=turns, kv_stages=None, **fields)
        if other != config and other.why_not(arch) is None:
            yield other
