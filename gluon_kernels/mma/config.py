"""Configurations of the mma.sync attention, and the GPUs that can run it. Imports no triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple

from ..config import BITS, KernelConfig, why_not_causal, why_not_name

DTYPES = ("fp16", "bf16", "fp8e4nv")
HEAD_DIMS = (64, 128, 256)

# Shared memory that a CTA may use, in bytes, by compute capability (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"): the SM's shared memory minus 1 KiB.
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024, 121: 99 * 1024}
# mma.sync has fp8 operands from sm_89 on. For sm_90 ptxas converts them to fp16; sm_120 multiplies fp8 natively.
FP8_FROM = 89
MMA_ROWS = 16
TRIGGERS = (None, "name", "pragma")
BASE_NAME = "attention_mma"


@dataclass(frozen=True, slots=True)
class MmaConfig(KernelConfig):
    """One forward attention kernel with mma.sync.

    dtype       type of Q, K and V: "fp16", "bf16" or "fp8e4nv"; sums, maxima and accumulators are fp32
    head_dim    columns of Q, K, V and O
    causal      None; "top-left": query i sees keys 0 .. i; "bottom-right": the last query sees the last key
    name        the entry's name in the PTX
    block_m     query rows of a tile
    block_n     keys of a block
    warps       warps of a CTA; each computes block_m / warps rows
    stages      1: one K and one V buffer, loaded in turn, with two barriers per block; 2: two K and two V buffers, with
                one barrier per block
    parts       number of column parts of a block: the exponentials of a part are computed while the tensor cores
                multiply the previous part with V
    keep_q      Q stays in registers; else each block reads it again from shared memory
    sum_by_mma  mma.sync with ones adds up the rounded probabilities. Else, and always with return_lse, they are added
                in fp32 before they are rounded
    trigger     how to select ptxas's other scheduler. None: use the usual one; "name": put "cutlass_" in front of the
                name; "pragma": `mma_throughput`, for ptxas 13.3 and newer, with the same machine code as "name"
    """

    KERNEL: ClassVar[str] = "mma"
    ARCH: ClassVar[int] = 90

    dtype: str = "bf16"
    head_dim: int = 128
    causal: str | None = None
    name: str = BASE_NAME
    block_m: int = 128
    block_n: int = 64
    warps: int = 4
    stages: int = 2
    parts: int = 1
    keep_q: bool = False
    sum_by_mma: bool = False
    trigger: str | None = None

    @property
    def entry(self) -> str:
        """The entry's name in the PTX."""
        return f"cutlass_{self.name}" if self.trigger == "name" else self.name

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: the Q tile, K and V buffers."""
        return (self.block_m + 2 * self.stages * self.block_n) * self.head_dim * self.element_bytes

    def why_not(self, arch: int) -> str | None:
        """Return the first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in SHARED_BYTES:
            return f"arch {arch}: the kernel is for sm_{', sm_'.join(map(str, SHARED_BYTES))}"
        if self.dtype not in DTYPES:
            return f"dtype {self.dtype!r}: not one of {', '.join(DTYPES)}"
        if self.fp8 and arch < FP8_FROM:
            return f"dtype {self.dtype}: mma.sync takes fp8 from sm_{FP8_FROM} on, this is sm_{arch}"
        if (reason := why_not_causal(self.causal)) is not None:
            return reason
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}"
        if self.warps not in (4, 8):
            return f"warps {self.warps}: must be 4 or 8"
        if self.block_m not in (MMA_ROWS * self.warps, 2 * MMA_ROWS * self.warps):
            return f"block_m {self.block_m}: must be 16 or 32 times warps, which is {self.warps}"
        if self.block_n not in (32, 64, 128):
            return f"block_n {self.block_n}: must be 32, 64 or 128"
        if self.stages not in (1, 2):
            return f"stages {self.stages}: must be 1 (K and V loaded in turn) or 2"
        if self.parts not in (1, 2, 4, 8) or self.block_n // self.parts < 256 // BITS[self.dtype]:
            least = 256 // BITS[self.dtype]
            return f"parts {self.parts}: must be 1, 2, 4 or 8; a part needs at least the {least} keys of one mma.sync"
        if self.sum_by_mma and self.fp8:
            return "sum_by_mma must be False for fp8: ptxas 12.6 to 12.9 miscompile pairs of fp8 ones"
        if self.trigger not in TRIGGERS:
            return f"trigger {self.trigger!r}: not one of {', '.join(map(repr, TRIGGERS))}"
        if self.shared_bytes > SHARED_BYTES[arch]:
            return f"needs {self.shared_bytes} bytes of shared memory; a CTA on sm_{arch} has {SHARED_BYTES[arch]}"
        return why_not_name(self.name)


class Tile(NamedTuple):
    """The fields of MmaConfig that are tuned."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    parts: int
    keep_q: bool


# Tiles that were at most 10% slower than the fastest on an H100, for at least one problem.
TILES = (
    Tile(128, 64, 4, 1, 4, False),
    Tile(128, 64, 4, 1, 4, True),
    Tile(128, 64, 4, 2, 4, True),
    Tile(128, 128, 8, 1, 8, True),
    Tile(64, 64, 4, 1, 4, True),
    Tile(128, 64, 8, 1, 4, False),
    Tile(128, 64, 4, 1, 2, True),  # for fp8, whose parts are larger: an mma.sync takes 32 keys
    Tile(128, 32, 4, 1, 1, False),
    Tile(128, 32, 4, 1, 2, False),
    Tile(128, 32, 4, 2, 2, False),
    Tile(64, 32, 4, 1, 1, False),
)
# Most fp32 accumulators of O per thread. More accumulators and the scores do not fit into 255 registers.
MOST_ACCUMULATORS = 128


def candidates(config: MmaConfig, arch: int, trigger: str = "name") -> Iterator[MmaConfig]:
    """Yield `config`, then configurations that compute the same on `arch`, each with both of ptxas's schedulers.

    Which scheduler is faster depends on the kernel. `trigger`: how to select the other scheduler, see MmaConfig.
    """
    yield config
    for tile, by_mma in product(TILES, (True, False)):
        for scheduler in (None, trigger):
            other = replace(config, **tile._asdict(), sum_by_mma=by_mma, trigger=scheduler)
            fits = other.block_m * other.head_dim // (32 * other.warps) <= MOST_ACCUMULATORS
            if other != config and fits and other.why_not(arch) is None:
                yield other


# The fastest choices on an H100 (Triton 3.6.0, ptxas 12.8.93), measured by benchmarks/gluon/gluon_names.py. If both
# schedulers give equally fast code, the usual one is used.
# (bits of an element, head_dim, causal, seqlen_q <= SHORT) -> (use the other scheduler, tile, sum_by_mma).
SHORT = 2048
BOTH = tuple(product((False, True), repeat=2))
TUNED: dict[tuple[int, int, bool, bool], tuple[bool, Tile, bool]] = {
    (16, 64, False, True): (False, Tile(128, 64, 4, 2, 4, True), True),
    (16, 64, True, True): (True, Tile(128, 64, 4, 1, 4, False), True),
    (16, 64, False, False): (False, Tile(128, 64, 4, 1, 4, True), False),
    (16, 64, True, False): (False, Tile(128, 64, 4, 1, 4, True), False),
    (16, 128, False, True): (False, Tile(128, 64, 4, 1, 4, False), True),
    (16, 128, True, True): (False, Tile(128, 64, 4, 1, 4, False), True),
    (16, 128, False, False): (False, Tile(128, 64, 4, 1, 4, False), True),
    (16, 128, True, False): (False, Tile(128, 64, 4, 1, 4, False), True),
    (16, 256, False, True): (False, Tile(128, 64, 8, 1, 4, False), True),
    (16, 256, True, True): (True, Tile(64, 64, 4, 1, 4, True), True),
    (16, 256, False, False): (False, Tile(128, 64, 8, 1, 4, False), False),
    (16, 256, True, False): (True, Tile(64, 64, 4, 1, 4, True), False),
    # With fp8 neither the mask nor the length makes a difference.
    **{(8, 64, causal, short): (False, Tile(128, 64, 4, 1, 2, True), False) for causal, short in BOTH},
    **{(8, 128, causal, short): (False, Tile(128, 32, 4, 1, 1, False), False) for causal, short in BOTH},
    **{(8, 256, causal, short): (True, Tile(64, 32, 4, 1, 1, False), False) for causal, short in BOTH},
}
# For GPUs with less shared memory than an H100.
SMALL_TILE = Tile(64, 64, 4, 1, 4, True)


def default_config(arch: int, dtype: str, head_dim: int, causal: str | None, seqlen_q: int = 4096) -> MmaConfig:
    """Choose the tile and scheduler that were the fastest on sm_90. fp16 uses the choices of bf16 without measurement.

    Nothing was measured on other GPUs: they use the same tile, or SMALL_TILE if it does not fit, and the usual
    scheduler. The other scheduler is selected by name, which works with every ptxas. For an unsupported dtype or
    head_dim, why_not of the result gives the reason.
    """
    tuned = TUNED.get((BITS.get(dtype, 0), head_dim, causal is not None, seqlen_q <= SHORT))
    if tuned is None:
        return MmaConfig(dtype, head_dim, causal)
    other, tile, by_mma = tuned
    trigger = "name" if other and arch == 90 else None
    config = MmaConfig(dtype, head_dim, causal, BASE_NAME, *tile, sum_by_mma=by_mma, trigger=trigger)
    small = replace(config, **SMALL_TILE._asdict())
    return next((fits for fits in (config, small) if fits.why_not(arch) is None), config)
