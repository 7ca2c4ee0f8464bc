"""QuantizeConfig: all compile-time parameters of a quantisation kernel. Cut: division of its work among CTAs.

Imports neither cutlass nor torch. A slab is one head of one sequence (rows times head_dim), and has one scale. Its
16-byte vectors are numbered row by row and divided into pieces of THREADS * VECTORS. A chunk is the pieces of one CTA.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...config import ARCHS, FP8, HEAD_DIMS

IN_DTYPES = ("bf16", "fp16", "fp32")
IN_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
# A head whose largest absolute value is below this counts as zero, because its scale would be out of float32's range.
SMALLEST_AMAX = 2.0**-100
VECTOR_BYTES = 16
TENSORS = (1, 3)
THREADS = {"slabs": 512, "passes": 256}
VECTORS = {"slabs": 16, "passes": 8}
CHUNKS = 256  # most chunks of a head: a CTA of the second pass reads the partial maxima of all of them
# Fractions of the L2 cache. If the input fits into 1 / L2_WHOLE of the cache, the second pass begins after the first.
# Else the first pass runs ahead of the second by as much input as fits into 1 / L2_AHEAD of the cache. It is not more
# because the outputs go through the cache too and evict input. Both numbers were chosen on an H100 among powers of two
# (16 heads of 16,384 rows).
L2_WHOLE, L2_AHEAD = 2, 8


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """One quantisation kernel. Shapes, strides and lengths are arguments; new values never cause a new compilation.

    arch        target of ptxas, as in attention's Config
    dtype       dtype of the input: "bf16", "fp16" or "fp32"
    fp8         dtype of the output: "e4m3" or "e5m2"
    head_dim    32 to 256 in steps of 8
    tensors     1, or 3: Q, K and V in the same launches
    varlen      sequences packed in one [total, heads, head_dim] tensor; else [batch, rows, heads, head_dim]
    whole       a CTA holds a whole slab in registers: one launch, for short sequences
    """

    arch: str = "sm_120a"
    dtype: str = "bf16"
    fp8: str = "e4m3"
    head_dim: int = 128
    tensors: int = 1
    varlen: bool = False
    whole: bool = False

    @property
    def kind(self) -> str:
        return "slabs" if self.whole else "passes"

    @property
    def threads(self) -> int:
        return THREADS[self.kind]

    @property
    def vectors(self) -> int:
        """Number of 16-byte vectors that a thread holds."""
        return VECTORS[self.kind]

    @property
    def row_vectors(self) -> int:
        """Number of 16-byte vectors in a row of the input."""
        return self.head_dim * IN_BYTES[self.dtype] // VECTOR_BYTES

    @property
    def elements(self) -> int:
        """Values in a vector. The output of a vector has this number of bytes."""
        return VECTOR_BYTES // IN_BYTES[self.dtype]

    @property
    def piece(self) -> int:
        """Vectors in a piece."""
        return self.threads * self.vectors

    @property
    def name(self) -> str:
        """Name of the kernel's entry function, before the DSL mangles it."""
        parts = [
            f"sm120_attn_quantize_{self.dtype}_{self.fp8}_d{self.head_dim}_{self.kind}",
            "qkv" * (self.tensors == 3),
            "varlen" * self.varlen,
        ]
        return "_".join(filter(None, parts))


def why_not(config: QuantizeConfig) -> str | None:
    """Return the reason why this kernel cannot be built, or None."""
    c = config
    if c.arch not in ARCHS:
        return f"arch {c.arch!r}: must be {' or '.join(ARCHS)}"
    if c.dtype not in IN_DTYPES:
        return f"dtype {c.dtype!r}: must be {' or '.join(IN_DTYPES)}"
    if c.fp8 not in FP8:
        return f"fp8 {c.fp8!r}: must be {' or '.join(FP8)}"
    if c.head_dim not in HEAD_DIMS:
        return f"head_dim {c.head_dim}: must be 32 to 256, a multiple of 8, as for attention"
    if c.tensors not in TENSORS:
        return f"tensors {c.tensors}: must be 1, or 3 (Q, K and V)"
    return None


@dataclass(frozen=True, slots=True)
class Cut:
    """Division of the work among CTAs.

    heads       number of heads of all tensors and sequences
    pieces      number of pieces of one CTA
    chunks      number of CTAs of the longest head
    group       number of heads by which the first pass is ahead of the second
    """

    heads: int
    pieces: int
    chunks: int
    group: int

    @property
    def blocks(self) -> int:
        """Number of CTAs of the larger launch."""
        return (2 * self.heads - self.group) * self.chunks

    @property
    def scratch(self) -> int:
        """Number of words of scratch memory between the passes: partial maxima and counters."""
        return self.heads * self.chunks + 1 + self.heads


def fits_whole(config: QuantizeConfig, rows: int) -> bool:
    """Check whether one CTA of a `whole` kernel can hold a slab of this many rows."""
    return rows * config.row_vectors <= THREADS["slabs"] * VECTORS["slabs"]


def cut(config: QuantizeConfig, heads: int, rows: int, l2_bytes: int) -> Cut:
    """Divide the work among CTAs. rows: rows of the longest sequence; l2_bytes: size of the device's L2 cache."""
    vectors = max(rows * config.row_vectors, 1)
    if config.whole:
        return Cut(heads, 1, 1, max(heads, 1))
    pieces = -(-vectors // (config.piece * CHUNKS))
    chunks = -(-vectors // (config.piece * pieces))
    head_bytes = vectors * VECTOR_BYTES
    share = L2_WHOLE if heads * head_bytes <= l2_bytes // L2_WHOLE else L2_AHEAD
    group = max(l2_bytes // share // head_bytes, 1)
    return Cut(heads, pieces, chunks, max(min(group, heads), 1))
