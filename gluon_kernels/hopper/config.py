"""Configurations of the Hopper attention, and the limits of sm_90. Imports no triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import ClassVar, NamedTuple

from ..config import BITS, SHARED_BYTES, KernelConfig, why_not_causal, why_not_name

HOPPER = (90,)
HEAD_DIMS = (64, 128, 256)

# A consumer is one warpgroup, whose wgmma instructions compute 64 rows.
CONSUMER_ROWS = 64
BASE_NAME = "attention_hopper"
WARPGROUP_THREADS = 128
REGISTERS = 65536
# Registers of a consumer thread, by the number of consumers. setmaxnreg takes multiples of 8. Consumers hold scores and
# accumulators; the load partition needs few.
CONSUMER_REGISTERS = {2: 240, 3: 160}
# Registers of a consumer thread for fp8 with head_dim 256, if there are two consumers. The load partition widens V and
# gets the registers that both consumers give up.
WIDE_FP8_REGISTERS = 224
# A consumer thread needs at least this many registers besides its tiles: for maxima, sums, counters, addresses.
SCALAR_REGISTERS = 24
# Each K slot and each V slot has one of the 16 named barriers; kernel.py lists the others.
MOST_KV_STAGES = 4
# Number of 8-bit V blocks in shared memory: one is widened while the other is loaded.
NARROW_SLOTS = 2
# An upper bound for the mbarriers, 8 bytes each, and the arguments that warp specialisation stores for the partitions.
BARRIER_BYTES = 1024
# Bytes of the L2 cache (50 MiB) that K and V of the heads that run at the same time may take. On an H100, 32 MiB was
# slower. It was also slower to run fewer heads than one round of tiles needs.
L2_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Options:
    """Compile-time parameters of the kernel. Its repr is part of Triton's cache key."""

    consumers: int
    block_n: int
    head_dim: int
    stages: int
    causal: bool
    ordered: bool
    uneven: bool
    widen_v: bool
    turns: bool
    keep_q: bool
    q_early: bool
    shared_out: bool
    most_lane_sum: float
    registers: int
    half_sums: bool
    own_sums: int
    own_first: bool


@dataclass(frozen=True, slots=True)
class HopperConfig(KernelConfig):
    """One forward attention kernel for sm_90a.

    dtype        type of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16". O has the same type, or bf16 for fp8
    head_dim     columns of Q, K, V and O
    causal       None; "top-left": query i sees keys 0 .. i; "bottom-right": the last query sees the last key
    name         the entry's name in the PTX
    consumers    warpgroups that compute, with 64 query rows each
    block_n      keys of a block
    turns        consumers issue their MMAs in turn, so that one computes its softmax while another has the tensor cores
    keep_q       Q stays in registers; else each MMA reads it from shared memory
    own_sums     fp8 only: a query's score with its own key is computed as this many partial sums, which are added in
                 fp32. 1: one sum, as for all other scores. The own key of query i is key i + seqlen_k - seqlen_q; with
                 causal "top-left" it is key i. Has an effect only if seqlen_k - seqlen_q is a multiple of 128. On an
                 H100, 4 sums with head_dim 128 take up to 3% more time than 1 sum; 2 sums with head_dim 64 take up to
                 11% more time than three consumers
    """

    KERNEL: ClassVar[str] = "hopper"
    ARCH: ClassVar[int] = 90

    dtype: str = "bf16"
    head_dim: int = 128
    causal: str | None = None
    name: str = BASE_NAME
    consumers: int = 2
    block_n: int = 128
    turns: bool = False
    keep_q: bool = False
    own_sums: int = 1

    @property
    def block_m(self) -> int:
        """Query rows of a tile."""
        return self.consumers * CONSUMER_ROWS

    @property
    def shared_out(self) -> bool:
        """Whether O is staged in Q's shared memory, because there is no room for both."""
        return self.head_dim == 256 and not self.fp8

    @property
    def q_early(self) -> bool:
        """Whether the next Q is loaded during a tile's last softmax, not after it. This helps causal, short tiles.

        It is not used with shared_out, where Q's memory is not free before O has been stored, nor with keep_q, where
        Q's memory is free even earlier.
        """
        return self.causal is not None and not self.shared_out and not self.keep_q

    @property
    def uneven(self) -> bool:
        """Whether a consumer skips key blocks that other consumers of its tile need.

        Of three consumers, some have no rows in the last tile of most lengths, and with a mask the first consumer sees
        fewer keys than the last. Two consumers differ only with a mask and with blocks smaller than a tile.
        """
        return self.consumers == 3 or (self.causal is not None and self.block_n < self.block_m)

    @property
    def ordered(self) -> bool:
        """Whether CTAs take tiles in the order of tile_order, because tiles differ in length."""
        return self.causal is not None or self.uneven

    @property
    def most_lane_sum(self) -> float:
        """Limit for a thread's sum of exponentials in one row of a block. Above it, the row needs a new maximum.

        Up to this sum, each probability is in the range of its type. With the true maximum the sum never exceeds the
        limit, since it has block_n / 4 exponentials of at most 1.
        """
        return 2.0**60 if self.dtype == "bf16" else 32768.0

    @property
    def half_sums(self) -> bool:
        """Whether the probabilities of a block are added up after rounding, in fp16. Else before rounding, in fp32.

        Sums in fp16 lose probabilities below 2^-25 of the row's largest. They are not used with head_dim 256: for the
        data "q = k" of fp8_accuracy.py the error was 1.3 times that of its reference, and the speed was the same.
        """
        return self.fp8 and self.head_dim < 256

    @property
    def own_first(self) -> bool:
        """Whether a tile without a mask begins with the block of its own keys. With a mask each tile does so anyway."""
        return self.own_sums > 1 and self.causal is None

    @property
    def stages(self) -> int:
        """Number of K blocks in flight, and also of V blocks."""
        return min(MOST_KV_STAGES, (SHARED_BYTES - self._shared_bytes_without_kv) // self._stage_bytes)

    @property
    def _stage_bytes(self) -> int:
        """Bytes of a K block and a V block. Elements of V have 16 bits."""
        return self.block_n * self.head_dim * (self.element_bytes + 2)

    @property
    def _shared_bytes_without_kv(self) -> int:
        elements = self.block_m * self.head_dim
        out = 0 if self.shared_out else 2 * elements
        narrow = NARROW_SLOTS * self.block_n * self.head_dim if self.fp8 else 0
        return elements * self.element_bytes + out + narrow + BARRIER_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K and V stages, 8-bit V, barriers."""
        return self._shared_bytes_without_kv + self.stages * self._stage_bytes

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread."""
        if self.fp8 and self.head_dim == 256 and self.consumers == 2:
            return WIDE_FP8_REGISTERS
        return CONSUMER_REGISTERS[self.consumers]

    @property
    def entry_registers(self) -> int:
        """Registers at launch of each thread of the consumers and of the load partition."""
        return REGISTERS // ((self.consumers + 1) * WARPGROUP_THREADS) // 8 * 8

    @property
    def tile_registers(self) -> int:
        """Registers of a consumer thread that hold fp32 scores and accumulators, and left operands of the MMAs."""
        threads_per_row = WARPGROUP_THREADS // CONSUMER_ROWS
        operands = self.block_n // 2 + self.head_dim * self.keep_q * self.element_bytes // 4
        return (self.block_n + self.head_dim + operands) // threads_per_row

    def section(self, seqlen_k: int, qheads_per_kvhead: int, round_heads: int = 1) -> int:
        """Compute how many heads of Q run at the same time: as many as fit L2_BYTES, but at least `round_heads`."""
        kv_bytes = 2 * seqlen_k * self.head_dim * self.element_bytes
        return max(L2_BYTES // kv_bytes, -(-round_heads // qheads_per_kvhead), 1) * qheads_per_kvhead

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box of each tensor descriptor: [batch, head, row, column]."""
        q = [1, 1, CONSUMER_ROWS, self.head_dim]
        k = [1, 1, self.block_n, self.head_dim]
        return {"q_desc": q, "k_desc": k, "v_desc": k, "o_desc": q}

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each tensor descriptor."""
        return {"q_desc": self.dtype, "k_desc": self.dtype, "v_desc": self.dtype, "o_desc": self.out_dtype}

    @property
    def options(self) -> Options:
        """Compile-time parameters of the kernel."""
        return Options(
            consumers=self.consumers,
            block_n=self.block_n,
            head_dim=self.head_dim,
            stages=self.stages,
            causal=self.causal is not None,
            ordered=self.ordered,
            uneven=self.uneven,
            widen_v=self.fp8,
            half_sums=self.half_sums,
            turns=self.turns,
            keep_q=self.keep_q,
            q_early=self.q_early,
            shared_out=self.shared_out,
            most_lane_sum=self.most_lane_sum,
            registers=self.consumer_registers,
            own_sums=self.own_sums,
            own_first=self.own_first,
        )

    def why_not(self, arch: int) -> str | None:
        """Return the first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in HOPPER:
            return f"arch {arch}: wgmma exists on sm_90 only"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}"
        if (reason := why_not_causal(self.causal)) is not None:
            return reason
        if self.consumers not in CONSUMER_REGISTERS:
            return f"consumers {self.consumers}: must be 2 or 3, the warpgroups that fit beside the load partition"
        if self.block_n not in (64, 128):
            return f"block_n {self.block_n}: must be 64 or 128 keys"
        if self.own_sums > 1 and (reason := self._why_not_own_sums()) is not None:
            return f"own_sums {self.own_sums}: {reason}"
        if self.tile_registers + SCALAR_REGISTERS > self.consumer_registers:
            return (
                f"block_n {self.block_n} needs {self.tile_registers} + {SCALAR_REGISTERS} registers in a thread; "
                f"a thread of {self.consumers} consumers has {self.consumer_registers}"
            )
        return why_not_name(self.name)

    def _why_not_own_sums(self) -> str | None:
        if not self.fp8:
            return f"must be 1 for {self.dtype}, whose sums already have 24 bits"
        if self.block_m != self.block_n:
            return f"block_m {self.block_m} and block_n {self.block_n} must be equal"
        if self.head_dim // self.own_sums not in (32, 64):
            return f"head_dim / own_sums, the columns of a sum, must be 32 or 64; head_dim is {self.head_dim}"
        return None


class Form(NamedTuple):
    """The fields of HopperConfig that are tuned."""

    consumers: int
    block_n: int
    turns: bool
    keep_q: bool


# (fp8, head_dim, with a mask) -> {smallest number of queries: the fastest Form}. Measured on an H100 and an H200 with
# 1024 to 16384 queries, and as many keys.
TUNED: dict[tuple[bool, int, bool], dict[int, Form]] = {
    (False, 64, False): {0: Form(2, 128, True, True), 1280: Form(3, 128, True, False)},
    (False, 64, True): {0: Form(2, 128, True, True), 4096: Form(3, 128, True, False)},
    (False, 128, False): {0: Form(2, 128, False, False)},
    (False, 128, True): {0: Form(2, 128, True, False), 2048: Form(2, 128, False, False)},
    (True, 64, False): {0: Form(2, 128, True, False), 1024: Form(3, 128, True, False)},
    (True, 64, True): {0: Form(2, 128, True, False), 2048: Form(3, 128, True, False)},
    (True, 128, False): {0: Form(2, 128, True, True), 2048: Form(2, 128, False, True)},
    (True, 128, True): {0: Form(2, 128, True, True)},
    # With blocks of 128 keys shared memory would hold at most one K and one V block.
    **{(fp8, 256, masked): {0: Form(2, 64, True, False)} for fp8, masked in product((False, True), repeat=2)},
}


def default_config(arch: int, dtype: str, head_dim: int, causal: str | None, seqlen_q: int = 4096) -> HopperConfig:
    """Choose the fastest measured configuration. For an unsupported head_dim, the result's why_not has the reason."""
    config = HopperConfig(dtype, head_dim, causal)
    forms = TUNED.get((config.fp8, head_dim, causal is not None))
    if forms is None:
        return config
    return replace(config, **forms[max(least for least in forms if least <= seqlen_q)]._asdict())


def candidates(config: HopperConfig, arch: int) -> Iterator[HopperConfig]:
    """Yield `config`, then other configurations that compute the same on `arch`."""
    yield config
    for form in starmap(Form, product((2, 3), (64, 128), (False, True), (False, True))):
        other = replace(config, **form._asdict())
        if other != config and other.why_not(arch) is None:
            yield other
