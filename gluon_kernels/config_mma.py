"""What one mma.sync attention kernel is compiled for, and which GPU can run it. Only values, no triton."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from .config import CAUSAL, OfDtype, why_not_name

BITS = {"fp16": 16, "bf16": 16, "fp8e4nv": 8}
HEAD_DIMS = (64, 128, 256)

# Shared memory a CTA may use, in bytes, by compute capability (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"): the SM's size less 1 KiB per CTA.
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024, 120: 99 * 1024, 121: 99 * 1024}
# fp8 operands of mma.sync exist from sm_89 on; sm_90 runs them as fp16 (ptxas converts), sm_120 natively.
FP8_FROM = 89
MMA_ROWS = 16
BASE_NAME = "attention_mma"


@dataclass(frozen=True, slots=True)
class MmaConfig(OfDtype):
    """One forward attention kernel.

    dtype       of Q, K and V: "fp16", "bf16" or "fp8e4nv"; sums, maxima and accumulators are fp32
    head_dim    columns of Q, K, V and O
    causal      None; "top-left": row i sees keys 0..i; "bottom-right": the last row sees the last key
    name        the entry's name in the PTX. The default is the faster one where it was measured: see `default_config`
    block_m     query rows of a tile; block_n: keys of a block
    warps       each computes block_m / warps rows
    stages      1: one K and one V buffer, loaded in turn (two barriers per block); 2: two each (one barrier)
    parts       column parts of a block: exponentials of one are taken while the one before is multiplied with V
    keep_q      Q stays in registers; else it is read again from shared memory for each block
    sum_by_mma  the probabilities are added up by mma.sync with ones, as they are rounded; else in fp32, and always
                so where lse is asked for
    """

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

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: the Q tile and the K and V buffers."""
        return (self.block_m + 2 * self.stages * self.block_n) * self.head_dim * self.element_bytes

    def why_not(self, arch: int) -> str | None:
        """The first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in SHARED_BYTES:
            return f"arch {arch}: the kernel is for sm_{', sm_'.join(map(str, SHARED_BYTES))}"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.element_bytes == 1 and arch < FP8_FROM:
            return f"dtype {self.dtype}: mma.sync takes fp8 from sm_{FP8_FROM} on, this is sm_{arch}"
        if self.causal not in CAUSAL:
            return f"causal {self.causal!r}: not None, 'top-left' or 'bottom-right'"
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}"
        if self.warps not in (4, 8):
            return f"warps {self.warps}: 4 or 8"
        if self.block_m not in (MMA_ROWS * self.warps, 2 * MMA_ROWS * self.warps):
            return f"block_m {self.block_m}: {self.warps} warps compute 16 or 32 rows each"
        if self.block_n not in (32, 64, 128):
            return f"block_n {self.block_n}: 32, 64 or 128"
        if self.stages not in (1, 2):
            return f"stages {self.stages}: 1 (buffers loaded in turn) or 2"
        if self.parts not in (1, 2, 4, 8) or self.block_n // self.parts < 256 // BITS[self.dtype]:
            least = 256 // BITS[self.dtype]
            return f"parts {self.parts}: 1, 2, 4 or 8, of at least the {least} keys that one mma.sync adds up"
        if self.sum_by_mma and self.element_bytes == 1:
            return (
                "sum_by_mma: not with fp8: ptxas 12.6 to 12.9 make garbage of pairs of equal fp8 numbers, as ones are"
            )
        if self.shared_bytes > SHARED_BYTES[arch]:
            return f"{self.shared_bytes} bytes of shared memory: a CTA on sm_{arch} has {SHARED_BYTES[arch]}"
        return why_not_name(self.name)

    def require(self, arch: int) -> None:
        """Raise ValueError with the reason if `arch` cannot run this kernel."""
        reason = self.why_not(arch)
        if reason is not None:
            raise ValueError(f"mma.sync attention for sm_{arch}: {reason}")


# Names a kernel is tried under. ptxas schedules an entry whose name contains "cutlass" differently; which is
# faster differs from kernel to kernel, so the name is one more thing to tune.
NAMES = (BASE_NAME, f"cutlass_{BASE_NAME}")
# block_m, block_n, warps, stages, parts, keep_q: what came within a tenth of the fastest on an H100 for some problem.
TILES = (
    (128, 64, 4, 1, 4, False),
    (128, 64, 4, 1, 4, True),
    (128, 64, 4, 2, 4, True),
    (128, 128, 8, 1, 8, True),
    (64, 64, 4, 1, 4, True),
    (128, 64, 8, 1, 4, False),
    (128, 64, 4, 1, 2, True),  # fp8: an mma.sync adds up 32 keys, so that parts are larger
    (128, 32, 4, 1, 1, False),
    (128, 32, 4, 1, 2, False),
    (128, 32, 4, 2, 2, False),
    (64, 32, 4, 1, 1, False),
)
# fp32 accumulators of a thread: more than these and its scores do not fit into 255 registers.
MOST_ACCUMULATORS = 128


def candidates(config: MmaConfig, arch: int) -> Iterator[MmaConfig]:
    """Configs that compute the same as `config` on `arch`, each under every name; `config` comes first."""
    yield config
    for tile, by_mma in product(TILES, (True, False)):
        fields = dict(zip(("block_m", "block_n", "warps", "stages", "parts", "keep_q"), tile, strict=True))
        for name in NAMES:
            other = replace(config, **fields, sum_by_mma=by_mma, name=name)
            fits = other.block_m * other.head_dim // (32 * other.warps) <= MOST_ACCUMULATORS
            if other != config and fits and other.why_not(arch) is None:
                yield other


PLAIN, CUTLASS = NAMES
# Fastest on an H100 (Triton 3.6.0, ptxas 12.8.93; benchmarks/results/gluon_names.json): bits of an element, head_dim,
# causal, at most SHORT queries -> name, tile, sum_by_mma. Where the names are as fast, the plain one.
SHORT = 2048
TUNED = {
    (16, 64, False, True): (PLAIN, (128, 64, 4, 2, 4, True), True),
    (16, 64, True, True): (CUTLASS, (128, 64, 4, 1, 4, False), True),
    (16, 64, False, False): (PLAIN, (128, 64, 4, 1, 4, True), False),
    (16, 64, True, False): (PLAIN, (128, 64, 4, 1, 4, True), False),
    (16, 128, False, True): (PLAIN, (128, 64, 4, 1, 4, False), True),
    (16, 128, True, True): (PLAIN, (128, 64, 4, 1, 4, False), True),
    (16, 128, False, False): (PLAIN, (128, 64, 4, 1, 4, False), True),
    (16, 128, True, False): (PLAIN, (128, 64, 4, 1, 4, False), True),
    (16, 256, False, True): (PLAIN, (128, 64, 8, 1, 4, False), True),
    (16, 256, True, True): (CUTLASS, (64, 64, 4, 1, 4, True), True),
    (16, 256, False, False): (PLAIN, (128, 64, 8, 1, 4, False), False),
    (16, 256, True, False): (CUTLASS, (64, 64, 4, 1, 4, True), False),
    **{(8, 64, causal, short): (PLAIN, (128, 64, 4, 1, 2, True), False) for causal in (0, 1) for short in (0, 1)},
    **{(8, 128, causal, short): (PLAIN, (128, 32, 4, 1, 1, False), False) for causal in (0, 1) for short in (0, 1)},
    **{(8, 256, causal, short): (CUTLASS, (64, 32, 4, 1, 1, False), False) for causal in (0, 1) for short in (0, 1)},
}
# Less shared memory than an H100's: the first that fits.
SMALL_TILES = ((64, 64, 4, 1, 4, True), (64, 32, 4, 1, 1, False))


def default_config(arch: int, dtype: str, head_dim: int, causal: str | None, queries: int = 4096) -> MmaConfig:
    """The fastest tile and name for this kind of problem on sm_90; fp16 was not tuned and is taken for bf16.

    On other GPUs nothing was measured: the same tile, or the largest that fits, under the plain name.
    """
    problem = (BITS.get(dtype, 16), head_dim, causal is not None, queries <= SHORT)
    name, tile, by_mma = TUNED.get(problem, (PLAIN, (128, 64, 4, 1, 2, False), False))
    config = MmaConfig(dtype, head_dim, causal, name if arch == 90 else PLAIN, *tile, sum_by_mma=by_mma)
    fields = ("block_m", "block_n", "warps", "stages", "parts", "keep_q")
    small = (replace(config, **dict(zip(fields, other, strict=True))) for other in SMALL_TILES)
    return next((fits for fits in (config, *small) if fits.why_not(arch) is None), config)
